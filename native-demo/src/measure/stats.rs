//! Measuring: warm up, repeat, take median and minimum.

use std::time::{Duration, Instant};

use anyhow::Result;
use deltanet::gpu::{Gpu, Program};
use serde::Serialize;

/// Median and minimum of several runs, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Times {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) runs: usize,
}

impl Times {
    /// Of seconds; `None` of nothing.
    pub(crate) fn of(mut seconds: Vec<f64>) -> Option<Self> {
        seconds.sort_by(f64::total_cmp);
        let n = seconds.len();
        let (low, high) = (seconds.get(n.saturating_sub(1) / 2)?, seconds.get(n / 2)?);
        Some(Self { median: (low + high) / 2.0, min: *seconds.first()?, runs: n })
    }

    /// The same for each of `n` equal parts.
    pub(crate) fn per(self, n: usize) -> Self {
        let n = n.max(1) as f64;
        Self { median: self.median / n, min: self.min / n, runs: self.runs }
    }
}

/// How often things are run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Timed runs.
    pub(crate) runs: usize,
    /// No further run begins after this long.
    pub(crate) limit: Duration,
    /// Unmeasured runs begin until this long: an idle GPU takes a quarter of a second to reach its clocks.
    pub(crate) warm: Duration,
}

impl Effort {
    /// Runs `work` unmeasured, once and then for as long as warming up takes, then up to `runs` times; each call returns
    /// the seconds that count.
    pub(crate) fn measure(&self, mut work: impl FnMut() -> Result<f64>) -> Result<Times> {
        // The first run compiles kernels meanwhile, as long as that takes: it warms nothing.
        work()?;
        let start = Instant::now();
        while start.elapsed() < self.warm {
            work()?;
        }
        let start = Instant::now();
        let mut seconds = vec![work()?];
        while seconds.len() < self.runs && start.elapsed() < self.limit {
            seconds.push(work()?);
        }
        Times::of(seconds).ok_or_else(|| anyhow::anyhow!("nothing was measured"))
    }

    /// GPU time of a program, from its first dispatch's beginning to its last one's end, where the device has timestamps.
    pub(crate) fn measure_gpu(&self, gpu: &Gpu, program: &Program) -> Result<Option<Times>> {
        if !gpu.caps().timestamps {
            return Ok(None);
        }
        self.measure(|| Ok(gpu.wait(program.time(gpu))?)).map(Some)
    }
}

/// Seconds that `work` takes.
pub(crate) fn seconds(work: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_secs_f64())
}

/// Largest difference to a reference, in units of the reference's largest value; infinite where something is not a
/// number.
pub(crate) fn error(got: &[f32], want: &[f32]) -> f64 {
    let scale = want.iter().fold(0f32, |m, x| m.max(x.abs()));
    if got.len() != want.len() || !scale.is_finite() {
        return f64::INFINITY;
    }
    let mut worst = 0f64;
    for (g, w) in got.iter().zip(want) {
        let d = f64::from(g - w).abs();
        if !d.is_finite() {
            return f64::INFINITY;
        }
        worst = worst.max(d);
    }
    worst / f64::from(scale).max(1e-30)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Times::of(vec![3.0, 1.0, 2.0]).unwrap().median, 2.0);
        let four = Times::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((four.median, four.min, four.runs), (2.5, 1.0, 4));
        assert!(Times::of(Vec::new()).is_none());
    }

    #[test]
    fn errors() {
        assert_eq!(error(&[1.0, 2.0], &[1.0, 4.0]), 0.5);
        assert!(error(&[f32::NAN], &[1.0]).is_infinite());
        assert!(error(&[1.0], &[1.0, 2.0]).is_infinite());
    }
}
