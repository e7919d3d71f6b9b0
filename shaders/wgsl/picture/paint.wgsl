// Paints the states S of one layer's heads as tiles of a picture: keys down, values across, each head relative to its
// own root mean square. One workgroup a head and STRIPE rows of pixels; `pixels` is RGBA, 8 bits each, red lowest.

struct Params {
    base: u32,      // first S of the slot in `state`
    head: u32,      // first head shown
    key_dim: u32,   // K
    value_dim: u32, // V
    stride: u32,    // pixels a row of the picture
    x: u32,         // left edge of the tiles
    y: u32,         // upper edge of the first tile
    pitch: u32,     // pixels down from tile to tile
    width: u32,     // of a tile
    height: u32,    // of a tile
    gain: f32,
    negative: u32,  // 0xBBGGRR: colour of -1
    zero: u32,      // of 0
    positive: u32,  // of 1
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> state: array<f32>;         // [slots, words]
@group(0) @binding(2) var<storage, read_write> pixels: array<u32>;  // [height of the picture, stride]

var<workgroup> partial: array<f32, WG>;

fn unpack(colour: u32) -> vec3<f32> {
    return vec3<f32>(vec3<u32>(colour, colour >> 8u, colour >> 16u) & vec3<u32>(255u));
}

@compute @workgroup_size(WG)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_id) lid: vec3<u32>) {
    let size = params.key_dim * params.value_dim;
    let base = params.base + (params.head + wid.x) * size;
    var square = 0.0;
    for (var i = lid.x; i < size; i += WG) {
        square = fma(state[base + i], state[base + i], square);
    }
    partial[lid.x] = square;
    for (var half = WG / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if lid.x < half {
            partial[lid.x] += partial[lid.x + half];
        }
    }
    workgroupBarrier();
    let rms = sqrt(partial[0] / f32(size));
    var scale = 0.0;
    if rms > 1e-20 {
        scale = params.gain / rms;
    }
    let zero = unpack(params.zero);
    let top = params.y + wid.x * params.pitch;
    for (var i = lid.x; i < STRIPE * params.width; i += WG) {
        let x = i % params.width;
        let y = wid.y * STRIPE + i / params.width;
        if y >= params.height {
            break;
        }
        let k = y * params.key_dim / params.height;
        let v = x * params.value_dim / params.width;
        let level = state[base + k * params.value_dim + v] * scale;
        let s = level / (1.0 + abs(level));
        let end = unpack(select(params.negative, params.positive, s > 0.0));
        let colour = vec3<u32>(zero + (end - zero) * abs(s) + 0.5);
        pixels[(top + y) * params.stride + params.x + x] =
            colour.x | (colour.y << 8u) | (colour.z << 16u) | 0xff000000u;
    }
}
