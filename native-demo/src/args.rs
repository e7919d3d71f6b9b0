//! The command line: every option with its domain, checked while it is read.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory, Parser, Subcommand};
use deltanet::DeviceRequest;
use deltanet::sampler::Sampling;

/// Run, inspect and time delta-rule language models on any GPU or on the CPU.
///
/// Without a command, `deltanet "Once upon a time"` continues the text. Options stand behind a command. Text goes to standard output, everything else
/// to standard error. Exit code 0: done; 1: a check found a difference; 2: bad input, with one line that says what;
/// 130: ended by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "deltanet", version, args_conflicts_with_subcommands = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Continue a text (the default).
    Run(RunArgs),
    /// List adapters, and show a model's shape, size and plan.
    Info(InfoArgs),
    /// Measure how well a model predicts a file: perplexity and bits per byte.
    Score(ScoreArgs),
    /// Compare a device's results with the CPU engine's, token by token.
    Check(CheckArgs),
    /// Check results, then time them: copy bandwidth, matrix products, the operator, a model.
    Bench(BenchArgs),
}

/// Where to run, and what.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArgs {
    /// Where to run: `auto` (a real GPU, else the CPU engine), `cpu`, `gpu` (a software adapter counts too), or the
    /// number of an adapter in `deltanet info`.
    #[arg(long, value_name = "auto|cpu|gpu|N", default_value = "auto")]
    pub(crate) device: DeviceArg,
    /// Keep no compiled kernels in the user's cache folder, and use none (the same with DELTANET_NO_CACHE=1).
    #[arg(long)]
    pub(crate) no_cache: bool,
    /// Folder with config.json, tokenizer.json and model.safetensors or the files of its index [default:
    /// models/stories-17m, looked for from here and from the program upwards].
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
}

/// How tokens are drawn, and when it ends.
#[derive(Args, Clone, Debug)]
pub(crate) struct RunArgs {
    /// The text to continue; read from standard input when absent (with --resume: nothing is added).
    pub(crate) prompt: Option<String>,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Go on from a saved session: one of --save, or one that the web page saved.
    #[arg(long, value_name = "FILE")]
    pub(crate) resume: Option<PathBuf>,
    /// Save the session at the end: text and memory, for --resume or the web page.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,
    /// Most tokens to generate.
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 256, value_parser = parse::<u32>)]
    pub(crate) max_tokens: u32,
    /// Divides the logits before the draw; 0 always takes the most likely token.
    #[arg(long, allow_negative_numbers = true, value_name = "T", default_value_t = Sampling::default().temperature, value_parser = at_least_zero)]
    pub(crate) temperature: f32,
    /// Keep only the k most likely tokens; 0 keeps all.
    #[arg(long, allow_negative_numbers = true, value_name = "K", default_value_t = Sampling::default().top_k)]
    pub(crate) top_k: u32,
    /// Keep the fewest tokens whose probability together reaches p; 1 keeps all.
    #[arg(long, allow_negative_numbers = true, value_name = "P", default_value_t = Sampling::default().top_p, value_parser = above_zero_to_one)]
    pub(crate) top_p: f32,
    /// Keep tokens at least p times as likely as the most likely one; 0 keeps all.
    #[arg(long, allow_negative_numbers = true, value_name = "P", default_value_t = Sampling::default().min_p, value_parser = zero_to_one)]
    pub(crate) min_p: f32,
    /// Make tokens that have occurred less likely (above 1) or more likely (below 1).
    #[arg(long, allow_negative_numbers = true, value_name = "R", default_value_t = Sampling::default().repetition_penalty, value_parser = above_zero)]
    pub(crate) repetition_penalty: f32,
    /// Seed of the draws: the same seed gives the same text on the same engine [default: a new one each time].
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// End when this text appears (may be given several times).
    #[arg(long, value_name = "TEXT", value_parser = not_empty)]
    pub(crate) stop: Vec<String>,
    /// Print one line a token instead of the text: ln of its probability, id, text.
    #[arg(long)]
    pub(crate) logprobs: bool,
    /// Print one JSON object a token, then one with the summary.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `deltanet info`.
