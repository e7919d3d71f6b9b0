//! `deltanet score FILE`: how well a model predicts a text.

use std::io::stdout;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use deltanet::LoadOptions;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::Exit;
use crate::args::ScoreArgs;
use crate::interrupt::Interrupt;
use crate::load::load;
use crate::output::{json, rate, say};
use crate::prompt;

/// Tokens between two looks at Ctrl-C and two steps of the bar.
const PIECE: usize = 512;

pub(crate) fn run(args: &ScoreArgs) -> Result<Exit> {
    let text = Arc::new(prompt::file(&args.file)?);
    let interrupt = Interrupt::watch();
    let loaded = load(&args.model, LoadOptions { sessions: 1, ..Default::default() })?;
    let (tokenizer, all) = (loaded.model.require_tokenizer()?.clone(), text.clone());
    let Some(tokens) = interrupt.unless_pressed(move || tokenizer.encode(&all, true)).transpose()? else {
        return Ok(Exit::Interrupted);
    };
    if tokens.len() < 2 {
        let n = tokens.len();
        bail!(
            "{}: expected a text of at least 2 tokens, got {n}: the first has nothing before it",
            args.file.display()
        );
    }
    loaded.tell();
    let mut session = loaded.model.session()?;
    let bar = ProgressBar::with_draw_target(Some(tokens.len() as u64), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("scoring   [{bar:32}] {pos}/{len} tokens, {per_sec}, {eta} left") {
        bar.set_style(style.progress_chars("=> "));
    }
    let start = Instant::now();
    // A sum of many small numbers: f64.
    let (mut nats, mut scored, mut end) = (0f64, 0usize, Exit::Done);
    for piece in tokens.chunks(PIECE) {
        if interrupt.pressed() {
            end = Exit::Interrupted;
            break;
        }
        let nll = session.score(piece)?;
        nats += nll.iter().map(|x| f64::from(*x)).sum::<f64>();
        scored += nll.len();
        bar.inc(piece.len() as u64);
    }
    bar.finish_and_clear();
    if scored == 0 {
        return Ok(end);
    }
    let elapsed = start.elapsed();
    // Bits per byte counts the bytes that were predicted, so only a whole text has it.
    let whole = end == Exit::Done;
    let score = Score {
        file: args.file.display().to_string(),
        device: loaded.model.device().describe(),
        bytes: text.len(),
        tokens: scored,
        perplexity: (nats / scored as f64).exp(),
        nats_per_token: nats / scored as f64,
        bits_per_byte: whole.then(|| nats / std::f64::consts::LN_2 / text.len() as f64),
        seconds: elapsed.as_secs_f64(),
        tokens_per_second: rate(scored, elapsed),
    };
    if args.json {
        json(&mut stdout(), &score)?;
    } else {
        score.print()?;
    }
    Ok(end)
}

#[derive(Debug, Serialize)]
struct Score {
    file: String,
    device: String,
    bytes: usize,
    /// Tokens scored: all but the first.
    tokens: usize,
    perplexity: f64,
    nats_per_token: f64,
    bits_per_byte: Option<f64>,
    seconds: f64,
    tokens_per_second: f64,
}

impl Score {
    fn print(&self) -> Result<()> {
        say(format_args!("perplexity     {:.4}", self.perplexity))?;
        say(format_args!("nats per token {:.5}", self.nats_per_token))?;
        match self.bits_per_byte {
            Some(bits) => say(format_args!("bits per byte  {bits:.5}"))?,
            None => say(format_args!("bits per byte  unknown: ended after {} tokens", self.tokens))?,
        }
        crate::output::tell(format_args!(
            "scored {} tokens in {:.2} s, {:.0} tokens/s",
            self.tokens, self.seconds, self.tokens_per_second
        ));
        Ok(())
    }
}
