// The DeltaNet and Gated DeltaNet forward cases of tests/golden/ops.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assertClose, golden } from "./harness.mjs";
import { readSafetensors } from "./safetensors.mjs";

const RULES = { dn: "deltanet", gdn: "gated_deltanet" };

/** `{name, rule, call, want, tolerance}` of every case: tensors as typed arrays. */
export function cases() {
  const folder = join(golden, "ops");
  const { cases } = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  const wanted = cases.filter((c) => RULES[c.name.split("_")[0]] && !c.gradients);
  return wanted.map((c) => {
    const t = readSafetensors(join(folder, c.file));
    const [batch, tokens, heads, keyDim] = t.q.shape;
    const [, , valueHeads, valueDim] = t.v.shape;
    const call = {
      shape: { batch, tokens, heads, valueHeads, keyDim, valueDim },
      q: t.q.data,
      k: t.k.data,
      v: t.v.data,
      beta: t.beta.data,
      g: t.g?.data,
      initialState: t.initial_state?.data,
      cuSeqlens: t.cu_seqlens && Uint32Array.from(t.cu_seqlens.data),
      l2norm: Boolean(c.params.use_qk_l2norm),
    };
    const want = { o: (t.o_f64 ?? t.o).data, finalState: (t.final_state_f64 ?? t.final_state).data };
    return { name: c.name, rule: RULES[c.name.split("_")[0]], call, want, tolerance: c.tolerance_f32 };
  });
}

/** Compares one result; returns the larger error. */
export function compare({ name, want, tolerance }, form, got) {
  const most = tolerance[`${form}_relmax`];
  const o = assertClose(got.o, want.o, most, `${name} ${form} o`);
  return Math.max(o, assertClose(got.finalState, want.finalState, most, `${name} ${form} final state`));
}

/** The fewest bytes that carry typed arrays into a page: base64, since JSON has no binary. */
export const pack = (value) =>
  JSON.stringify(value, (_, v) =>
    ArrayBuffer.isView(v)
      ? { type: v.constructor.name, base64: Buffer.from(v.buffer, v.byteOffset, v.byteLength).toString("base64") }
      : v,
  );

/** Its inverse, as text to be run in a page. */
export const UNPACK = `(text) => JSON.parse(text, (_, v) => v?.base64 === undefined ? v
  : new globalThis[v.type](Uint8Array.from(atob(v.base64), (c) => c.charCodeAt(0)).buffer))`;