#[derive(Args, Clone, Debug)]
pub(crate) struct InfoArgs {
    /// Folder of a model to show [default: models/stories-17m, if it is found].
    #[arg(long, value_name = "DIR")]
    pub(crate) model: Option<PathBuf>,
    /// Print the model's plans too: every op with its sizes.
    #[arg(long)]
    pub(crate) plan: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `deltanet score`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScoreArgs {
    /// A text file, UTF-8; `-` reads standard input.
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `deltanet check`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Largest difference of logits that passes, relative to the largest logit.
    #[arg(long, allow_negative_numbers = true, value_name = "X", default_value = "2e-5", value_parser = tolerance)]
    pub(crate) tolerance: f64,
    /// First check every variant of the operators that the adapter can run, against the recurrence in f64.
    #[arg(long)]
    pub(crate) all_variants: bool,
    /// Print one JSON list.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `deltanet bench`.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Run a fixed list of measurements, each held against a bar, instead of the parts.
    #[arg(long, value_enum, conflicts_with = "only")]
    pub(crate) suite: Option<Suite>,
    /// The suite in small sizes and without bars: whether everything runs and is right, on any device.
    #[arg(long, requires = "suite")]
    pub(crate) quick: bool,
    /// Run only these parts; otherwise all but million and synthetic.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) only: Vec<Part>,
    /// Rules of the operator, or `all`.
    #[arg(long, value_delimiter = ',', default_value = "all")]
    pub(crate) rule: Vec<String>,
    /// Tokens of a chunkwise operator call.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "1024", value_parser = sized::<1_048_576>)]
    pub(crate) tokens: Vec<u32>,
    /// Sequences of a one-token operator call.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,64", value_parser = sized::<4096>)]
    pub(crate) batch: Vec<u32>,
    /// Query and key heads of the operator.
    #[arg(long, value_name = "H", default_value = "16", value_parser = sized::<1024>)]
    pub(crate) heads: u32,
    /// Value heads, a multiple of the heads [default: as many].
    #[arg(long, value_name = "HV", value_parser = sized::<4096>)]
    pub(crate) value_heads: Option<u32>,
    /// Channels of a query or key.
    #[arg(long, value_name = "K", default_value = "128", value_parser = sized::<256>)]
    pub(crate) key_dim: u32,
    /// Channels of a value [default: as many].
    #[arg(long, value_name = "V", value_parser = sized::<4096>)]
    pub(crate) value_dim: Option<u32>,
    /// Prompt lengths of the model.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "512,2048", value_parser = sized::<1_048_576>)]
    pub(crate) prefill: Vec<u32>,
    /// Tokens that the model generates.
    #[arg(long, value_name = "T", value_delimiter = ',', default_value = "128", value_parser = sized::<65_536>)]
    pub(crate) decode: Vec<u32>,
    /// Sessions that run together.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,16", value_parser = sized::<1024>)]
    pub(crate) sessions: Vec<u32>,
    /// Tokens of the very long prompt.
    #[arg(long, value_name = "T", default_value = "1000000", value_parser = sized::<100_000_000>)]
    pub(crate) length: u32,
    /// Timed runs of each; median and minimum are printed.
    #[arg(long, value_name = "N", default_value = "5", value_parser = sized::<1000>)]
    pub(crate) runs: u32,
    /// Begin no further run of one benchmark after so many seconds.
    #[arg(long, allow_negative_numbers = true, value_name = "S", default_value = "10", value_parser = sized::<3600>)]
    pub(crate) seconds: u32,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A list of measurements.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Suite {
    /// What is expected of one H200.
    H200,
}

/// A part of the benchmarks.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Copy bandwidth.
    Copy,
    /// Matrix products.
    Matmul,
    /// The delta-rule operator.
    Operator,
    /// Softmax attention.
    Attention,
    /// A whole model.
    Model,
    /// A very long prompt through a model: runs only when named.
    Million,
    /// Gated DeltaNets of hidden size 1,024 and 2,048 with random weights: runs only when named.
    Synthetic,
}

/// `--device`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeviceArg(pub(crate) DeviceRequest);

impl FromStr for DeviceArg {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        Ok(Self(match s {
            "auto" => DeviceRequest::Auto,
            "cpu" => DeviceRequest::Cpu,
            "gpu" => DeviceRequest::Gpu,
            number => DeviceRequest::Adapter(
                number.parse().map_err(|_| "expected auto, cpu, gpu or the number of an adapter".to_string())?,
            ),
        }))
    }
}

fn parse<T: FromStr>(s: &str) -> Result<T, String>
where
    T::Err: std::fmt::Display,
{
    s.parse().map_err(|e: T::Err| e.to_string())
}

fn number(s: &str, domain: &str, ok: impl Fn(f32) -> bool) -> Result<f32, String> {
    // "nan", "inf" and "1e99" parse as floats; no domain here contains them.
    match s.parse::<f32>() {
        Ok(x) if x.is_finite() && ok(x) => Ok(x),
        _ => Err(format!("expected {domain}")),
    }
}

