//! From a call to dispatches: the only place that knows which kernels run where.

use deltanet_shaders::Variant;
use deltanet_shaders::delta::{self as kernels, Decay as Decays, GramFor, LanesTile, Parts};
use deltanet_shaders::params::DeltaParams;

use super::{DeltaCall, PrecondViews, Slots, View, lower_apart, lower_coop};
use crate::error::{Error, Result};
use crate::gpu::{Caps, Dispatch};
use crate::rule::{Beta, Decay, Rule, WriteKey};

/// Makes a scratch buffer of so many f32 elements, named for listings, and returns its index in the buffer table.
pub type Scratch<'a> = dyn FnMut(&'static str, u64) -> usize + 'a;

/// C: the chunk length that `caps` runs best.
pub fn chunk_length(rule: &Rule, key_dim: u32, value_dim: u32, caps: &Caps) -> u32 {
    let fours = value_dim.is_multiple_of(4);
    if caps.software && fours {
        kernels::SOFTWARE_CHUNK
    } else if lower_coop::fits(parts(rule), key_dim, fours, caps) {
        kernels::COOP_CHUNK
    } else if lower_apart::shuffles(key_dim, 64, fours, caps).is_some()
        || wide_split(key_dim, 64, fours, caps).is_some()
    {
        64
    } else {
        32
    }
}

/// Which chunk stages a device takes for given head dims, for listings.
pub fn describe_chunk(rule: &Rule, key_dim: u32, value_dim: u32, caps: &Caps) -> String {
    let chunk = chunk_length(rule, key_dim, value_dim, caps);
    let fours = value_dim.is_multiple_of(4);
    if lower_coop::fits(parts(rule), key_dim, fours, caps) {
        let few = "few heads in segments side by side";
        return format!("chunks of {chunk}, cooperative matrices, f16 operands and f32 sums; {few}");
    }
    let stages = if caps.software && fours {
        "register tiles of software adapters".into()
    } else if lower_apart::shuffles(key_dim, chunk, fours, caps).is_some() {
        "scan without the outputs".into()
    } else {
        match wide_split(key_dim, chunk, fours, caps) {
            Some(split) => format!("wide scan, {} threads", chunk * split),
            None => "scan within WebGPU's default limits".into(),
        }
    };
    format!("chunks of {chunk}, {stages}, f32")
}

/// The parts of a rule that its kernels have.
fn parts(rule: &Rule) -> Parts {
    let decay = match rule.decay {
        Decay::None => Decays::None,
        Decay::PerHead => Decays::Head,
        Decay::PerChannel => Decays::Channel,
    };
    let write_key = rule.write_key == WriteKey::Preconditioned;
    Parts { decay, delta: rule.delta, beta: rule.beta != Beta::One, write_key }
}

/// Groups of threads of the wide scan, where it runs. `fours`: V, places and strides are multiples of 4.
fn wide_split(key_dim: u32, chunk: u32, fours: bool, caps: &Caps) -> Option<u32> {
    if caps.software || !fours {
        return None;
    }
    kernels::wide_split(key_dim, chunk, caps.workgroup_bytes, caps.max_invocations)
}

/// The recurrent form: token by token, any number of tokens a sequence, best for few.
///
/// # Errors
/// [`Error::Argument`] for a call that does not fit its rule.
pub fn lower_recurrent(call: &DeltaCall, caps: &Caps, scratch: &mut Scratch<'_>) -> Result<Vec<Dispatch>> {
    let mut lowering = Lowering::new(call, caps, scratch)?;
    // The step finds the lengths of q and k by itself where nothing else wants them.
    let alone = call.precond.is_none() && call.rule.beta != Beta::Longhorn && call.key_dim.is_multiple_of(4);
    lowering.normalise = call.l2norm && alone && !lowering.software;
    if !lowering.normalise {
        lowering.prepare();
    }
    if let Some(precond) = call.precond {
        lowering.precond_steps(precond);
    }
    if lowering.software {
        lowering.software_step();
    } else {
        lowering.step(caps);
    }
    Ok(lowering.dispatches)
}

