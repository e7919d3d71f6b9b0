//! Steps of a run, and the counted summary at its end.

use std::time::{Duration, Instant};

use anyhow::Result;

/// What a step that did not fail came to.
pub(crate) enum Done {
    /// It ran and was right; a few words for the summary, or none.
    Passed(String),
    /// It could not run, and why.
    Skipped(String),
}

enum Outcome {
    Passed,
    Failed,
    Skipped,
}

struct Entry {
    name: &'static str,
    outcome: Outcome,
    note: String,
    time: Duration,
}

/// Runs steps one after another and remembers how they ended. A failed step does not keep later ones from running:
/// one run shows everything that is wrong.
pub(crate) struct Steps {
    entries: Vec<Entry>,
    total: usize,
    only: Option<String>,
    start: Instant,
}

impl Steps {
    /// Of `total` steps; with `only`, those whose names contain it.
    pub(crate) fn new(total: usize, only: Option<String>) -> Self {
        Self { entries: Vec::new(), total, only, start: Instant::now() }
    }

    /// Runs one step.
    pub(crate) fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<Done>) {
        println!("\n==> [{}/{}] {name}", self.entries.len() + 1, self.total);
        let start = Instant::now();
        let wanted = self.only.as_deref().is_none_or(|only| name.contains(only));
        let result = if wanted { work() } else { Ok(Done::Skipped("left out by --only".into())) };
        let (outcome, note) = match result {
            Ok(Done::Passed(note)) => (Outcome::Passed, note),
            Ok(Done::Skipped(why)) => (Outcome::Skipped, why),
            Err(error) => (Outcome::Failed, format!("{error:#}")),
        };
        let time = start.elapsed();
        match outcome {
            Outcome::Failed => println!("==> {name}: FAILED after {}: {note}", human(time)),
            Outcome::Skipped => println!("==> {name}: skipped: {note}"),
            Outcome::Passed => println!("==> {name}: passed in {}", human(time)),
        }
        self.entries.push(Entry { name, outcome, note, time });
    }

    /// Prints the summary; whether nothing failed.
    pub(crate) fn summary(&self) -> bool {
        println!("\nSummary");
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        for Entry { name, outcome, note, time } in &self.entries {
            let word = match outcome {
                Outcome::Passed => {
                    passed += 1;
                    "passed"
                }
                Outcome::Failed => {
                    failed += 1;
                    "FAILED"
                }
                Outcome::Skipped => {
                    skipped += 1;
                    "skipped"
                }
            };
            println!("  {word:<7}  {name:<34} {:>9}  {note}", human(*time));
        }
        println!("{passed} steps passed, {failed} failed, {skipped} skipped in {}", human(self.start.elapsed()));
        failed == 0
    }
}

fn human(time: Duration) -> String {
    let seconds = time.as_secs();
    if seconds < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}
