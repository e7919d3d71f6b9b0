// What delta/coop/sums leaves a chunk and key head of, in fours of f32: K sums of the preconditioner, which become those
// before the chunk; the share that the chunk keeps of what was there, and μ; and in fours of rows, 64 each: what a row
// keeps, the product of that from the first row of its sixteen on, and its strength.
const KEPT_AT: u32 = K / 4u;
const KEEPS_AT: u32 = KEPT_AT + 1u;
const PRODUCTS_AT: u32 = KEEPS_AT + 16u;
const STRENGTHS_AT: u32 = PRODUCTS_AT + 16u;
const TOTALS: u32 = STRENGTHS_AT + 16u;
// ln 1.5.
const LOG_X: f32 = 0.4054651081081644;
