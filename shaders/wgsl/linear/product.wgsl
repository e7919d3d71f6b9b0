// What every product begins with: the matrix, the params, its input and where the result goes. The kernel binds `x`
// and what its prologue reads, then imports linear/ends.

#import common/weights
#import common/rows
#import linear/input
#import linear/output

struct Params {
    input: InputParams,
    output: OutputParams,
    conv: ConvOutParams,
    first_row: u32, // linear/solo: row of the output at which `x` begins
}

@group(0) @binding(auto) var<uniform> params: Params;
