// Rounding to f16: what is beyond its range becomes its largest. TILES: rows lie in tiles of 16 rows by 16 columns, a
// tile's rows one after the other, so that whoever loads a matrix of this size finds it in whole lines.

fn half4(v: vec4<f32>) -> vec4<f16> {
    return vec4<f16>(clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0)));
}

// Where the column-th four of a row lies, of rows of so many fours.
fn place4(row: u32, column: u32, fours: u32) -> u32 {
#ifdef TILES
    return (row / 16u * (fours / 4u) + column / 4u) * 64u + row % 16u * 4u + column % 4u;
#else
    return row * fours + column;
#endif
}
