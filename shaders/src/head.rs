//! The head of a session's slot on the GPU, and the controls of a decode run: words that several kernels share.
//! `wgsl/common/head.wgsl` has the same names and values; a test compares them.
//!
//! A slot's head is `[HEAD words | seen mask: ceil(vocab/32) words | logits: vocab f32]`, each part starting at a
//! multiple of 4 words; see [`HeadLayout`].

/// Tokens fed so far. While a decode step runs, the token being fed is counted: its place is `POSITION − 1`.
pub const HEAD_POSITION: u32 = 0;
/// The token drawn last, which the embedding reads.
pub const HEAD_TOKEN: u32 = 1;
/// 1 when the row's later steps of this run must not change anything.
pub const HEAD_DONE: u32 = 2;
/// Steps taken in this run.
pub const HEAD_EMITTED: u32 = 3;
/// Words of the head before the seen mask.
pub const HEAD_WORDS: u32 = 8;

/// The row's slot; 0xffffffff for padding.
pub const CONTROL_SLOT: u32 = 0;
/// Most steps in this run.
pub const CONTROL_LIMIT: u32 = 1;
/// Seed, low word.
pub const CONTROL_SEED_LO: u32 = 2;
/// Seed, high word.
pub const CONTROL_SEED_HI: u32 = 3;
/// f32: 1 / temperature, 0 for greedy.
pub const CONTROL_INV_TEMPERATURE: u32 = 4;
/// Largest logits kept; 0 for all.
pub const CONTROL_TOP_K: u32 = 5;
/// f32: probability kept; 1 for all.
pub const CONTROL_TOP_P: u32 = 6;
/// f32 bits of −ln(min_p): tokens further than this below the largest are dropped; +inf for none.
pub const CONTROL_MIN_P: u32 = 7;
/// f32: repetition penalty.
pub const CONTROL_PENALTY: u32 = 8;
/// f32: its reciprocal.
pub const CONTROL_INV_PENALTY: u32 = 9;
/// Number of end-of-text tokens that end the row (0 when it does not stop there).
pub const CONTROL_EOS_COUNT: u32 = 10;
/// The first of them.
pub const CONTROL_EOS: u32 = 11;
/// Most end-of-text tokens.
pub const MAX_EOS: u32 = 8;
/// Words of one row's controls.
pub const CONTROL_WORDS: u32 = 20;

/// In an emit: a token was drawn and fed.
pub const EMIT_FED: u32 = 1;
/// In an emit: an end-of-text token was drawn, and not fed.
pub const EMIT_END: u32 = 2;

/// Places in a slot's head, in words.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub struct HeadLayout {
    /// Start of the seen mask.
    pub seen: u32,
    /// Start of the logits, a multiple of 4.
    pub logits: u32,
    /// Words a slot, a multiple of 64.
    pub stride: u32,
}

impl HeadLayout {
    /// The layout for a vocabulary.
    pub fn new(vocab: u32) -> Self {
        let seen = HEAD_WORDS;
        let logits = (seen + vocab.div_ceil(32)).next_multiple_of(4);
        Self { seen, logits, stride: (logits + vocab).next_multiple_of(64) }
    }
}