/// The chunkwise form: chunks in parallel but for one scan over them.
///
/// # Errors
/// [`Error::Argument`] for a call that does not fit its rule; [`Error::Limit`] for a chunk that does not fit the
/// device's workgroup memory.
pub fn lower_chunk(call: &DeltaCall, caps: &Caps, scratch: &mut Scratch<'_>) -> Result<Vec<Dispatch>> {
    if ![16, 32, 64].contains(&call.chunk) {
        return Err(Error::argument("chunk", "16, 32 or 64", call.chunk));
    }
    let need = kernels::chunk_bytes(call.key_dim, call.chunk);
    if need > caps.workgroup_bytes {
        return Err(Error::Limit {
            device: "this device".into(),
            what: format!("a chunk of {} rows with K = {}", call.chunk, call.key_dim),
            need: format!("{need} bytes of workgroup memory"),
            have: caps.workgroup_bytes.to_string(),
        });
    }
    let mut lowering = Lowering::new(call, caps, scratch)?;
    lowering.software &= call.chunk == kernels::SOFTWARE_CHUNK;
    if call.chunk == kernels::COOP_CHUNK {
        lowering.coop = lower_coop::fits(lowering.parts, call.key_dim, lowering.fours, caps) && lowering.coop_decays();
    }
    if !lowering.coop {
        lowering.apart = lower_apart::shuffles(call.key_dim, call.chunk, lowering.fours, caps);
    }
    if !lowering.coop && lowering.apart.is_none() {
        lowering.wide = wide_split(call.key_dim, call.chunk, lowering.fours, caps);
    }
    lowering.normalise = lowering.coop_normalises() || lowering.apart_normalises();
    if !lowering.normalise {
        lowering.prepare();
    }
    if let Some(precond) = call.precond.filter(|_| !lowering.coop) {
        lowering.precond_chunks(precond);
    }
    if lowering.software {
        lowering.software_chunk_stages();
    } else if lowering.coop {
        lowering.coop_stages(caps.emulate);
    } else if let Some(shuffles) = lowering.apart {
        lowering.apart_stages(shuffles);
    } else {
        lowering.chunk_stages();
    }
    Ok(lowering.dispatches)
}

/// A call on its way: the inputs as the next kernel finds them, and the dispatches so far.
pub(super) struct Lowering<'a, 'b> {
    pub(super) call: &'a DeltaCall,
    pub(super) parts: Parts,
    pub(super) params: DeltaParams,
    /// V and what there is of it lie at multiples of four elements, and so do the states.
    fours: bool,
    /// Kernels for software adapters.
    software: bool,
    /// The step or the chunk stages normalise q and k.
    pub(super) normalise: bool,
    /// The stages with outputs apart, where they are taken: whether with shuffles.
    pub(super) apart: Option<bool>,
    /// Threads' groups of the wide scan, where it is taken.
    pub(super) wide: Option<u32>,
    /// The stages with cooperative matrices, where they are taken.
    pub(super) coop: bool,
    /// Buffers of q, k (with k̃) and β: the call's, or scratch once a kernel has remade them.
    pub(super) q: usize,
    pub(super) k: usize,
    pub(super) beta: Option<usize>,
    pub(super) scratch: &'a mut Scratch<'b>,
    dispatches: Vec<Dispatch>,
}

