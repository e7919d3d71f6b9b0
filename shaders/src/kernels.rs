//! The kernels: one WGSL file each, under `wgsl/`.

/// The text of a file of `wgsl/`: natively as it stands. Every byte of a page is on its way to somebody, so there it is
/// bare, and what is for native devices alone is empty.
macro_rules! text {
    ($path:literal) => {{
        const WHOLE: &str = include_str!(concat!("../wgsl/", $path, ".wgsl"));
        const TEXT: &str = if cfg!(target_family = "wasm") {
            const SOURCE: &str = if cfg!(not(target_family = "wasm")) || native($path) { "" } else { WHOLE };
            const BARE: [u8; bare::<0>(SOURCE).1] = bare(SOURCE).0;
            match std::str::from_utf8(&BARE) {
                Ok(text) => text,
                Err(_) => unreachable!(),
            }
        } else {
            WHOLE
        };
        TEXT
    }};
}

/// Declares the kernels and the shared files once: the enum, its paths and the embedded text cannot disagree.
macro_rules! files {
    (kernels { $($(#[$doc:meta])* $name:ident = $path:literal,)* } shared { $($shared:literal,)* }) => {
        /// A kernel: one compute entry point `main`, in `wgsl/<path>.wgsl`.
        #[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kernel { $($(#[$doc])* $name,)* }

        impl Kernel {
            /// Every kernel.
            pub const ALL: &'static [Kernel] = &[$(Kernel::$name,)*];
            /// Its file, without `wgsl/` and the ending.
            pub const fn path(self) -> &'static str {
                match self { $(Kernel::$name => $path,)* }
            }
        }

        /// Files that kernels import.
        pub(crate) const SHARED: &[&str] = &[$($shared,)*];

        /// The text of a shader file.
        pub(crate) fn file(path: &str) -> Option<&'static str> {
            match path {
                $($path => Some(text!($path)),)*
                $($shared => Some(text!($shared)),)*
                _ => None,
            }
        }
    };
}

/// Whether a path is of a kernel that browsers cannot run: they have no cooperative matrices, and wgpu takes no subgroups
/// from them. (`Caps` never chooses those there.)
const fn native(path: &str) -> bool {
    const NAMES: [&str; 5] = ["coop", "lanes", "delta/apart/", "delta/segments/", "linear/panel"];
    let mut i = 0;
    while i < NAMES.len() {
        if contains(path.as_bytes(), NAMES[i].as_bytes()) {
            return true;
        }
        i += 1;
    }
    false
}

const fn contains(text: &[u8], part: &[u8]) -> bool {
    let mut i = 0;
    while i + part.len() <= text.len() {
        let mut k = 0;
        while k < part.len() && text[i + k] == part[k] {
            k += 1;
        }
        if k == part.len() {
            return true;
        }
        i += 1;
    }
    false
}

/// A text without comments, indentation and empty lines: its first `N` bytes, and how many there are.
const fn bare<const N: usize>(text: &str) -> ([u8; N], usize) {
    let b = text.as_bytes();
    let (mut out, mut len, mut i) = ([0; N], 0, 0);
    while i < b.len() {
        while i < b.len() && b[i] == b' ' {
            i += 1;
        }
        let start = i;
        // One past the last byte of the line that is neither a space nor part of a comment.
        let mut end = i;
        let mut comment = false;
        while i < b.len() && b[i] != b'\n' {
            comment = comment || (b[i] == b'/' && i + 1 < b.len() && b[i + 1] == b'/');
            if !comment && b[i] != b' ' && b[i] != b'\r' {
                end = i + 1;
            }
            i += 1;
        }
        i += 1;
        let mut k = start;
        while k < end {
            if len < N {
                out[len] = b[k];
            }
            (k, len) = (k + 1, len + 1);
        }
        if end > start {
            if len < N {
                out[len] = b'\n';
            }
            len += 1;
        }
    }
    (out, len)
}

files! {
    kernels {
        /// Row table, seen mask and position at the start of a piece of a prompt.
        Begin = "common/begin",
        /// Copies whole slots of a state buffer.
        CopySlots = "common/copy_slots",
        /// Embedding rows of token ids.
        Embed = "linear/embed",
        /// Draws a token a row: filters, exponential race, end of text.
        Draw = "sample/draw",
        /// The same with subgroups of one size.
        DrawLanes = "sample/lanes",
        /// Queries and keys of a delta rule: padded, normalised; Longhorn's β.
        DeltaPrepare = "delta/prepare",
        /// Preconditioner: what each chunk adds to the running sums.
        PrecondSums = "delta/precond/sums",
        /// Preconditioner: the running sums before each chunk.
        PrecondCarry = "delta/precond/carry",
        /// Preconditioner: write keys.
        PrecondApply = "delta/precond/apply",
        /// The delta rule token by token.
        DeltaStep = "delta/step",
        /// The same, a subgroup alone.
        DeltaLanes = "delta/lanes",
        /// Chunkwise: a chunk's products with itself, and its decays.
        ChunkGram = "delta/chunk/gram",
        /// Chunkwise: triangular inverse.
        ChunkInvert = "delta/chunk/invert",
        /// Chunkwise: U and W.
        ChunkSolve = "delta/chunk/solve",
        /// Chunkwise: the scan over chunks, and the outputs.
        ChunkScan = "delta/chunk/scan",
        /// Chunkwise: the same with more workgroup memory.
        ChunkWide = "delta/chunk/wide",
        /// Chunkwise, outputs apart: a chunk's products with itself, their triangular inverse, and what it is multiplied
        /// with, where a head has one decay or none.
        ApartChunk = "delta/apart/chunk",
        /// Chunkwise, outputs apart: triangular inverse, and what it is multiplied with, of rules with a decay a channel.
        ApartSolve = "delta/apart/solve",
        /// Chunkwise, outputs apart: the scan over chunks.
        ApartScan = "delta/apart/scan",
        /// Chunkwise, outputs apart: the outputs.
        ApartOut = "delta/apart/out",
        /// Chunkwise with cooperative matrices: all that the state has no part in.
        CoopChunk = "delta/coop/chunk",
        /// Chunkwise with cooperative matrices: the scan over chunks, and the outputs.
        CoopScan = "delta/coop/scan",
        /// Chunkwise with cooperative matrices: what chunks add to a preconditioner.
        CoopSums = "delta/coop/sums",
        /// A scan over segments of sequences: what it starts from.
        SegmentsBegin = "delta/segments/begin",
        /// A scan over segments of sequences: the states that they really start from.
        SegmentsCarry = "delta/segments/carry",
        /// The delta rule token by token, on software adapters.
        SoftwareStep = "delta/software/step",
        /// Chunkwise on software adapters: keys and queries with their decays.
        SoftwareDecay = "delta/software/decay",
        /// Chunkwise on software adapters: a chunk's products with itself.
        SoftwareGram = "delta/software/gram",
        /// Chunkwise on software adapters: triangular inverse.
        SoftwareInvert = "delta/software/invert",
        /// Chunkwise on software adapters: U and W.
        SoftwareSolve = "delta/software/solve",
        /// Chunkwise on software adapters: the scan over chunks, and the outputs.
        SoftwareScan = "delta/software/scan",
        /// Matrix times a few rows, for GPUs.
        Gemv = "linear/gemv",
        /// Matrix times the rows of a decode of many sessions, with the sums of `Gemv`.
        Panel = "linear/panel",
        /// Matrix times many rows in workgroup tiles, for GPUs.
        Gemm = "linear/gemm",
        /// Matrix times many rows with cooperative matrices: f16 operands, f32 sums.
        GemmCoop = "linear/coop",
        /// Matrix times the rows of a decode of many sessions with cooperative matrices.
        DecodeCoop = "linear/coop_decode",
        /// Matrix times any number of rows in register tiles, for software adapters.
        LinearSolo = "linear/solo",
        /// RMSNorm of rows.
        RmsNorm = "norm/rms",
        /// RMSNorm of heads, with a gate.
        HeadNorm = "norm/head",
        /// SwiGLU.
        SwiGlu = "norm/swiglu",
        /// Rounds to f16.
        Halve = "norm/halve",
        /// Short convolution, l2norm and gates of a mixer.
        MixerPrep = "conv/prep",
        /// The convolution's tail after a piece of a prompt.
        ConvTail = "conv/tail",
        /// A decode step of a mixer: gates, delta rule, output norm and gate.
        MixerStep = "mixer/step",
        /// The same, a subgroup alone.
        MixerLanes = "mixer/lanes",
        /// The same in four columns an invocation, for software adapters.
        MixerSolo = "mixer/solo",
        /// Tiles of a picture of the state.
        Paint = "picture/paint",
        /// Attention: norms and rotary embedding of q and k, and the tokens' entries.
        AttentionPrep = "attention/prep",
        /// Attention of many rows of a session, in tiles.
        AttentionPrefill = "attention/prefill",
        /// Attention of one row a session, the keys split among workgroups.
        AttentionDecode = "attention/decode",
        /// The shares of the workgroups together.
        AttentionCombine = "attention/combine",
        /// Attention of any rows, one invocation a row and head, for software adapters.
        AttentionSolo = "attention/solo",
        /// A run's entries into the ring of a window.
        AttentionStore = "attention/store",
    }
    shared {
        "attention/source",
        "common/activation",
        "common/emulated_coop",
        "common/halves",
        "common/head",
        "common/rows",
        "common/sincos",
        "common/threefry",
        "common/weights",
        "conv/gates",
        "conv/taps",
        "delta/params",
        "delta/apart/inverse",
        "delta/apart/layout",
        "delta/apart/products",
        "delta/precond/gates",
        "delta/chunk/layout",
        "delta/coop/channel_products",
        "delta/coop/head_products",
        "delta/coop/invert",
        "delta/coop/layout",
        "delta/coop/totals",
        "delta/coop/write_keys",
        "delta/software/layout",
        "delta/software/log_decay",
        "linear/product",
        "linear/staged",
        "linear/input",
        "linear/output",
        "linear/ends",
        "sample/filter",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_texts() {
        const TEXT: &str = "// What it is.\n\n#ifdef A\n    let a = b / c; // é\n#endif\r\n  // Or not.\n}";
        const BARE: [u8; bare::<0>(TEXT).1] = bare(TEXT).0;
        assert_eq!(std::str::from_utf8(&BARE), Ok("#ifdef A\nlet a = b / c;\n#endif\n}\n"));
    }

    /// What browsers get is the same program: without comments and indentation, nothing is left to tell them apart.
    #[test]
    fn a_bare_text_is_the_same_program() {
        for path in Kernel::ALL.iter().map(|k| k.path()).chain(SHARED.iter().copied()) {
            let text = file(path).unwrap();
            let (bytes, len) = bare::<0x10000>(text);
            let got = std::str::from_utf8(&bytes[..len]).unwrap();
            let code = |line: &str| line.split("//").next().unwrap_or_default().trim().to_string();
            let want: Vec<String> = text.lines().map(code).filter(|l| !l.is_empty()).collect();
            assert_eq!(got.lines().collect::<Vec<_>>(), want, "{path}");
            assert!(!text.contains("/*"), "{path}: a comment that is not one of a line");
        }
    }
}
