//! The stage on which plans run: weights, session slots, tables and scratch on a device.

use super::attention::PagePool;
use super::buffer::{Binding, GpuBuffer};
use super::caps::Caps;
use super::delta::Spans;
use super::device::Gpu;
use super::lower::Fixed;
use super::lower_mixer::mixer_chunk;
use super::pool::Pool;
use super::runner::{MAX_DECODE_ROWS, MAX_STEPS};
use super::scratch::ScratchPool;
use super::upload::Uploaded;
use crate::engine::SlotState;
use crate::error::{Error, Result};
use crate::model::{LayerState, Weight};
use crate::ops::Op;
use crate::plan::Plan;
use deltanet_shaders::head::CONTROL_WORDS;

/// Weights, slots, tables and scratch on a device: all that a plan's dispatches bind.
#[derive(Debug)]
pub struct Stage {
    pub(super) gpu: Gpu,
    /// What kernel choice goes by: the device's, unless [`Stage::choose_for`] said otherwise.
    pub(super) caps: Caps,
    pub(super) vocab: usize,
    pub(super) layers: Vec<LayerState>,
    /// The buffer table: what dispatches name by index.
    pub(super) buffers: Vec<Binding>,
    pub(super) weights: Uploaded,
    pub(super) fixed: Fixed,
    pub(super) scratch: ScratchPool,
    pub(super) pool: Pool,
    /// Caches of unbounded attention, and how far each slot is.
    pub(super) pages: PagePool,
    /// `[rows, MAX_STEPS]` vec4<u32>: see `sample/draw`.
    pub(super) emits: usize,
}

impl Stage {
    /// Uploads `weights` and makes `slots` zeroed slots for `layers`. `progress` gets (bytes done, bytes in all).
    ///
    /// # Errors
    /// [`Error::Limit`] for a device below WebGPU's default limits, or when a weight's row or the slots of a layer
    /// need a larger binding than it has; [`Error::OutOfMemory`] when it has no room.
    pub fn new(
        gpu: Gpu,
        vocab: usize,
        weights: &[Weight],
        layers: &[LayerState],
        slots: usize,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        gpu.caps().check_base(&gpu.info().name)?;
        let mut buffers = Vec::new();
        let (pool, heads, states) = Pool::new(&gpu, vocab, layers, slots, &mut buffers)?;
        let pages = PagePool::new(&gpu, layers, slots, &mut buffers)?;
        let weights = Uploaded::new(&gpu, weights, &mut buffers, progress)?;
        let most = MOST_ROWS as u64;
        let mut make = |name: &str, bytes: u64| -> Result<usize> {
            buffers.push(gpu.buffer(name, bytes)?.into());
            Ok(buffers.len() - 1)
        };
        let fixed = Fixed {
            heads,
            head: pool.head,
            states,
            controls: make("controls", 4 * u64::from(CONTROL_WORDS) * MAX_DECODE_ROWS as u64)?,
            tokens: make("tokens", 4 * most)?,
            table: make("row table", 16 * most)?,
            sequences: make("sequences", 16 * MAX_DECODE_ROWS as u64)?,
            chunks: Vec::new(),
        };
        let emits = make("emits", 16 * (MAX_DECODE_ROWS * MAX_STEPS) as u64)?;
        let (layers, scratch) = (layers.to_vec(), ScratchPool::default());
        let caps = gpu.caps().clone();
        Ok(Self { gpu, caps, vocab, layers, buffers, weights, fixed, scratch, pool, pages, emits })
    }

    /// Chooses kernels as for another device, in plans lowered from now on: so a software adapter can run a GPU's
    /// kernels in tests. The device must have what `caps` promises.
    pub fn choose_for(&mut self, caps: Caps) {
        self.caps = caps;
    }

