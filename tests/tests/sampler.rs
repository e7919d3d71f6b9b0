//! The sampler on the GPU: the same tokens as the CPU's from the same logits, and the right distribution.

use deltanet::gpu::{Dispatch, Gpu, Program};
use deltanet::sampler::{Sampling, sample};
use deltanet_shaders::head::{self, HeadLayout};
use deltanet_shaders::params::DrawParams;
use deltanet_shaders::sample::{draw as variant, draw_lanes};
use deltanet_tests::devices;
use deltanet_tests::random::Random;

/// Draws `steps` tokens a row, all from the row's same logits, at positions 0, 1, 2, … With `group` invocations, which
/// meet by subgroups where `subgroup` says how large those are.
fn draw(
    gpu: &Gpu,
    (group, subgroup): (u32, u32),
    vocab: usize,
    rows: &[(Vec<f32>, Sampling)],
    seen: &[u32],
    steps: u32,
) -> Vec<Vec<[u32; 4]>> {
    let layout = HeadLayout::new(vocab as u32);
    let mut heads = vec![0u32; rows.len() * layout.stride as usize];
    let mut controls = Vec::new();
    for (slot, (logits, sampling)) in rows.iter().enumerate() {
        let base = slot * layout.stride as usize;
        let at = base + layout.seen as usize;
        heads[at..at + seen.len()].copy_from_slice(seen);
        let at = base + layout.logits as usize;
        for (i, l) in logits.iter().enumerate() {
            heads[at + i] = l.to_bits();
        }
        controls.extend(sampling.controls(slot as u32, steps, &[]));
    }
    let params = DrawParams {
        vocab: vocab as u32,
        stride: layout.stride,
        seen: layout.seen,
        logits: layout.logits,
        max_steps: steps,
    };
    let buffers = [
        gpu.upload("controls", &controls).unwrap(),
        gpu.upload("heads", &heads).unwrap(),
        gpu.buffer("emits", rows.len() as u64 * u64::from(steps) * 16).unwrap(),
    ];
    let dispatch = Dispatch {
        variant: if subgroup > 0 { draw_lanes(vocab as u32, group, subgroup) } else { variant(group) },
        params: bytemuck::bytes_of(&params).to_vec(),
        buffers: vec![0, 1, 2],
        groups: [rows.len() as u32, 1, 1],
    };
    let program = Program::compile(gpu, &[dispatch], &buffers).unwrap();
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    for _ in 0..steps {
        program.encode(&mut encoder);
    }
    gpu.queue().submit([encoder.finish()]);
    let bytes = gpu.wait(gpu.read(&[(&buffers[2], 0, buffers[2].size())])).unwrap();
    let words: Vec<[u32; 4]> = bytemuck::pod_collect_to_vec(&bytes[0]);
    words.chunks(steps as usize).map(<[_]>::to_vec).collect()
}

#[test]
fn same_seed_same_tokens_on_cpu_and_gpu() {
    let vocab = 4096;
    let mut random = Random::new(1);
    let base = Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, repetition_penalty: 1.0, seed: 0 };
    let settings = [
        Sampling::GREEDY,
        base,
        Sampling { temperature: 0.7, top_p: 0.95, ..base },
        Sampling { temperature: 1.3, top_k: 40, ..base },
        Sampling { temperature: 0.9, top_k: 200, top_p: 0.8, min_p: 0.02, ..base },
        Sampling { min_p: 0.1, repetition_penalty: 1.3, ..base },
        Sampling { repetition_penalty: 1.8, ..Sampling::GREEDY },
        Sampling { temperature: 1e-39, ..base },
        Sampling { top_k: 1, temperature: 5.0, ..base },
        // Distances of less than 2^-11, and of more than 2^5.
        Sampling { temperature: 1e4, top_p: 0.5, ..base },
        Sampling { temperature: 0.01, top_k: 3000, top_p: 0.9999, ..base },
    ];
    let seen: Vec<u32> = (0..vocab / 32).map(|_| random.bits() as u32 & random.bits() as u32).collect();
    let rows: Vec<(Vec<f32>, Sampling)> = settings
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let mut logits: Vec<f32> = random.normals(vocab).iter().map(|l| 4.0 * l).collect();
            if i % 3 == 2 {
                // Many equals.
                logits.iter_mut().for_each(|l| *l = (2.0 * *l).round() / 2.0);
            }
            logits[17] = f32::NAN;
            logits[18] = f32::NEG_INFINITY;
            (logits, Sampling { seed: random.bits(), ..*s })
        })
        .collect();
    let steps = 60;
    let [one, other] = devices::both();
    let size = other.caps().subgroup_size;
    assert!(size.is_power_of_two(), "expected an adapter with subgroups of one size, got {size}");
    let wide = other.caps().max_invocations.min(512);
    for (gpu, group) in [(one, (32, 0)), (other, (256, 0)), (other, (64, size)), (other, (wide, size))] {
        for ((logits, sampling), emits) in rows.iter().zip(draw(gpu, group, vocab, &rows, &seen, steps)) {
            let mut seen = seen.clone();
            for (position, emit) in emits.iter().enumerate() {
                let want = sample(logits, sampling, position as u64, &seen);
                assert_eq!(emit[0], want.token, "{sampling:?} at {position}");
                let got = f32::from_bits(emit[1]);
                assert!((got - want.logprob).abs() < 2e-5 * want.logprob.abs().max(1.0), "{got} {}", want.logprob);
                assert_eq!((emit[2], emit[3]), (head::EMIT_FED, position as u32));
                seen[want.token as usize / 32] |= 1 << (want.token % 32);
            }
        }
    }
}

