//! Sampling: from logits to a token, the same on every engine.
//!
//! The filters apply in this order: repetition penalty, temperature, top-k, top-p (of what top-k kept), min-p. Tokens
//! that tie at a threshold are all kept. The draw is an exponential race: each kept token `i` gets `e_i ~ Exp(1)` from
//! a counter generator keyed by (seed, position, i), and the token with the largest `logit_i/temperature − ln e_i`
//! wins. That is an exact sample of the softmax, needs no running sum whose order would matter, and so gives the same
//! token on CPU and GPU. `shaders/wgsl/sample/draw.wgsl` has the same steps.

use deltanet_shaders::head;

use crate::error::{Error, Result};

/// How a token is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// 0 is greedy: the largest logit, the lowest id among equals.
    pub temperature: f32,
    /// Keep the k largest logits; 0 keeps all.
    pub top_k: u32,
    /// Keep the smallest set of most likely tokens whose probability reaches p (1 keeps all).
    pub top_p: f32,
    /// Keep tokens at least this fraction as likely as the most likely one (0 keeps all).
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens seen before, prompt included (1 is off).
    pub repetition_penalty: f32,
    /// Seed of the counter generator.
    pub seed: u64,
}

/// What suits small models: cool, and without the words that only a random draw would find.
impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.6, top_k: 0, top_p: 1.0, min_p: 0.05, repetition_penalty: 1.0, seed: 0 }
    }
}

/// A drawn token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drawn {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability under the model itself: before penalty, temperature and filters.
    pub logprob: f32,
}

/// Key of the least likely token: an infinite distance below the most likely one.
const INFINITE: u32 = 0x7f80_0000;
/// Below every logit that matters; NaN and −∞ become this.
const NEVER: f32 = -3.0e38;

impl Sampling {
    /// Always the most likely token.
    pub const GREEDY: Self =
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 };

    /// Checks every field's domain.
    ///
    /// # Errors
    /// [`Error::Argument`] naming the field.
    pub fn check(&self) -> Result<()> {
        let Self { temperature, top_p, min_p, repetition_penalty, .. } = *self;
        if !(temperature >= 0.0 && temperature.is_finite()) {
            return Err(Error::argument("temperature", "a number, 0 or more", temperature));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return Err(Error::argument("top-p", "above 0, at most 1", top_p));
        }
        if !(0.0..=1.0).contains(&min_p) {
            return Err(Error::argument("min-p", "from 0 to 1", min_p));
        }
        if !(repetition_penalty > 0.0 && repetition_penalty.is_finite() && repetition_penalty.recip().is_finite()) {
            return Err(Error::argument("repetition-penalty", "a number above 0", repetition_penalty));
        }
        Ok(())
    }

    /// 1 / temperature, or 0 for greedy.
    fn inverse(&self) -> f32 {
        // A temperature so small that its reciprocal is infinite is greedy.
        let inverse = self.temperature.recip();
        if self.temperature > 0.0 && inverse.is_finite() { inverse } else { 0.0 }
    }

    /// Largest key that min-p keeps.
    fn min_p_key(&self) -> u32 {
        // abs: −ln 1 is −0.
        if self.min_p > 0.0 { self.min_p.ln().abs().to_bits() } else { INFINITE }
    }

    /// The controls of a decode row on the GPU, [`head::CONTROL_WORDS`] words.
    pub fn controls(&self, slot: u32, limit: u32, eos: &[u32]) -> [u32; head::CONTROL_WORDS as usize] {
        let mut c = [0; head::CONTROL_WORDS as usize];
        let mut set = |at: u32, value: u32| {
            if let Some(word) = c.get_mut(at as usize) {
                *word = value;
            }
        };
        set(head::CONTROL_SLOT, slot);
        set(head::CONTROL_LIMIT, limit);
        set(head::CONTROL_SEED_LO, self.seed as u32);
        set(head::CONTROL_SEED_HI, (self.seed >> 32) as u32);
        set(head::CONTROL_INV_TEMPERATURE, self.inverse().to_bits());
        set(head::CONTROL_TOP_K, self.top_k);
        set(head::CONTROL_TOP_P, self.top_p.to_bits());
        set(head::CONTROL_MIN_P, self.min_p_key());
        set(head::CONTROL_PENALTY, self.repetition_penalty.to_bits());
        set(head::CONTROL_INV_PENALTY, self.repetition_penalty.recip().to_bits());
        let eos = &eos[..eos.len().min(head::MAX_EOS as usize)];
        set(head::CONTROL_EOS_COUNT, eos.len() as u32);
        for (i, token) in eos.iter().enumerate() {
            set(head::CONTROL_EOS + i as u32, *token);
        }
        c
    }
}

