//! One pass over all weights: is every element a number, and what is their digest?
//!
//! Both come from the same read, eight bytes at a time, so that a mapped file is paged in once. The digest identifies
//! weights; it does not defend against somebody who forges them.

use super::TensorView;
use crate::cpu::parallel::map;
use crate::error::{Error, Result};
use crate::model::DType;

/// Bytes a worker takes at a time; a multiple of 32.
const BLOCK: usize = 1 << 20;
/// Bytes between two reports of progress.
const REPORT: usize = 64 << 20;

/// A running 128-bit digest.
#[derive(Clone, Copy)]
pub(crate) struct Digest([u64; 4]);

/// Odd constants of the digest's four lanes.
const PRIMES: [u64; 4] = [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63];

impl Digest {
    pub(crate) const fn new() -> Self {
        Self(PRIMES)
    }

    #[inline(always)]
    fn step(&mut self, lane: usize, word: u64) {
        self.0[lane] = (self.0[lane] ^ word).wrapping_mul(PRIMES[lane]).rotate_left(29);
    }

    /// Adds bytes, and their number, so that `ab`, `c` and `a`, `bc` differ.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let mut chunks = bytes.chunks_exact(32);
        for chunk in &mut chunks {
            for lane in 0..4 {
                self.step(lane, word(&chunk[lane * 8..]));
            }
        }
        for (lane, rest) in chunks.remainder().chunks(8).enumerate() {
            self.step(lane, word(rest));
        }
        self.step(3, bytes.len() as u64);
    }

    pub(crate) fn finish(self) -> [u8; 16] {
        let mix = |mut x: u64| {
            x = (x ^ (x >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
            x = (x ^ (x >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
            x ^ (x >> 33)
        };
        let [a, b, c, d] = self.0;
        let low = mix(a ^ mix(b.wrapping_add(mix(c ^ mix(d)))));
        let high = mix(d ^ mix(c.wrapping_add(mix(b ^ mix(a ^ low)))));
        let mut out = [0; 16];
        out[..8].copy_from_slice(&low.to_le_bytes());
        out[8..].copy_from_slice(&high.to_le_bytes());
        out
    }
}

/// Up to eight bytes as a word, short ones padded with zeros.
#[inline(always)]
fn word(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(b) => u64::from_le_bytes(*b),
        None => bytes.iter().rev().fold(0, |w, b| w << 8 | u64::from(*b)),
    }
}

/// Exponent bits of every element in a word, and the lowest of them. An element is infinite or not a number when all
/// its exponent bits are set; adding the lowest one then carries into its sign bit, and never further.
fn exponents(dtype: DType) -> (u64, u64) {
    match dtype {
        DType::F32 => (0x7f80_0000_7f80_0000, 0x0080_0000_0080_0000),
        DType::F16 => (0x7c00_7c00_7c00_7c00, 0x0400_0400_0400_0400),
        DType::Bf16 => (0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080),
    }
}

/// Digest of one block, and whether it holds an infinity or NaN.
fn block(bytes: &[u8], dtype: DType) -> ([u8; 16], bool) {
    let (mask, lowest) = exponents(dtype);
    let (mut digest, mut bad) = (Digest::new(), 0u64);
    let signs = (mask + lowest) & !mask;
    let mut chunks = bytes.chunks_exact(32);
    for chunk in &mut chunks {
        for lane in 0..4 {
            let w = word(&chunk[lane * 8..]);
            bad |= (w & mask) + lowest;
            digest.step(lane, w);
        }
    }
    for (lane, rest) in chunks.remainder().chunks(8).enumerate() {
        let w = word(rest);
        bad |= (w & mask) + lowest;
        digest.step(lane, w);
    }
    (digest.finish(), bad & signs != 0)
}

/// Index and value of the first element that is not finite, for the message.
fn first_bad(tensor: &TensorView) -> Option<(usize, f32)> {
    tensor.to_f32().into_iter().enumerate().find(|(_, x)| !x.is_finite())
}

/// Scans tensors and adds their names, types, shapes and elements to `digest`, whatever files they lie in.
///
/// `progress` gets bytes done and bytes in all.
///
/// # Errors
/// [`Error::Tensor`] naming the first tensor with an infinity or NaN, and where in it.
pub(crate) fn scan<'a>(
    tensors: impl ExactSizeIterator<Item = &'a TensorView>,
    digest: &mut Digest,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    let tensors: Vec<_> = tensors.collect();
    let total = tensors.iter().map(|t| t.range.len() as u64).sum();
    let mut done = 0;
    progress(0, total);
    let mut rest = tensors.as_slice();
    while !rest.is_empty() {
        // As many tensors as make one report, at least one.
        let fits = |bytes: &mut usize, t: &&TensorView| {
            let before = *bytes;
            *bytes += t.range.len();
            Some(before < REPORT)
        };
        let n = rest.iter().scan(0, fits).take_while(|fits| *fits).count();
        let (batch, after) = rest.split_at(n);
        rest = after;
        let blocks: Vec<_> = batch.iter().flat_map(|t| t.data().chunks(BLOCK).map(|b| (b, t.dtype))).collect();
        let mut results = map(&blocks, |(bytes, dtype)| block(bytes, *dtype)).into_iter();
        for tensor in batch {
            digest.add(format!("{} {:?} {:?}", tensor.name, tensor.dtype, tensor.shape).as_bytes());
            for (part, bad) in results.by_ref().take(tensor.range.len().div_ceil(BLOCK)) {
                if bad && let Some((index, value)) = first_bad(tensor) {
                    return Err(Error::tensor(&tensor.name, "finite numbers", format!("{value} at element {index}")));
                }
                digest.add(&part);
            }
            done += tensor.range.len() as u64;
        }
        progress(done, total);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_non_number_is_found_at_every_place() {
        for dtype in [DType::F32, DType::F16, DType::Bf16] {
            let size = dtype.bytes();
            for n in [1usize, 2, 5, 16, 33] {
                let finite = match dtype {
                    DType::F32 => f32::MAX.to_bits(),
                    DType::F16 => u32::from(half::f16::MIN.to_bits()),
                    DType::Bf16 => u32::from(half::bf16::MIN.to_bits()),
                };
                let bytes = |x: u32| x.to_le_bytes()[..size].to_vec();
                let data: Vec<u8> = (0..n).flat_map(|_| bytes(finite)).collect();
                assert!(!block(&data, dtype).1, "{dtype:?} {n}");
                let bad = match dtype {
                    DType::F32 => [f32::INFINITY.to_bits(), 0xff80_0000, 0x7f80_0001, 0xffc0_0000],
                    DType::F16 => [0x7c00, 0xfc00, 0x7c01, 0xfe00],
                    DType::Bf16 => [0x7f80, 0xff80, 0x7f81, 0xffc0],
                };
                for at in 0..n {
                    for x in bad {
                        let mut data = data.clone();
                        data[at * size..(at + 1) * size].copy_from_slice(&bytes(x));
                        assert!(block(&data, dtype).1, "{dtype:?} {x:x} at {at} of {n}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_byte_counts() {
        let data: Vec<u8> = (0..100).collect();
        let digest = |data: &[u8]| block(data, DType::F32).0;
        for i in 0..100 {
            let mut other = data.clone();
            other[i] ^= 1;
            assert_ne!(digest(&data), digest(&other), "byte {i}");
        }
    }
}