impl<'a, 'b> Lowering<'a, 'b> {
    fn new(call: &'a DeltaCall, caps: &Caps, scratch: &'a mut Scratch<'b>) -> Result<Self> {
        let rule = call.rule;
        if !(1..=256).contains(&call.key_dim) {
            return Err(Error::argument("key_dim", "1 to 256", call.key_dim));
        }
        if call.heads == 0 || !call.value_heads.is_multiple_of(call.heads) {
            return Err(Error::argument(
                "value_heads",
                format!("a multiple of {} heads", call.heads),
                call.value_heads,
            ));
        }
        for (what, want, got) in [
            ("beta", rule.beta != Beta::One, call.beta.is_some()),
            ("g", rule.decay != Decay::None, call.g.is_some()),
            ("precond", rule.write_key == WriteKey::Preconditioned, call.precond.is_some()),
        ] {
            if want != got {
                let say = |x| if x { "a tensor" } else { "nothing" };
                return Err(Error::argument(what, format!("{} for rule {}", say(want), rule.name()), say(got)));
            }
        }
        let parts = parts(&rule);
        let none = View { buffer: 0, stride: 0, at: 0 };
        let b = call.beta.unwrap_or(none);
        let g = call.g.unwrap_or(none);
        let pre = call.precond.unwrap_or(PrecondViews {
            g: none,
            beta: none,
            log_scale: none,
            sums: Slots { buffer: 0, words: 0, at: 0 },
        });
        let params = DeltaParams {
            heads: call.heads,
            value_heads: call.value_heads,
            group: call.value_heads / call.heads,
            key_dim: call.key_dim,
            key_pad: kernels::padded(call.key_dim),
            value_dim: call.value_dim,
            value_pad: kernels::padded(call.value_dim),
            scale: call.scale,
            q_stride: call.q.stride,
            q_at: call.q.at,
            q_head: call.key_dim,
            k_stride: call.k.stride,
            k_at: call.k.at,
            k_head: call.key_dim,
            kt_at: 0,
            v_stride: call.v.stride,
            v_at: call.v.at,
            b_stride: b.stride,
            b_at: b.at,
            g_stride: g.stride,
            g_at: g.at,
            o_stride: call.out.stride,
            o_at: call.out.at,
            s_words: call.state.words,
            s_at: call.state.at,
            a_words: pre.sums.words,
            a_at: pre.sums.at,
            pb_stride: pre.beta.stride,
            pb_at: pre.beta.at,
            pg_stride: pre.g.stride,
            pg_at: pre.g.at,
            mu_at: pre.log_scale.at,
            rows_from: 0,
            rows_to: u32::MAX,
            sequences: call.sequences.len,
            chunks: call.chunks.len,
        };
        let (q, k, beta) = (call.q.buffer, call.k.buffer, call.beta.map(|b| b.buffer));
        // Those kernels load four elements at a time. (q and k are copied into place where they do not fit.)
        let fours = |v: View| v.stride.is_multiple_of(4) && v.at.is_multiple_of(4);
        let slots = call.state.words.is_multiple_of(4) && call.state.at.is_multiple_of(4);
        let fours = call.value_dim.is_multiple_of(4) && slots && fours(call.v) && fours(call.out);
        let software = caps.software && fours;
        Ok(Self {
            call,
            parts,
            params,
            fours,
            software,
            normalise: false,
            apart: None,
            wide: None,
            coop: false,
            q,
            k,
            beta,
            scratch,
            dispatches: Vec::new(),
        })
    }

    pub(super) fn push(&mut self, variant: Variant, buffers: Vec<usize>, groups: [u32; 3]) {
        let params = bytemuck::bytes_of(&self.params).to_vec();
        self.dispatches.push(Dispatch { variant, params, buffers, groups });
    }

    /// Whether q and k are to be made unit, and lie where kernels that do so themselves read them: four at a time, with
    /// nothing else made of them.
    pub(super) fn raw_keys(&self) -> bool {
        let call = self.call;
        let places = [call.q.stride, call.q.at, call.k.stride, call.k.at, call.key_dim];
        call.l2norm && call.rule.beta != Beta::Longhorn && places.iter().all(|x| x.is_multiple_of(4))
    }

    /// A dispatch for each `rows` rows of every sequence.
    pub(super) fn push_in_parts(&mut self, variant: &Variant, buffers: &[usize], groups: [u32; 3], rows: u32) {
        for from in (0..self.call.rows).step_by(rows.max(1) as usize) {
            (self.params.rows_from, self.params.rows_to) = (from, from.saturating_add(rows));
            self.push(variant.clone(), buffers.to_vec(), groups);
        }
    }

    /// Scratch `[rows, H, 2, K]`.
    pub(super) fn pairs_of_keys(&mut self, name: &'static str) -> usize {
        let call = self.call;
        let heads = u64::from(call.rows) * u64::from(call.heads);
        (self.scratch)(name, 2 * heads * u64::from(kernels::padded(call.key_dim)))
    }

    /// q and k as the other kernels want them: unit if asked for, K a multiple of 4; Longhorn's β.
    fn prepare(&mut self) {
        let call = self.call;
        let longhorn = call.rule.beta == Beta::Longhorn;
        let width = kernels::padded(call.key_dim);
        let places = [call.q.stride, call.q.at, call.k.stride, call.k.at];
        let scalar = !self.software && self.wide.is_none() && self.apart.is_none() && !self.coop;
        let in_place = scalar || places.iter().all(|x| x.is_multiple_of(4));
        if !call.l2norm && !longhorn && width == call.key_dim && in_place {
            return;
        }
        let qk = self.pairs_of_keys("qk");
        let mut buffers = vec![self.q, self.k, qk];
        let mut made = None;
        if let (true, Some(b)) = (longhorn, self.beta) {
            let beta = (self.scratch)("beta", u64::from(call.rows) * u64::from(call.value_heads));
            buffers.extend([b, beta]);
            made = Some(beta);
        }
        let groups = [call.heads.div_ceil(4), call.rows, 1];
        self.push(kernels::prepare(call.key_dim, call.l2norm, longhorn), buffers, groups);
        (self.q, self.k) = (qk, qk);
        let row = 2 * width * call.heads;
        let p = &mut self.params;
        (p.q_stride, p.q_at, p.q_head) = (row, 0, 2 * width);
        (p.k_stride, p.k_at, p.k_head) = (row, width, 2 * width);
        if let Some(beta) = made {
            self.beta = Some(beta);
            (p.b_stride, p.b_at) = (call.value_heads, 0);
        }
    }

