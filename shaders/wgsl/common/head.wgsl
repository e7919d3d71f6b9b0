// Words of a slot's head and of a decode row's controls: shaders/src/head.rs has the same names and values, and says
// what each is. A test compares the two.
const HEAD_POSITION: u32 = 0u;
const HEAD_TOKEN: u32 = 1u;
const HEAD_DONE: u32 = 2u;
const HEAD_EMITTED: u32 = 3u;
const HEAD_WORDS: u32 = 8u;
const CONTROL_SLOT: u32 = 0u;
const CONTROL_LIMIT: u32 = 1u;
const CONTROL_SEED_LO: u32 = 2u;
const CONTROL_SEED_HI: u32 = 3u;
const CONTROL_INV_TEMPERATURE: u32 = 4u;
const CONTROL_TOP_K: u32 = 5u;
const CONTROL_TOP_P: u32 = 6u;
const CONTROL_MIN_P: u32 = 7u;
const CONTROL_PENALTY: u32 = 8u;
const CONTROL_INV_PENALTY: u32 = 9u;
const CONTROL_EOS_COUNT: u32 = 10u;
const CONTROL_EOS: u32 = 11u;
const MAX_EOS: u32 = 8u;
const CONTROL_WORDS: u32 = 20u;
const EMIT_FED: u32 = 1u;
const EMIT_END: u32 = 2u;