/// Upper bound that a chi-square of `freedom` degrees exceeds once in about 10^5 (Wilson–Hilferty, z = 4.27).
fn bound(freedom: f64) -> f64 {
    let a = 2.0 / (9.0 * freedom);
    freedom * (1.0 - a + 4.27 * a.sqrt()).powi(3)
}

/// Draws against the exact distribution of the kept tokens, in bins of about equal expectation.
fn chi_square(logits: &[f32], sampling: &Sampling, kept: impl Fn(usize) -> bool, tokens: &[u32]) {
    let inverse = f64::from(sampling.temperature).recip();
    let p: Vec<f64> =
        logits.iter().enumerate().map(|(i, l)| if kept(i) { (f64::from(*l) * inverse).exp() } else { 0.0 }).collect();
    let total: f64 = p.iter().sum();
    let mut counts = vec![0.0; logits.len()];
    for t in tokens {
        assert!(kept(*t as usize), "token {t} should have been filtered");
        counts[*t as usize] += 1.0;
    }
    let n = tokens.len() as f64;
    let (mut chi, mut bins, mut want, mut got) = (0.0, 0.0, 0.0, 0.0);
    for i in 0..logits.len() {
        want += n * p[i] / total;
        got += counts[i];
        if want >= 10.0 {
            chi += (got - want) * (got - want) / want;
            bins += 1.0;
            (want, got) = (0.0, 0.0);
        }
    }
    assert!(bins >= 15.0, "only {bins} bins");
    assert!(chi < bound(bins - 1.0), "chi-square {chi:.1} over {bins} bins, bound {:.1}", bound(bins - 1.0));
}

#[test]
fn chi_square_cpu() {
    let mut random = Random::new(2);
    for (vocab, draws) in [(4_096usize, 6_000u64), (248_320, 400)] {
        let logits: Vec<f32> = random.normals(vocab).iter().map(|l| 1.5 * l).collect();
        let plain = Sampling { temperature: 0.9, top_p: 1.0, min_p: 0.0, seed: 3, ..Sampling::default() };
        let tokens: Vec<u32> = (0..draws).map(|p| sample(&logits, &plain, p, &[]).token).collect();
        chi_square(&logits, &plain, |_| true, &tokens);
        let k = Sampling { top_k: 100, ..plain };
        let mut order: Vec<usize> = (0..vocab).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let keep: std::collections::HashSet<usize> = order[..100].iter().copied().collect();
        let tokens: Vec<u32> = (0..draws).map(|p| sample(&logits, &k, p, &[]).token).collect();
        chi_square(&logits, &k, |i| keep.contains(&i), &tokens);
    }
}

#[test]
fn chi_square_gpu() {
    let mut random = Random::new(4);
    let gpu = devices::best();
    for (vocab, rows, steps) in [(4_096usize, 16, 256u32), (248_320, 8, 48)] {
        let logits: Vec<f32> = random.normals(vocab).iter().map(|l| 1.5 * l).collect();
        let plain = Sampling { temperature: 0.9, top_p: 1.0, min_p: 0.0, ..Sampling::default() };
        let rows: Vec<_> = (0..rows).map(|r| (logits.clone(), Sampling { seed: r, ..plain })).collect();
        let tokens: Vec<u32> = draw(gpu, (256, 0), vocab, &rows, &[], steps).iter().flatten().map(|e| e[0]).collect();
        chi_square(&logits, &plain, |_| true, &tokens);
    }
}
