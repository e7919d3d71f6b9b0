// ?bench: what `deltanet bench` measures and a page can: checked, then timed, with the same rows. `?bench=model` or
// `?bench=operator,attention` runs only those parts. Operators take arrays and give arrays: what an application pays.

import { load, operators } from "./js/index.js";
import { $, make, number } from "./dom.js";

/** Largest difference of logits to the CPU engine's token-by-token form, relative to the largest logit. */
const MODEL_TOLERANCE = 1e-3;
/** Of an operator's result to the CPU engine's recurrence, and of attention to the CPU engine's. */
const OPERATOR_TOLERANCE = 1e-4;
const ATTENTION_TOLERANCE = 1e-5;
const CHECKED = 100;
const CONTEXT = 16;
const RUNS = 5;
const LIMIT_MS = 10_000;
const TOKENS = 1024;
const HEADS = 16;
const DIM = 128;
const WINDOW = 512;

/** Names of the rules, and what each takes beside q, k, v: writing strengths; decays a head (1) or a channel (2). */
const RULES = {
  linear_attention: {},
  scalar_decay: { decay: 1 },
  channel_decay: { decay: 2 },
  deltanet: { beta: true },
  gated_deltanet: { beta: true, decay: 1 },
  kda: { beta: true, decay: 2 },
  longhorn: { beta: true },
  preconditioned_deltanet: { beta: true, sums: true },
  preconditioned_gated_deltanet: { beta: true, decay: 1, sums: true },
  preconditioned_kda: { beta: true, decay: 2, sums: true },
};

/** Runs `work` once unmeasured, then up to RUNS times; it returns the milliseconds that count. */
async function measure(work) {
  await work();
  const all = [];
  const start = performance.now();
  while (all.length === 0 || (all.length < RUNS && performance.now() - start < LIMIT_MS)) all.push(await work());
  all.sort((a, b) => a - b);
  const [low, high] = [all[Math.floor((all.length - 1) / 2)], all[Math.floor(all.length / 2)]];
  return { median: (low + high) / 2, min: all[0], runs: all.length };
}

async function milliseconds(work) {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

/** `12.3 ms`. */
const time = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : ms >= 1 ? `${ms.toFixed(1)} ms` : `${(1000 * ms).toFixed(0)} µs`);

/** Largest difference, relative to the largest value; fails beyond `most`. */
function compare(got, want, most, what) {
  const scale = want.reduce((m, x) => Math.max(m, Math.abs(x)), 0);
  let worst = got.length === want.length ? 0 : Infinity;
  for (let i = 0; i < want.length; i++) {
    const off = Math.abs(got[i] - want[i]) / scale;
    if (!(off <= worst)) worst = off;
    // Nothing is worse, and no comparison would find it again.
    if (Number.isNaN(worst)) break;
  }
  if (!(worst <= most)) throw new Error(`${what}: expected a result within ${most} of the CPU engine's, got ${worst}`);
  return worst;
}

/** Random numbers, the same in every run. */
function randomness(seed) {
  const next = () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0);
  return {
    tokens: (n, vocab) => Uint32Array.from({ length: n }, () => next() % vocab),
    floats: (n, low, high) => Float32Array.from({ length: n }, () => low + ((high - low) * next()) / 2 ** 32),
  };
}

async function checkModel(session, source, tokens) {
  const reference = await load(source, { device: "cpu", sessions: 1 });
  try {
    for (const token of tokens) await reference.feed([token]);
    await session.reset();
    await session.feed(tokens);
    const off = compare(await session.logits(), await reference.logits(), MODEL_TOLERANCE, "logits");
    return off;
  } finally {
    await reference.dispose();
  }
}

/** Random tensors for `batch` sequences of `tokens`. */
function tensors({ beta, decay, sums }, batch, tokens) {
  const { floats } = randomness(1);
  const rows = batch * tokens;
  const channels = rows * HEADS * DIM;
  const [q, k, v] = [0, 0, 0].map(() => floats(channels, -1, 1));
  return {
    shape: { batch, tokens, heads: HEADS, valueHeads: HEADS, keyDim: DIM, valueDim: DIM },
    q, k, v, l2norm: true,
    beta: beta && floats(rows * HEADS, 0.05, 0.95),
    g: decay && floats(decay === 2 ? channels : rows * HEADS, -0.2, 0),
    precond: sums && { g: floats(rows * HEADS, -0.1, 0), beta: floats(rows * HEADS, 0.05, 0.95), logScale: floats(HEADS, -0.5, 0) },
  };
}