/// A size from 1 to `MAX`.
fn sized<const MAX: u32>(s: &str) -> Result<u32, String> {
    match s.parse::<u32>() {
        Ok(n) if (1..=MAX).contains(&n) => Ok(n),
        _ => Err(format!("expected a number from 1 to {MAX}")),
    }
}

fn at_least_zero(s: &str) -> Result<f32, String> {
    number(s, "a finite number of at least 0", |x| x >= 0.0)
}

fn tolerance(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err("expected a finite number of at least 0".into()),
    }
}

fn above_zero(s: &str) -> Result<f32, String> {
    number(s, "a finite number above 0", |x| x > 0.0)
}

fn above_zero_to_one(s: &str) -> Result<f32, String> {
    number(s, "a number above 0, at most 1", |x| x > 0.0 && x <= 1.0)
}

fn zero_to_one(s: &str) -> Result<f32, String> {
    number(s, "a number from 0 to 1", |x| (0.0..=1.0).contains(&x))
}

fn not_empty(s: &str) -> Result<String, String> {
    if s.is_empty() { Err("expected a text that is not empty".into()) } else { Ok(s.into()) }
}

impl RunArgs {
    /// How tokens are drawn.
    pub(crate) fn sampling(&self, seed: u64) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repetition_penalty,
            seed,
        }
    }
}

/// Reads the command line. The error is one line, without `error: `; help and version are printed and end the program.
pub(crate) fn read() -> Result<Cli, String> {
    let cli = Cli::try_parse().map_err(|e| {
        if !e.use_stderr() {
            e.exit();
        }
        one_line(&e.to_string())
    })?;
    cli.not_a_command()
}

impl Cli {
    /// Refuses a prompt that is the name of a command: after other options clap takes it for a text, and the story that
    /// came of it would look like a check that passed.
    fn not_a_command(self) -> Result<Self, String> {
        let prompt = self.run.prompt.as_deref().filter(|_| self.command.is_none());
        let is_name = |word: &&str| Cli::command().find_subcommand(word).is_some() || *word == "help";
        match prompt.filter(is_name) {
            Some(name) => Err(format!(
                "{name}: expected a command before its options (`deltanet {name} …`), got it behind some; \
                 `deltanet run {name}` continues it as a text"
            )),
            None => Ok(self),
        }
    }
}

/// clap's message up to its first empty line, on one line.
fn one_line(message: &str) -> String {
    let first: Vec<&str> = message.lines().map(str::trim).take_while(|l| !l.is_empty()).collect();
    let line = first.join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_string()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Cli, String> {
        Cli::try_parse_from(std::iter::once("deltanet").chain(words.iter().copied()))
            .map_err(|e| one_line(&e.to_string()))
    }

    #[test]
    fn definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_prompt_alone_runs() {
        let cli = parse(&["Once upon a time", "--seed", "7", "--stop", "END", "--stop", "\n\n"]).unwrap();
        assert!(cli.command.is_none());
        assert_eq!(cli.run.prompt.as_deref(), Some("Once upon a time"));
        assert_eq!(cli.run.seed, Some(7));
        assert_eq!(cli.run.stop, ["END", "\n\n"]);
    }

    #[test]
    fn devices() {
        let device = |s: &str| s.parse::<DeviceArg>().map(|d| d.0);
        assert_eq!(device("auto"), Ok(DeviceRequest::Auto));
        assert_eq!(device("3"), Ok(DeviceRequest::Adapter(3)));
        assert!(device("-1").is_err());
        assert!(device("cuda").is_err());
    }

    #[test]
    fn every_refusal_is_one_line_that_names_the_option() {
        for (words, part) in [
            (&["--temperature", "-1"][..], "--temperature"),
            (&["--temperature", "nan"], "--temperature"),
            (&["--temperature", "inf"], "--temperature"),
            (&["--top-p", "0"], "--top-p"),
            (&["--top-p", "1.1"], "--top-p"),
            (&["--min-p", "2"], "--min-p"),
            (&["--top-k", "-3"], "--top-k"),
            (&["--repetition-penalty", "0"], "--repetition-penalty"),
            (&["--max-tokens", "many"], "--max-tokens"),
            (&["--max-tokens", "99999999999"], "--max-tokens"),
            (&["--seed", "0.5"], "--seed"),
            (&["--stop", ""], "--stop"),
            (&["--device", "tpu"], "--device"),
            (&["--no-such-option"], "--no-such-option"),
            (&["score"], "<FILE>"),
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.contains(part), "{words:?}: {error}");
            assert!(!error.contains('\n') && !error.starts_with("error"), "{words:?}: {error}");
        }
    }
}