/// Draws a token.
///
/// `logits` `[vocab]`, not empty; `position` is the number of tokens fed before; `seen` is a bit mask of them,
/// `[ceil(vocab / 32)]` (shorter is fine: the rest was not seen).
pub fn sample(logits: &[f32], sampling: &Sampling, position: u64, seen: &[u32]) -> Drawn {
    let raw = |i: usize| if logits[i] > NEVER { logits[i] } else { NEVER };
    let penalty = sampling.repetition_penalty;
    let inverse_penalty = penalty.recip();
    let penalised = |i: usize| {
        let l = raw(i);
        let was_seen = seen.get(i / 32).is_some_and(|w| (w >> (i % 32)) & 1 == 1);
        if was_seen && penalty != 1.0 { l * if l > 0.0 { inverse_penalty } else { penalty } } else { l }
    };
    let mut top = NEVER;
    let mut winner = 0;
    let mut raw_top = NEVER;
    for i in 0..logits.len() {
        let l = penalised(i);
        if l > top {
            top = l;
            winner = i;
        }
        raw_top = raw_top.max(raw(i));
    }
    let inverse = sampling.inverse();
    if inverse > 0.0 {
        // Distance below the largest logit in units of the temperature; its bits ascend as likelihood descends.
        let keys: Vec<u32> = (0..logits.len()).map(|i| ((penalised(i) - top) * inverse).abs().to_bits()).collect();
        let mut keep = sampling.min_p_key();
        let mut within = INFINITE;
        if sampling.top_k > 0 && (sampling.top_k as usize) < logits.len() {
            within = threshold(&keys, within, None, sampling.top_k);
            keep = keep.min(within);
        }
        if sampling.top_p < 1.0 {
            keep = keep.min(threshold(&keys, within, Some(sampling.top_p), 0));
        }
        let mut best = NEVER;
        for (i, k) in keys.iter().enumerate() {
            if *k <= keep {
                let bits = threefry([sampling.seed as u32, (sampling.seed >> 32) as u32], [i as u32, position as u32]);
                let score = -f32::from_bits(*k) - exponential(bits[0]).ln();
                if score > best {
                    best = score;
                    winner = i;
                }
            }
        }
    }
    Drawn { token: winner as u32, logprob: raw(winner) - log_sum_exp(logits, raw_top) }
}

/// `ln Σ exp(logits)`; `top` is their largest. Summed in f64: vocabularies are long.
fn log_sum_exp(logits: &[f32], top: f32) -> f32 {
    let sum: f64 = logits.iter().map(|l| f64::from((l - top).exp())).filter(|e| !e.is_nan()).sum();
    top + sum.ln() as f32
}

/// Natural logarithm of each `token`'s probability under the logits of its row: `[vocab]` logits, one token.
pub fn logprob(logits: &[f32], token: u32) -> f32 {
    let top = logits.iter().copied().filter(|l| !l.is_nan()).fold(NEVER, f32::max);
    logits.get(token as usize).map_or(f32::NEG_INFINITY, |l| l - log_sum_exp(logits, top))
}

/// The smallest key t such that keys ≤ t reach the goal: `count` tokens, or `top_p` of the weight of keys ≤ `within`.
/// The kernel finds it by four rounds over eight bits each; sorted order gives the same.
fn threshold(keys: &[u32], within: u32, top_p: Option<f32>, count: u32) -> u32 {
    let mut sorted: Vec<u32> = keys.iter().copied().filter(|k| *k <= within).collect();
    let Some(top_p) = top_p else {
        let at = (count as usize).clamp(1, sorted.len().max(1)) - 1;
        if at >= sorted.len() {
            return within;
        }
        return *sorted.select_nth_unstable(at).1;
    };
    sorted.sort_unstable();
    // Whole units of 2^-24, so that sums do not depend on their order.
    let weight = |k: u32| ((-f32::from_bits(k)).exp() * 16_777_216.0 + 0.5) as u64;
    let total: u64 = sorted.iter().map(|k| weight(*k)).sum();
    // As in the kernel: the product in f32, of units of 2^-12.
    let want = (total >> 12) as f32 * top_p;
    let goal = ((want as u64) << 12) + (want.fract() * 4096.0) as u64;
    let mut sum = 0;
    for k in &sorted {
        sum += weight(*k);
        if sum >= goal {
            return *k;
        }
    }
    within
}