async function benchOperators(device, table) {
  table.head("operator (f32), arrays in and out");
  for (const [rule, takes] of Object.entries(RULES)) {
    for (const [form, batch, tokens] of [["chunk", 1, TOKENS], ["recurrent", 1, 1], ["recurrent", 64, 1]]) {
      const what = form === "chunk" ? `T=${tokens}` : `step of ${batch}`;
      const name = `${rule} ${what} ${HEADS}/${HEADS} heads ${DIM}×${DIM}`;
      table.tell(name);
      const call = tensors(takes, batch, tokens);
      const want = await operators.recurrent(rule, { ...call, device: "cpu" });
      const got = await operators[form](rule, { ...call, device });
      const off = Math.max(...["o", "finalState"].map((part) => compare(got[part], want[part], OPERATOR_TOLERANCE, name)));
      const wall = await measure(() => milliseconds(() => operators[form](rule, { ...call, device })));
      table.add("operator", name, wall, batch * tokens, off);
    }
  }
}

async function benchAttention(device, table) {
  table.head("attention (f32), arrays in and out");
  for (const window of [undefined, WINDOW]) {
    const kvHeads = HEADS / 4;
    const name = `${window ? `a window of ${window}` : "all"}, T=${TOKENS}, ${HEADS}/${kvHeads} heads of ${DIM}`;
    table.tell(name);
    const { floats } = randomness(1);
    const [q, k, v] = [HEADS, kvHeads, kvHeads].map((h) => floats(TOKENS * h * DIM, -1, 1));
    const call = { shape: { tokens: TOKENS, heads: HEADS, kvHeads, headDim: DIM }, q, k, v, window };
    const want = await operators.attention({ ...call, device: "cpu" });
    const off = compare(await operators.attention({ ...call, device }), want, ATTENTION_TOLERANCE, name);
    const wall = await measure(() => milliseconds(() => operators.attention({ ...call, device })));
    table.add("attention", name, wall, TOKENS, off);
  }
}

async function benchModel(session, source, table) {
  const { info } = session;
  table.head(`model (${info.modelType})`);
  const random = randomness(2);
  table.tell("Checking against the CPU engine, token by token.");
  const off = await checkModel(session, source, random.tokens(CHECKED, info.vocab));
  for (const n of [512, 2048]) {
    const name = `prefill of ${n}, 1 session`;
    table.tell(name);
    const prompt = random.tokens(n, info.vocab);
    const wall = await measure(async () => {
      await session.reset();
      return milliseconds(async () => {
        await session.feed(prompt);
        await session.logits();
      });
    });
    table.add("model", name, wall, n, off);
  }
  const name = "decode of 128, 1 session";
  table.tell(name);
  const prompt = random.tokens(CONTEXT, info.vocab);
  const wall = await measure(async () => {
    await session.reset();
    await session.feed(prompt);
    await session.logits();
    return milliseconds(async () => {
      const run = session.generate(undefined, { maxTokens: 128, stopAtEndOfText: false });
      for await (const _ of run.batches());
      await run.done;
    });
  });
  table.add("model", name, wall, 128, off);
  await session.reset();
}

/** The table on the page, which grows row by row, and its rows as data. */
function tableOf(info) {
  const element = make("table", { className: "bench" });
  const note = make("p", { className: "small" });
  const cells = (tag, list) => make("tr", {}, ...list.map((text) => make(tag, { textContent: text })));
  const rows = [];
  $("welcome").replaceChildren(make("h2", { textContent: "How fast this browser is" }), make("p", { textContent: info.device }), element, note);
  $("welcome").hidden = false;
  return {
    rows,
    tell: (what) => (note.textContent = what),
    head: (title) => element.append(make("tbody", {}, cells("th", [title, "median", "min", "rate", "error"]))),
    add(group, name, wall, tokens, error) {
      const rate = (1000 * tokens) / wall.median;
      rows.push({ group, name, wall, gpu: null, rate, unit: "tokens/s", error });
      element.lastElementChild.append(cells("td", [name, time(wall.median), time(wall.min), `${number(rate)} tokens/s`, error.toExponential(0)]));
    },
  };
}

/** Runs the named parts, all of them if there are none; leaves the rows as JSON in `#welcome[data-bench]`. */
export async function bench(session, source, parts) {
  const { info } = session;
  const table = tableOf(info);
  const wanted = (part) => parts.length === 0 || parts.includes(part);
  try {
    if (wanted("operator")) await benchOperators(info.engine, table);
    if (wanted("attention")) await benchAttention(info.engine, table);
    if (wanted("model")) await benchModel(session, source, table);
    table.tell("Done. GPU times, copy bandwidth and matrix products are what the native program's `deltanet bench` adds.");
  } catch (error) {
    table.tell(`Stopped: ${error.message}`);
    throw error;
  } finally {
    $("welcome").dataset.bench = JSON.stringify({ device: info.device, rows: table.rows, skipped: ["copy", "matmul"] });
  }
}
