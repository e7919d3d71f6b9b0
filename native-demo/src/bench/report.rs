//! What a benchmark prints: a table as it goes, or JSON at the end.

use std::io::Write;
use std::time::Duration;

use anyhow::Result;
use serde::Serialize;

use crate::measure::Times;
use crate::output::{say, time};

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// `copy`, `matmul`, `operator`, `attention`, `model` or `million`.
    pub(crate) group: &'static str,
    /// What was run, with its sizes.
    pub(crate) name: String,
    /// Seconds on the wall clock, submission and waiting included.
    pub(crate) wall: Times,
    /// Seconds between GPU timestamps, where the device has them.
    pub(crate) gpu: Option<Times>,
    /// Work a second: of GPU time where there is one, else of wall time.
    pub(crate) rate: f64,
    /// Unit of the rate.
    pub(crate) unit: &'static str,
    /// Largest difference to the reference, relative to the reference's largest value.
    pub(crate) error: f64,
    /// What was hoped for.
    pub(crate) bar: Option<Bar>,
}

/// What a measurement is held against.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Bar {
    /// Seconds at most: of GPU time where there is one, else of wall time.
    Seconds(f64),
    /// At least this rate, in the row's unit.
    Rate(f64),
}

impl Row {
    /// A row whose rate is `work` divided by the median time.
    pub(crate) fn new(
        group: &'static str,
        name: String,
        times: (Times, Option<Times>),
        work: (f64, &'static str),
        error: f64,
    ) -> Self {
        let (wall, gpu) = times;
        let rate = work.0 / gpu.unwrap_or(wall).median.max(1e-12);
        Self { group, name, wall, gpu, rate, unit: work.1, error, bar: None }
    }

    /// Holds the row against a bar.
    pub(crate) fn against(mut self, bar: Bar) -> Self {
        self.bar = Some(bar);
        self
    }

    /// How many times what was hoped for: 1 or less is met.
    fn times_the_bar(&self) -> Option<f64> {
        Some(match self.bar? {
            Bar::Seconds(most) => self.gpu.unwrap_or(self.wall).median / most,
            Bar::Rate(least) => least / self.rate.max(1e-12),
        })
    }
}

/// Everything of one call of `deltanet bench`.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) version: &'static str,
    pub(crate) device: String,
    pub(crate) rows: Vec<Row>,
    /// What was not measured, and why.
    pub(crate) skipped: Vec<String>,
    #[serde(skip)]
    table: bool,
}

impl Report {
    pub(crate) fn new(device: String, table: bool) -> Self {
        Self { version: env!("CARGO_PKG_VERSION"), device, rows: Vec::new(), skipped: Vec::new(), table }
    }

    /// The head of a part of the table.
    pub(crate) fn head(&self, title: &str) -> Result<()> {
        if self.table {
            say(format_args!(
                "\n{title:<58} {:>10} {:>10} {:>10} {:>20} {:>8}",
                "median", "min", "GPU", "rate", "error"
            ))?;
        }
        Ok(())
    }

    pub(crate) fn add(&mut self, row: Row) -> Result<()> {
        if self.table {
            let show = |seconds: f64| time(Duration::from_secs_f64(seconds.max(0.0)));
            let gpu = row.gpu.map_or_else(|| "–".into(), |g| show(g.median));
            let mut out = std::io::stdout().lock();
            let bar = match row.times_the_bar() {
                None => String::new(),
                Some(times) if times <= 1.0 => "  bar met".into(),
                Some(times) => format!("  {times:.2}× the bar"),
            };
            writeln!(
                out,
                "{:<58} {:>10} {:>10} {gpu:>10} {:>20} {:>8.0e}{bar}",
                row.name,
                show(row.wall.median),
                show(row.wall.min),
                format!("{} {}", significant(row.rate), row.unit),
                row.error
            )?;
            out.flush()?;
        }
        self.rows.push(row);
        Ok(())
    }

    /// A line of the table, about the row before.
    pub(crate) fn note(&self, what: &str) -> Result<()> {
        if self.table {
            writeln!(std::io::stdout().lock(), "{what}")?;
        }
        Ok(())
    }

    pub(crate) fn skip(&mut self, what: String) {
        if self.table {
            // The list in JSON has it too.
            let _ = say(format_args!("skipped: {what}"));
        }
        self.skipped.push(what);
    }
}

/// Three digits, thousands apart.
fn significant(x: f64) -> String {
    if x >= 100.0 {
        crate::output::thousands(x.round() as u64)
    } else if x >= 10.0 {
        format!("{x:.1}")
    } else {
        format!("{x:.2}")
    }
}
