// The golden cases of tests/golden/ops: every rule of the family, forward.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { assertClose, assertEqual, golden } from "./harness.mjs";
import { readSafetensors } from "./safetensors.mjs";

/** The manifest's names of rules. */
const RULES = {
  "linear_attention": "linear_attention",
  "scalar_decay_linear_attention(simple_gla)": "scalar_decay",
  "deltanet": "deltanet",
  "longhorn(scalar beta)": "longhorn",
  "gated_deltanet": "gated_deltanet",
  "kda": "kda",
  "preconditioned_deltanet (g=0)": "preconditioned_deltanet",
  "preconditioned_gdn": "preconditioned_gated_deltanet",
  "preconditioned_kda": "preconditioned_kda",
};

const UNDECAYED = new Set(["linear_attention", "deltanet", "longhorn", "preconditioned_deltanet"]);

/** Stored is β = b / (1 + b‖k‖²); this is b. */
function longhorn(beta, k, keyDim) {
  return beta.map((b, i) => b / (1 - b * k.subarray(i * keyDim, (i + 1) * keyDim).reduce((sum, x) => sum + x * x, 0)));
}

/** `{name, rule, call, want, tolerance}` of every case: tensors as typed arrays. */
export function cases() {
  const folder = join(golden, "ops");
  const { cases } = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
  assertEqual(cases.length, 27, "cases");
  return cases.map((c) => {
    const t = readSafetensors(join(folder, c.file));
    const rule = RULES[c.variant];
    const [batch, tokens, heads, keyDim] = t.q.shape;
    const [, , valueHeads, valueDim] = t.v.shape;
    const call = {
      shape: { batch, tokens, heads, valueHeads, keyDim, valueDim },
      q: t.q.data,
      k: t.k.data,
      v: t.v.data,
      beta: rule === "longhorn" ? longhorn(t.beta.data, t.k.data, keyDim) : t.beta?.data,
      // Rules without a decay have one of zeros in the files.
      g: UNDECAYED.has(rule) ? undefined : t.g?.data,
      initialState: t.initial_state?.data,
      precond: t.g_atk && { g: t.g_atk.data, beta: t.beta_atk.data, logScale: t.log_atk_scale.data, initial: t.initial_A_state?.data },
      cuSeqlens: c.cu_seqlens ? Uint32Array.from(c.cu_seqlens) : undefined,
      l2norm: Boolean(c.params.use_qk_l2norm),
    };
    const truth = (name) => (t[`${name}_f64`] ?? t[name])?.data;
    const want = { o: truth("o"), finalState: truth("final_state"), finalSums: truth("final_A_state") };
    return { name: c.name, rule, call, want, tolerance: c.tolerance_f32 };
  });
}

/** Compares one result; returns the largest error. */
export function compare({ name, want, tolerance }, form, got) {
  const most = tolerance[`${form}_relmax`];
  const parts = Object.keys(want).filter((part) => want[part]);
  return Math.max(...parts.map((part) => assertClose(got[part], want[part], most, `${name} ${form} ${part}`)));
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