    /// Groups of a kernel with a thread a channel of every key head.
    pub(super) fn channel_groups(&self, spans: u32) -> [u32; 3] {
        [(self.call.heads * kernels::padded(self.call.key_dim)).div_ceil(64), spans, 1]
    }

    fn step(&mut self, caps: &Caps) {
        let call = self.call;
        let mut buffers = vec![self.q, self.k, call.v.buffer];
        buffers.extend(self.beta);
        buffers.extend(call.g.map(|g| g.buffer));
        buffers.extend([call.state.buffer, call.out.buffer, call.sequences.buffer]);
        let groups = |columns: u32| [call.value_dim.div_ceil(columns), call.value_heads, call.sequences.len];
        if let Some(tile) = self.lanes(caps) {
            let variant = kernels::lanes(self.parts, call.key_dim, tile, self.normalise);
            self.push(variant, buffers, groups(tile.width()));
            return;
        }
        let (columns, split) = (32, 8);
        let variant = kernels::step(self.parts, call.key_dim, columns, split, self.normalise);
        self.push(variant, buffers, groups(columns));
    }

    /// How subgroups share a step, where they can.
    fn lanes(&self, caps: &Caps) -> Option<LanesTile> {
        let p = &self.params;
        let fours = [p.q_stride, p.q_at, p.q_head, p.k_stride, p.k_at, p.k_head, p.kt_at];
        // Channels' decays are loaded by fours, too.
        let decays = self.parts.decay != Decays::Channel || (p.g_stride.is_multiple_of(4) && p.g_at.is_multiple_of(4));
        if !self.fours || !decays || fours.iter().any(|x| x % 4 != 0) {
            return None;
        }
        let call = self.call;
        LanesTile::new(call.key_dim, call.value_dim, 16, call.value_heads * call.sequences.len, caps.subgroup_size)
    }

    /// Scratch of the chunk stages: a `pair` block a chunk and value head.
    pub(super) fn pairs(&mut self) -> usize {
        let call = self.call;
        let words = u64::from(kernels::pair_words(call.chunk, call.key_dim, self.parts.decay));
        let words = self.blocks() * words;
        (self.scratch)("pairs", words)
    }
    /// Keys and queries with their decays, `[chunks, HV, 3, C, K]`.
    pub(super) fn decayed_keys(&mut self) -> usize {
        let width = u64::from(kernels::padded(self.call.key_dim));
        let words = self.blocks() * 3 * u64::from(self.call.chunk) * width;
        (self.scratch)("decayed keys", words)
    }
    pub(super) fn blocks(&self) -> u64 {
        u64::from(self.call.chunks.len) * u64::from(self.call.value_heads)
    }

    /// A chunk's products with itself, and its decays. Returns the groups of kernels over chunks and value heads.
    pub(super) fn gram(&mut self, pairs: usize, decayed: Option<usize>, tiles: Option<usize>) -> [u32; 3] {
        let call = self.call;
        let mut buffers = vec![self.q, self.k];
        buffers.extend(self.beta);
        buffers.extend(call.g.map(|g| g.buffer));
        buffers.push(pairs);
        buffers.extend(decayed);
        buffers.extend(tiles);
        buffers.push(call.chunks.buffer);
        let over_chunks = [call.value_heads, call.chunks.len, 1];
        let target = match (tiles, self.apart) {
            (Some(_), _) => GramFor::Wide,
            (None, Some(_)) => GramFor::Apart,
            (None, None) => GramFor::Scan,
        };
        self.push(kernels::gram(self.parts, call.key_dim, call.chunk, target), buffers, over_chunks);
        over_chunks
    }
}
