//! The products' half of `deltanet check --all-variants`: those of a decode, of one row and of many, whose sums must be
//! the same bits unless they may round.

use anyhow::Result;
use deltanet::gpu::{Gpu, Stage, Trace};
use deltanet::model::{DType, Weight};
use deltanet::ops::{BufId, Cols, Input, Linear, Op, WeightId};
use deltanet::plan::{BufSpec, Life, Plan, PlanKind};

use crate::check_variants::TOLERANCE;
use crate::measure::{Random, error, random_matrix};

/// Largest difference, relative to the largest result, where inputs and weights are rounded to f16.
const HALF_TOLERANCE: f64 = 2e-3;

/// Rows of the plans: few, many in whole tiles, and in others.
const ROWS: [usize; 4] = [16, 23, 40, 64];

/// Rows that run alone, too.
const ALONE: usize = 6;

/// in_dim and outputs of a SwiGLU: of tiles of every kind, whole and ragged.
const SIZES: [(usize, usize); 4] = [(1024, 512), (1000, 70), (200, 1030), (2816, 24)];

/// Inside the norm's root.
const EPS: f32 = 1e-6;

const X: BufId = BufId(0);
const GATED: BufId = BufId(1);
const OUT: BufId = BufId(2);

/// `done` gets each variant's name, largest difference and tolerance; it returns whether to go on.
pub(crate) fn run(gpu: &Gpu, done: &mut dyn FnMut(String, f64, f64) -> Result<bool>) -> Result<()> {
    for (in_dim, middle) in SIZES {
        for dtype in [DType::Bf16, DType::F16, DType::F32] {
            let case = Case::new(in_dim, middle, dtype);
            let mut stage = case.stage(gpu, false)?;
            // A row alone is the reference of what it must be in company.
            let mut alone = Vec::new();
            for row in 0..ALONE {
                alone.extend(case.run(gpu, &mut stage, row..row + 1)?);
            }
            let name = format!("{in_dim}→2·{middle}→{in_dim}, {}", dtype.name());
            if !done(
                format!("product {name}, 1 row"),
                error(&alone, case.want.get(..alone.len()).unwrap_or_default()),
                TOLERANCE,
            )? {
                return Ok(());
            }
            for rows in ROWS {
                let got = case.run(gpu, &mut stage, 0..rows)?;
                let other = got.iter().zip(&alone).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                let what = format!("product {name}, {rows} rows: results of other bits");
                if !done(what, other as f64, 0.0)? {
                    return Ok(());
                }
            }
            if gpu.caps().coop16 && dtype != DType::F32 {
                let mut stage = case.stage(gpu, true)?;
                for rows in ROWS {
                    let want = case.want.get(..rows * in_dim).unwrap_or_default();
                    let off = error(&case.run(gpu, &mut stage, 0..rows)?, want);
                    if !done(format!("product {name}, {rows} rows, half products"), off, HALF_TOLERANCE)? {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

/// x plus the product of its SwiGLU, as in a model.
struct Case {
    in_dim: usize,
    middle: usize,
    x: Vec<f32>,
    weights: Vec<Weight>,
    /// Of the most rows, from sums in f64.
    want: Vec<f32>,
}

impl Case {
    fn new(in_dim: usize, middle: usize, dtype: DType) -> Self {
        let mut random = Random::new(in_dim as u64);
        let most = ROWS.iter().copied().max().unwrap_or(1);
        let x = random.ranges(most * in_dim, -1.0, 1.0);
        // Such values keep results as large as inputs.
        let limit = |cols: usize| (3.0 / cols as f32).sqrt();
        let (up, up_values) = random_matrix(&mut random, (2 * middle, in_dim), limit(in_dim), dtype);
        let (down, down_values) = random_matrix(&mut random, (in_dim, middle), limit(middle), dtype);
        let dot = |a: &[f64], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * f64::from(*b)).sum::<f64>();
        let mut want = Vec::with_capacity(x.len());
        for row in x.chunks(in_dim) {
            let square = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
            let scale = (square / in_dim as f64 + f64::from(EPS)).sqrt().recip();
            let normed: Vec<f64> = row.iter().map(|v| f64::from(*v) * scale).collect();
            let wide: Vec<f64> = up_values.chunks(in_dim).map(|w| dot(&normed, w)).collect();
            let (gate, up) = wide.split_at(middle);
            let gated: Vec<f64> = gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            want.extend(
                row.iter().zip(down_values.chunks(middle)).map(|(x, w)| (f64::from(*x) + dot(&gated, w)) as f32),
            );
        }
        let weights = vec![up, Weight::Vector(vec![1.0; in_dim]), down];
        Self { in_dim, middle, x, weights, want }
    }

    fn stage(&self, gpu: &Gpu, half: bool) -> Result<Stage> {
        let mut stage = Stage::new(gpu.clone(), 1, &self.weights, &[], 1, &mut |_, _| {})?;
        stage.half_products(half);
        Ok(stage)
    }

    /// The results of some rows.
    fn run(&self, gpu: &Gpu, stage: &mut Stage, rows: std::ops::Range<usize>) -> Result<Vec<f32>> {
        let count = rows.len();
        let x = self.x.get(rows.start * self.in_dim..rows.end * self.in_dim).unwrap_or_default();
        let given = [(X, x), (OUT, x)];
        let tokens = vec![0; count];
        let trace = Trace { slots: &[0], tokens: &tokens, given: &given, wanted: &[OUT] };
        Ok(gpu.wait(stage.trace(&self.plan(count), &trace))?.pop().unwrap_or_default())
    }

    fn plan(&self, rows: usize) -> Plan {
        let buffer = |name, width| BufSpec { name, width, rows, life: Life::Saved };
        let cols = |buf, width| Cols { buf, width, at: 0 };
        let linear = |input, weight, in_dim, out_dim, out, add| {
            let weight = WeightId(weight);
            Op::Linear(Linear { input, weight, bias: None, in_dim, out_dim, out, add, last_only: false })
        };
        let normed = Input::RmsNorm { x: cols(X, self.in_dim), weight: WeightId(1), eps: EPS };
        let gated = Input::SwiGlu(cols(GATED, 2 * self.middle));
        Plan {
            kind: PlanKind::Decode,
            rows,
            ops: vec![
                linear(normed, 0, self.in_dim, 2 * self.middle, GATED, false),
                linear(gated, 2, self.middle, self.in_dim, OUT, true),
            ],
            labels: Vec::new(),
            buffers: vec![
                buffer("x", self.in_dim),
                buffer("gated", 2 * self.middle),
                buffer("out", self.in_dim),
                buffer("logits", 0),
            ],
            logits: BufId(3),
        }
    }
}