/// Threefry-2x32 with 20 rounds: `wgsl/common/threefry.wgsl`.
pub fn threefry(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    let ks = [key[0], key[1], 0x1BD1_1BDA ^ key[0] ^ key[1]];
    let mut x = [counter[0].wrapping_add(ks[0]), counter[1].wrapping_add(ks[1])];
    for group in 0..5u32 {
        let rotations = if group % 2 == 0 { [13, 15, 26, 6] } else { [17, 29, 16, 24] };
        for r in rotations {
            x[0] = x[0].wrapping_add(x[1]);
            x[1] = x[1].rotate_left(r) ^ x[0];
        }
        let next = group + 1;
        x[0] = x[0].wrapping_add(ks[next as usize % 3]);
        x[1] = x[1].wrapping_add(ks[(next as usize + 1) % 3]).wrapping_add(next);
    }
    x
}

/// −ln of a uniform in (0, 1]; small values, which win races, keep full precision.
fn exponential(bits: u32) -> f32 {
    let v = (bits as f32 + 0.5) * 2.328_306_4e-10; // 2^-32
    if v < 0.0625 {
        v * (1.0 + v * (0.5 + v * (0.333_333_34 + v * (0.25 + v * (0.2 + v * (0.166_666_67 + v * 0.142_857_15))))))
    } else {
        -(1.0 - v).max(5.960_464_5e-8).ln() // 2^-24
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known answers of Threefry-2x32-20 from the Random123 distribution.
    #[test]
    fn threefry_matches_published_vectors() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]), [0xc492_3a9c, 0x483d_f7a0]);
    }

    #[test]
    fn greedy_takes_the_lowest_of_equals_and_ignores_nan() {
        let logits = [f32::NAN, 1.0, 3.0, 3.0, f32::NEG_INFINITY];
        let drawn = sample(&logits, &Sampling::GREEDY, 0, &[]);
        assert_eq!(drawn.token, 2);
    }

    #[test]
    fn filters_keep_what_they_should() {
        let logits = [3.0f32, 2.0, 1.0, 0.0, -1.0];
        let kept = |s: Sampling| {
            let mut hit = [false; 5];
            for position in 0..2000 {
                hit[sample(&logits, &s, position, &[]).token as usize] = true;
            }
            hit.iter().filter(|h| **h).count()
        };
        let all = Sampling { temperature: 1.0, top_p: 1.0, min_p: 0.0, ..Sampling::default() };
        assert_eq!(kept(all), 5);
        assert_eq!(kept(Sampling { top_k: 2, ..all }), 2);
        // Probabilities 0.636, 0.234, 0.086, 0.032, 0.012.
        assert_eq!(kept(Sampling { top_p: 0.6, ..all }), 1);
        assert_eq!(kept(Sampling { top_p: 0.9, ..all }), 3);
        assert_eq!(kept(Sampling { min_p: 0.2, ..all }), 2);
        // Of what top-k keeps, 0.731 and 0.269.
        assert_eq!(kept(Sampling { top_k: 2, top_p: 0.7, ..all }), 1);
    }

    #[test]
    fn penalty_moves_seen_tokens_towards_unlikely() {
        let logits = [2.0f32, 1.9, -1.0];
        let s = Sampling { repetition_penalty: 1.5, ..Sampling::GREEDY };
        assert_eq!(sample(&logits, &s, 0, &[0b001]).token, 1);
        assert_eq!(sample(&logits, &s, 0, &[0b011]).token, 0);
    }

    #[test]
    fn logprob_is_of_the_model_itself() {
        let logits = [1.0f32, 2.0, 3.0];
        let want = 3.0f32 - (1f32.exp() + 2f32.exp() + 3f32.exp()).ln();
        let s = Sampling { temperature: 0.1, repetition_penalty: 2.0, ..Sampling::GREEDY };
        assert!((sample(&logits, &s, 0, &[0b100]).logprob - (want - 1.0)).abs() < 2e-6);
        assert!((logprob(&logits, 2) - want).abs() < 1e-6);
    }
}
