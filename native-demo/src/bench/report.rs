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
    /// `copy`, `matmul`, `operator`, `attention`, `model`, `busy` or `million`.
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
    /// How many times what was hoped for: 1 or less is met.
    pub(crate) times_the_bar: Option<f64>,
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
        Self { group, name, wall, gpu, rate, unit: work.1, error, bar: None, times_the_bar: None }
    }

    /// Holds the row against a bar, if there is one.
    pub(crate) fn against(mut self, bar: Option<Bar>) -> Self {
        self.bar = bar;
        self.times_the_bar = bar.map(|bar| match bar {
            Bar::Seconds(most) => self.gpu.unwrap_or(self.wall).median / most,
            Bar::Rate(least) => least / self.rate.max(1e-12),
        });
        self
    }

    /// What the bar was, and how far off the row is.
    fn verdict(&self) -> String {
        let (Some(bar), Some(times)) = (self.bar, self.times_the_bar) else { return String::new() };
        let bar = match bar {
            Bar::Seconds(most) => show(most),
            Bar::Rate(least) => format!("{} {}", significant(least), self.unit),
        };
        let verdict = if times <= 1.0 { "met, " } else { "missed, " };
        format!("  bar {bar}: {verdict}{times:.2}×")
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
            let gpu = row.gpu.map_or_else(|| "–".into(), |g| show(g.median));
            let mut out = std::io::stdout().lock();
            writeln!(
                out,
                "{:<58} {:>10} {:>10} {gpu:>10} {:>20} {:>8.0e}{}",
                row.name,
                show(row.wall.median),
                show(row.wall.min),
                format!("{} {}", significant(row.rate), row.unit),
                row.error,
                row.verdict()
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

    /// The last line: how many rows there are, how many met their bars, and how many are missing.
    pub(crate) fn close(&self) -> Result<()> {
        let bars: Vec<f64> = self.rows.iter().filter_map(|r| r.times_the_bar).collect();
        let met = bars.iter().filter(|times| **times <= 1.0).count();
        let (rows, bars, skipped) = (self.rows.len(), bars.len(), self.skipped.len());
        self.note(&format!("\n{rows} rows checked and timed, {met} of {bars} bars met, {skipped} skipped"))
    }

    pub(crate) fn skip(&mut self, what: String) {
        if self.table {
            // The list in JSON has it too.
            let _ = say(format_args!("skipped: {what}"));
        }
        self.skipped.push(what);
    }
}

fn show(seconds: f64) -> String {
    time(Duration::from_secs_f64(seconds.max(0.0)))
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
