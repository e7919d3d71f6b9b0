// ?bench: the model's part of `deltanet bench`, in this browser: checked, then timed, with the same table.

import { load } from "./js/index.js";
import { $, make, number } from "./dom.js";

/** Largest difference of logits to the CPU engine's token-by-token form, relative to the largest logit. */
const TOLERANCE = 1e-3;
const CHECKED = 100;
const CONTEXT = 16;
const RUNS = 5;
const LIMIT_MS = 10_000;

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

function error(got, want) {
  const scale = want.reduce((m, x) => Math.max(m, Math.abs(x)), 0);
  return got.reduce((worst, x, i) => Math.max(worst, Math.abs(x - want[i])), 0) / scale;
}

async function check(session, source, tokens) {
  const reference = await load(source, { device: "cpu", sessions: 1 });
  try {
    for (const token of tokens) await reference.feed([token]);
    await session.reset();
    await session.feed(tokens);
    const off = error(await session.logits(), await reference.logits());
    if (!(off <= TOLERANCE)) throw new Error(`expected logits within ${TOLERANCE} of the CPU's step by step, got ${off}`);
    return off;
  } finally {
    await reference.dispose();
  }
}

export async function bench(session, source) {
  const { info } = session;
  const body = make("tbody");
  const cells = (tag, list) => make("tr", {}, ...list.map((text) => make(tag, { textContent: text })));
  const head = make("thead", {}, cells("th", [`model (${info.modelType})`, "median", "min", "GPU", "rate", "error"]));
  const note = make("p", { className: "small", textContent: "Checking against the CPU engine, token by token." });
  $("welcome").replaceChildren(make("h2", { textContent: "How fast this browser is" }), make("p", { textContent: info.device }), make("table", { className: "bench" }, head, body), note);
  $("welcome").hidden = false;

  let seed = 2;
  const random = (n) => Uint32Array.from({ length: n }, () => (seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0) % info.vocab);
  const off = await check(session, source, random(CHECKED));
  const rows = [];
  const add = (name, wall, tokens) => {
    const rate = (1000 * tokens) / wall.median;
    rows.push({ group: "model", name, wall, gpu: null, rate, unit: "tokens/s", error: off });
    body.append(cells("td", [name, time(wall.median), time(wall.min), "–", `${number(rate)} tokens/s`, off.toExponential(0)]));
  };
  for (const n of [512, 2048]) {
    note.textContent = `Reading ${n} tokens.`;
    const prompt = random(n);
    const wall = await measure(async () => {
      await session.reset();
      return milliseconds(async () => {
        await session.feed(prompt);
        await session.logits();
      });
    });
    add(`prefill of ${n}, 1 session`, wall, n);
  }
  note.textContent = "Writing 128 tokens.";
  const prompt = random(CONTEXT);
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
  add("decode of 128, 1 session", wall, 128);
  await session.reset();
  note.textContent = "Done.";
  $("welcome").dataset.bench = JSON.stringify({ device: info.device, rows, skipped: [] });
  return rows;
}
