//! `deltanet bench --suite`: fixed lists of measurements, each held against a bar, a function a group of rows.

use anyhow::Result;
use deltanet::delta::Shape;
use deltanet::gpu::Gpu;
use deltanet::{Device, Error, Rule};

use super::matmul::{self, Product};
use super::operator::{Case, Form, measure};
use super::report::{Bar, Report};
use super::synthetic::{self, Work};
use super::{copy, model, operator_gpu};
use crate::args::BenchArgs;
use crate::interrupt::Interrupt;
use crate::measure::Effort;

/// How large everything is.
struct Sizes {
    /// Whether the bars are for these sizes.
    bars: bool,
    /// Of the operator: heads, and channels of a query, key or value.
    heads: usize,
    dim: usize,
    /// Tokens of one sequence; of the middle one, all rules are measured.
    tokens: [usize; 3],
    /// Sequences of a decode step.
    batches: [usize; 2],
    /// Rows, columns and inner dimension of products of matrices.
    gemm: [usize; 2],
    /// Rows and columns of the matrix that one row is multiplied with.
    gemv: usize,
    /// Tokens that the demo model decodes.
    demo: u32,
    models: [Work; 2],
}

const LARGE: Sizes = Sizes {
    bars: true,
    heads: 16,
    dim: 128,
    tokens: [2_048, 8_192, 32_768],
    batches: [1, 64],
    gemm: [4_096, 8_192],
    gemv: 8_192,
    demo: 128,
    models: [synthetic::SMALL, synthetic::LARGE],
};

/// For `--quick`.
const QUICK: Sizes = Sizes {
    bars: false,
    heads: 2,
    dim: 32,
    tokens: [64, 130, 200],
    batches: [1, 3],
    gemm: [128, 192],
    gemv: 256,
    demo: 8,
    models: [
        Work {
            hidden: 128,
            head_dim: 64,
            layers: 2,
            vocab: 500,
            prefill: 80,
            decode: 8,
            together: Some(3),
            ..synthetic::SMALL
        },
        Work { hidden: 256, head_dim: 128, layers: 1, vocab: 500, prefill: 70, decode: 8, ..synthetic::LARGE },
    ],
};

/// What a suite runs with.
struct Suite<'a> {
    args: &'a BenchArgs,
    device: &'a Device,
    gpu: &'a Gpu,
    effort: Effort,
    interrupt: &'a Interrupt,
    report: &'a mut Report,
    sizes: &'static Sizes,
}

/// A group of rows.
type Part = fn(&mut Suite<'_>) -> Result<()>;

/// The rows for one H200 (or another large GPU).
pub(crate) fn h200(
    args: &BenchArgs,
    device: &Device,
    effort: Effort,
    interrupt: &Interrupt,
    report: &mut Report,
) -> Result<()> {
    let Device::Gpu(gpu) = device else {
        report.skip("suite h200: it measures a GPU".into());
        return report.close();
    };
    let sizes = if args.quick { &QUICK } else { &LARGE };
    let mut suite = Suite { args, device, gpu, effort, interrupt, report, sizes };
    let parts: [(&str, Part); 10] = [
        ("copy", |s| s.copy()),
        ("operator, prefill", |s| s.prefill_operator()),
        ("operator, prefill, f16", |s| s.half_operator()),
        ("operator, decode step, one sequence", |s| s.step_operator(0)),
        ("operator, decode step, many sequences", |s| s.step_operator(1)),
        ("product of matrices", |s| s.matrix_products()),
        ("product with one row", |s| s.vector_product()),
        ("demo model", |s| s.demo()),
        ("first synthetic model", |s| s.synthetic(0)),
        ("second synthetic model", |s| s.synthetic(1)),
    ];
    for (what, part) in parts {
        if suite.interrupt.pressed() {
            return Ok(());
        }
        match part(&mut suite) {
            Err(e) if too_small(&e) => suite.report.skip(format!("{what}: {e}")),
            other => other?,
        }
    }
    suite.report.note(&suite.ceilings())?;
    suite.report.close()
}

/// What a device cannot do, as opposed to what it does wrong.
fn too_small(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<Error>(), Some(Error::OutOfMemory(_) | Error::Limit { .. } | Error::Unsupported(_)))
}

