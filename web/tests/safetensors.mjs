// Reads safetensors files of the tests.

import { readFileSync } from "node:fs";

const TYPES = { F32: Float32Array, F64: Float64Array, I32: Int32Array, I64: BigInt64Array };

/** `{name: {shape, data}}`; 64-bit integers become 32-bit ones. */
export function readSafetensors(path) {
  const file = readFileSync(path);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString());
  const tensors = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [from, to] = entry.data_offsets;
    // A copy: the data of a file need not lie at a multiple of its element's size.
    const bytes = Uint8Array.from(file.subarray(8 + length + from, 8 + length + to));
    let data = new TYPES[entry.dtype](bytes.buffer);
    if (data instanceof BigInt64Array) data = Int32Array.from(data, Number);
    tensors[name] = { shape: entry.shape, data };
  }
  return tensors;
}
