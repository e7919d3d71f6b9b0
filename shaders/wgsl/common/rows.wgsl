// The row table: one `vec4<u32>` a row, `{ slot, index in its piece, tokens in the piece, position of the token }`.
// Rows of padding, and rows whose session takes no more tokens, have slot NO_SLOT: nothing may be written to a slot
// for them. Their scratch rows hold whatever they hold.

const NO_SLOT: u32 = 0xffffffffu;
