//! `deltanet [run] PROMPT`: continues a text.

use std::io::{IsTerminal, stdout};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use deltanet::LoadOptions;
use deltanet::session::{Finish, GenerateOptions};
use serde::Serialize;

use crate::Exit;
use crate::args::RunArgs;
use crate::interrupt::Interrupt;
use crate::load::{Loaded, load};
use crate::output::{Format, Token, Writer, rate, thousands, time};
use crate::prompt;

pub(crate) fn run(args: &RunArgs) -> Result<Exit> {
    // Everything that can be wrong with the input comes before the slow parts.
    let saved = args.resume.as_deref().map(prompt::bytes).transpose()?;
    args.save.as_deref().map(prompt::can_be_written).transpose()?;
    let prompt = match (&args.prompt, &saved) {
        (None, Some(_)) => String::new(),
        (argument, _) => prompt::read(argument.as_deref())?,
    };
    let interrupt = Interrupt::watch();
    let mut loaded = load(&args.model, LoadOptions { sessions: 1, ..Default::default() })?;
    let seed = args.seed.unwrap_or_else(any_seed);

    let mut session = loaded.model.session()?;
    if let (Some(bytes), Some(path)) = (&saved, &args.resume) {
        session.restore(bytes).with_context(|| path.display().to_string())?;
    }
    // Text of megabytes becomes tokens for seconds. Who does not wait for that wants no prompt read.
    let tokens = if saved.is_some() && prompt.is_empty() {
        Vec::new()
    } else {
        let (encoder, text) = (session.encoder()?, prompt.clone());
        interrupt.unless_pressed(move || encoder.encode(&text)).transpose()?.unwrap_or_default()
    };
    let options = GenerateOptions {
        sampling: args.sampling(seed),
        max_tokens: args.max_tokens as usize,
        stop: args.stop.clone(),
        ..GenerateOptions::default()
    };
    options.sampling.check()?;
    // What pieces of a prompt take, and its last one.
    let rows = session.reading_rows();
    for n in [tokens.len().min(rows), tokens.len() % rows] {
        if !interrupt.pressed() {
            loaded.prepare(n)?;
        }
    }
    loaded.tell();
    let start = Instant::now();
    let mut prompt_tokens = 0;
    for piece in tokens.chunks(rows) {
        if interrupt.pressed() {
            break;
        }
        session.feed(piece)?;
        session.synchronize()?;
        prompt_tokens += piece.len();
    }
    let prefill = start.elapsed();

    let format = match (args.json, args.logprobs) {
        (true, _) => Format::Json,
        (false, true) => Format::Lines,
        (false, false) => Format::Text,
    };
    let mut writer = Writer::new(stdout().lock(), format);
    if format == Format::Text && stdout().is_terminal() && std::io::stderr().is_terminal() {
        // So that a person sees one text. Not on standard output: there only what the model wrote may be.
        eprint!("\x1b[2m{prompt}\x1b[0m");
    }
    let start = Instant::now();
    let mut tokens = 0;
    // Who ends it before the prompt is read wants nothing written.
    let finish = if interrupt.pressed() {
        None
    } else {
        let mut generation = session.generate(options)?;
        let finish = loop {
            if interrupt.pressed() {
                generation.stop()?;
                break None;
            }
            let Some(piece) = generation.next().transpose()? else { break generation.finish() };
            tokens += 1;
            writer.token(Token { token: piece.token, text: &piece.text, logprob: piece.logprob })?;
        };
        if finish.is_some() {
            writer.text(generation.tail())?;
        }
        finish
    };
    let decode = start.elapsed();
    let written = match &args.save {
        Some(path) => std::fs::write(path, session.save()?).with_context(|| path.display().to_string()),
        None => Ok(()),
    };

    let summary = Summary {
        model: loaded.name.clone(),
        device: loaded.model.device().describe(),
        finish: finish.map_or("interrupted", Finish::name),
        seed,
        prompt_tokens,
        tokens,
        load_seconds: loaded.time.as_secs_f64(),
        prefill_seconds: prefill.as_secs_f64(),
        decode_seconds: decode.as_secs_f64(),
        prefill_tokens_per_second: rate(prompt_tokens, prefill),
        decode_tokens_per_second: rate(tokens, decode),
    };
    writer.finish(&summary)?;
    summary.print(&loaded, prefill, decode);
    written?;
    Ok(if finish.is_some() { Exit::Done } else { Exit::Interrupted })
}

/// What the last line of `--json` holds.
#[derive(Debug, Serialize)]
struct Summary {
    model: String,
    /// Engine and device.
    device: String,
    /// Why it ended.
    finish: &'static str,
    seed: u64,
    prompt_tokens: usize,
    tokens: usize,
    load_seconds: f64,
    prefill_seconds: f64,
    decode_seconds: f64,
    prefill_tokens_per_second: f64,
    decode_tokens_per_second: f64,
}

impl Summary {
    /// For people, on standard error.
    fn print(&self, loaded: &Loaded, prefill: Duration, decode: Duration) {
        let line = |what: &str, n: usize, t: Duration| {
            let per_second = rate(n, t);
            crate::output::tell(format_args!(
                "{what:8} {:>6} tokens in {:>8}  {:>8} tokens/s",
                thousands(n as u64),
                time(t),
                thousands(per_second.round() as u64)
            ));
        };
        crate::output::tell(format_args!(""));
        line("prefill", self.prompt_tokens, prefill);
        line("decode", self.tokens, decode);
        crate::output::tell(format_args!(
            "ended    {}, seed {}, {}",
            self.finish,
            self.seed,
            loaded.model.device().describe()
        ));
    }
}

/// A seed that differs from run to run; the summary tells it.
fn any_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Short enough to be typed again.
    (now.as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(20)) % 1_000_000
}