    /// A slot's whole content.
    pub fn export(&self, slot: usize) -> impl Future<Output = Result<SlotState>> + use<> {
        let (shape, caches) = (self.pool.shape(), self.pages.shape(slot));
        let reading = self.pool.check(slot).and_then(|()| {
            let mut ranges = self.pool.ranges(slot);
            for (buffer, offset, bytes) in self.pages.ranges(slot) {
                ranges.push((self.buffer(buffer)?, offset, bytes));
            }
            Ok(self.gpu.read(&ranges))
        });
        async move {
            let mut read = reading?.await?;
            let pages = read.split_off(read.len().saturating_sub(caches.len()));
            let mut state = shape.state_from(read)?;
            caches.fill(pages, state.position, &mut state.caches);
            Ok(state)
        }
    }

    /// Replaces a slot's content. True when buffers were replaced: plans must be lowered anew.
    ///
    /// # Errors
    /// [`Error::Session`] when the sizes are not this model's, [`Error::OutOfMemory`] when there is no room; the slot
    /// is then as it was.
    pub fn import(&mut self, slot: usize, state: &SlotState) -> Result<bool> {
        self.pool.check(slot)?;
        self.pool.check_state(state)?;
        let grown = self.pages.import(&self.gpu, &mut self.buffers, slot, state.position, &state.caches)?;
        self.pool.write(&self.gpu, slot, state)?;
        self.gpu.check()?;
        Ok(grown)
    }

    /// Makes room for tokens to be fed, so many a slot. True when buffers were replaced: plans must be lowered anew.
    pub(super) fn reserve(&mut self, wants: &[(usize, u64)]) -> Result<bool> {
        self.pages.reserve(&self.gpu, &mut self.buffers, wants)
    }

    /// Whether products of many rows with f16 and bf16 weights on cooperative matrices may round their inputs to f16,
    /// for speed, instead of splitting each into two (either way values beyond 65,504 are cut off and those below 6e-5 keep
    /// fewer bits). Results are then within 2e-3 of the largest, instead of a few
    /// 1e-6. Likewise in decodes of 16 rows and more, and what the chunks of a delta rule multiply, within
    /// [`crate::delta::HALF_TOLERANCE`]. For programs compiled from now on.
    pub fn half_products(&mut self, on: bool) {
        self.caps.half_products = on;
    }

    pub(super) fn buffer(&self, index: usize) -> Result<&GpuBuffer> {
        self.buffers.get(index).and_then(Binding::buffer).ok_or_else(|| Error::Gpu(format!("no buffer {index}")))
    }

    /// Uploads what the kernels of a piece of a prompt read.
    pub(super) fn write_piece(&self, slot: usize, piece: &[u32]) -> Result<()> {
        let n = piece.len() as u32;
        self.gpu.write(self.buffer(self.fixed.tokens)?, 0, piece);
        self.gpu.write(self.buffer(self.fixed.sequences)?, 0, &[[0, n, slot as u32, 0]]);
        for (chunk, buffer) in &self.fixed.chunks {
            let buffer = self.buffer(*buffer)?;
            let spans = Spans::new(&[(0, n, slot as u32)], *chunk).padded(1, (buffer.size() / 16) as u32);
            self.gpu.write(buffer, 0, &spans.chunks);
        }
        Ok(())
    }

    /// Checks a plan's rows, and makes the chunk tables that its mixers read.
    pub(super) fn ensure_chunks(&mut self, plan: &Plan) -> Result<()> {
        if plan.rows > MOST_ROWS {
            return Err(Error::argument("rows of a plan", format!("at most {MOST_ROWS}"), plan.rows));
        }
        for op in &plan.ops {
            let Op::Mixer(mixer) = op else { continue };
            let chunk = mixer_chunk(mixer, &self.caps);
            if self.fixed.chunks.iter().all(|c| c.0 != chunk) {
                let entries = (MOST_ROWS as u64).div_ceil(u64::from(chunk));
                self.buffers.push(self.gpu.buffer("chunks", 16 * entries)?.into());
                self.fixed.chunks.push((chunk, self.buffers.len() - 1));
            }
        }
        Ok(())
    }
}

/// Most rows of any plan, a runner's own or a benchmark's.
const MOST_ROWS: usize = 8192;