impl Suite<'_> {
    fn shape(&self, batch: usize, tokens: usize) -> Shape {
        let (heads, dim) = (self.sizes.heads, self.sizes.dim);
        Shape { batch, tokens, heads, value_heads: heads, key_dim: dim, value_dim: dim }
    }

    /// The bar, if it is for these sizes.
    fn bar(&self, bar: Bar) -> Option<Bar> {
        self.sizes.bars.then_some(bar)
    }

    /// The best rate of a group's rows, 0 if there are none.
    fn best(&self, group: &str, unit: &str) -> f64 {
        let rows = self.report.rows.iter().filter(|r| r.group == group && r.unit == unit);
        rows.map(|r| r.rate).fold(0.0, f64::max)
    }

    /// Copy bandwidth of this run in GB/s.
    fn copied(&self) -> f64 {
        self.best("copy", "GB/s")
    }

    fn ceilings(&self) -> String {
        let products = self.best("matmul", "GFLOP/s") / 1e3;
        let products = if self.gpu.caps().coop16 { format!("{products:.0} TFLOP/s") } else { "none".into() };
        format!(
            "\nceilings of this run: copy {:.0} GB/s; f16 products on cooperative matrices {products}",
            self.copied()
        )
    }

    fn copy(&mut self) -> Result<()> {
        self.report.head("copy bandwidth (read + write)")?;
        copy::gpu(self.gpu, self.effort, self.report)
    }

    /// Chunkwise calls: by length, then every rule at one length.
    fn prefill_operator(&mut self) -> Result<()> {
        self.report.head("operator, prefill (f32)")?;
        let [short, middle, long] = self.sizes.tokens;
        let mut cases = vec![
            (Rule::GATED_DELTANET, short, None),
            (Rule::GATED_DELTANET, middle, self.bar(Bar::Seconds(1.1e-3))),
            (Rule::GATED_DELTANET, long, None),
        ];
        let others = Rule::NAMED.iter().map(|(_, rule)| *rule).filter(|rule| *rule != Rule::GATED_DELTANET);
        cases.extend(others.map(|rule| (rule, middle, None)));
        // What a rule may cost is said in units of the scalar-gated rule's time.
        let mut scalar_gated = None;
        for (rule, tokens, mut bar) in cases {
            if self.interrupt.pressed() {
                return Ok(());
            }
            if let Some(base) = scalar_gated {
                bar = match rule {
                    Rule::KDA => self.bar(Bar::Seconds(2.5 * base)),
                    Rule::PRECONDITIONED_GATED_DELTANET => self.bar(Bar::Seconds(1.4 * base)),
                    _ => bar,
                };
            }
            let case = Case { rule, form: Form::Chunk, shape: self.shape(1, tokens), half: false };
            let row = measure(self.device, &case, self.effort)?;
            if (rule, tokens) == (Rule::GATED_DELTANET, middle) {
                scalar_gated = Some(row.gpu.unwrap_or(row.wall).median);
            }
            self.report.add(row.against(bar))?;
        }
        Ok(())
    }

    /// Chunkwise calls with products of f16 on cooperative matrices.
    fn half_operator(&mut self) -> Result<()> {
        let matrices = self.gpu.caps().coop16;
        let kind = if matrices { "f16 products, f32 sums" } else { "f16 products allowed, f32 without such matrices" };
        self.report.head(&format!("operator, prefill ({kind})"))?;
        if self.sizes.bars && !matrices {
            self.report.skip("operator, prefill, f16: the device has no cooperative matrices".into());
            return Ok(());
        }
        let [short, middle, long] = self.sizes.tokens;
        let mut cases = vec![
            (Rule::GATED_DELTANET, short, Some(0.12e-3)),
            (Rule::GATED_DELTANET, middle, Some(0.38e-3)),
            (Rule::GATED_DELTANET, long, Some(1.4e-3)),
        ];
        let others = Rule::NAMED.iter().map(|(_, rule)| *rule).filter(|rule| *rule != Rule::GATED_DELTANET);
        cases.extend(others.map(|rule| match rule {
            Rule::KDA => (rule, middle, Some(0.9e-3)),
            Rule::PRECONDITIONED_GATED_DELTANET => (rule, middle, Some(0.5e-3)),
            _ => (rule, middle, None),
        }));
        for (rule, tokens, seconds) in cases {
            if self.interrupt.pressed() {
                return Ok(());
            }
            let case = Case { rule, form: Form::Chunk, shape: self.shape(1, tokens), half: true };
            let row = measure(self.device, &case, self.effort)?;
            let bar = seconds.and_then(|s| self.bar(Bar::Seconds(s)));
            self.report.add(row.against(bar))?;
        }
        Ok(())
    }

    /// One token of one sequence, whose time counts, or of many, whose states' bytes count.
    fn step_operator(&mut self, which: usize) -> Result<()> {
        let batch = self.sizes.batches[which.min(1)];
        if which == 0 {
            self.report.head("operator, decode step (f32)")?;
        }
        let case = Case { rule: Rule::GATED_DELTANET, form: Form::Step, shape: self.shape(batch, 1), half: false };
        let mut row = measure(self.device, &case, self.effort)?;
        let mut bar = Bar::Seconds(8e-6);
        if which > 0 {
            // The states are read and written once.
            let bytes = operator_gpu::step_bytes(&case.shape);
            (row.rate, row.unit) = (bytes / 1e9 / row.gpu.unwrap_or(row.wall).median.max(1e-12), "GB/s");
            bar = Bar::Rate(0.7 * self.copied());
        }
        let bar = self.bar(bar);
        self.report.add(row.against(bar))
    }

    /// f16 weights times f16 activations on cooperative matrices.
    fn matrix_products(&mut self) -> Result<()> {
        self.report.head("matrix product (f16)")?;
        for (n, bar) in self.sizes.gemm.into_iter().zip([170e3, 230e3]) {
            if self.interrupt.pressed() {
                return Ok(());
            }
            if self.sizes.bars && !self.gpu.caps().coop16 {
                self.report.skip(format!("{n} × {n} × {n}, f16: the device has no cooperative matrices"));
                continue;
            }
            let row = matmul::measure(self.gpu, &Product::f16(n, n), self.effort)?;
            let bar = self.bar(Bar::Rate(bar));
            self.report.add(row.against(bar))?;
        }
        Ok(())
    }

    /// One row times an f16 weight that no cache holds.
    fn vector_product(&mut self) -> Result<()> {
        self.report.head("product with one row (f16), cold cache")?;
        let row = matmul::measure(self.gpu, &Product::cold(self.sizes.gemv), self.effort)?;
        let bar = self.bar(Bar::Rate(0.75 * self.copied()));
        self.report.add(row.against(bar))
    }

    fn demo(&mut self) -> Result<()> {
        let bars = self.sizes.bars.then_some((6_000.0, 90.0));
        model::demo(self.args, self.device, self.sizes.demo, bars, self.effort, self.interrupt, self.report)
    }

    fn synthetic(&mut self, which: usize) -> Result<()> {
        let mut work = self.sizes.models[which.min(1)];
        if !self.sizes.bars {
            work = work.without_bars();
        }
        synthetic::run(&work, self.device, self.effort, self.interrupt, self.report)
    }
}
