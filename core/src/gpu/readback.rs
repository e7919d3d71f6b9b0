//! Drawn tokens on their way back: staging buffers that are used again and again.

use std::sync::{Arc, Mutex, PoisonError};

use deltanet_shaders::head::EMIT_END;
use futures_channel::oneshot;

use super::device::Gpu;
use super::runner::MAX_STEPS;
use crate::engine::Emit;
use crate::error::{Error, Result};

/// Free staging buffers.
#[derive(Clone, Debug, Default)]
pub(super) struct Staging {
    free: Arc<Mutex<Vec<wgpu::Buffer>>>,
}

/// A decode that was submitted. Its tokens are read by `Runner::read`, in any order, or not at all.
#[derive(Debug)]
pub struct Ticket {
    staging: wgpu::Buffer,
    submission: wgpu::SubmissionIndex,
    size: u64,
    /// Most tokens of each row.
    limits: Vec<u32>,
    mapped: oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>,
}

impl Ticket {
    /// `staging` is filled by the submission.
    pub(super) fn new(staging: wgpu::Buffer, submission: wgpu::SubmissionIndex, size: u64, limits: Vec<u32>) -> Self {
        let (send, mapped) = oneshot::channel();
        staging.slice(..size).map_async(wgpu::MapMode::Read, move |r| {
            let _ = send.send(r);
        });
        Self { staging, submission, size, limits, mapped }
    }
}

impl Staging {
    /// A buffer of `size` bytes to copy into and map. All buffers of a pool have one size.
    pub(super) fn take(&self, gpu: &Gpu, size: u64) -> wgpu::Buffer {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| {
            gpu.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some("drawn tokens"),
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }

    /// The tokens of each row.
    pub(super) fn read(&self, gpu: &Gpu, ticket: Ticket) -> impl Future<Output = Result<Vec<Vec<Emit>>>> + use<> {
        let (gpu, free) = (gpu.clone(), self.free.clone());
        async move {
            gpu.expect(ticket.submission);
            let mapped = ticket.mapped.await;
            gpu.check()?;
            match mapped {
                Ok(Ok(())) => {}
                Ok(Err(e)) => return Err(Error::Gpu(format!("reading back: {e}"))),
                Err(_) => return Err(Error::DeviceLost("it stopped answering".into())),
            }
            let view = ticket
                .staging
                .slice(..ticket.size)
                .get_mapped_range()
                .map_err(|e| Error::Gpu(format!("reading back: {e}")))?;
            let words: Vec<[u32; 4]> = bytemuck::pod_collect_to_vec(&view);
            drop(view);
            ticket.staging.unmap();
            free.lock().unwrap_or_else(PoisonError::into_inner).push(ticket.staging);
            Ok(words.chunks(MAX_STEPS).zip(&ticket.limits).map(|(row, limit)| emits(row, *limit)).collect())
        }
    }
}

/// A row's tokens: up to its limit, or to the end of the text.
fn emits(row: &[[u32; 4]], limit: u32) -> Vec<Emit> {
    let mut out = Vec::with_capacity(limit as usize);
    for [token, logprob, flags, _] in row.iter().take(limit as usize) {
        let end = flags & EMIT_END != 0;
        out.push(Emit { token: *token, logprob: f32::from_bits(*logprob), end });
        if end {
            break;
        }
    }
    out
}
