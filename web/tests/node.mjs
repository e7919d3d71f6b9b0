// The CPU engine in WebAssembly, in Node: the operators, whole models, and the package around them.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { cases, compare } from "./goldens.mjs";
import { assert, assertClose, assertEqual, demo, golden, site, test } from "./harness.mjs";
import { readSafetensors } from "./safetensors.mjs";

/** The files of a model, as `load` takes them. */
export const filesOf = (folder) =>
  Object.fromEntries(
    readdirSync(folder)
      .filter((name) => /^(config|generation_config|tokenizer)\.json$|^model.*\.(safetensors|index\.json)$/.test(name))
      .map((name) => [name, readFileSync(join(folder, name))]),
  );

export async function node() {
  const { load, operators, shutdown } = await import(pathToFileURL(join(site, "js", "index.js")));

  await test(`node cpu: ${cases().length} golden cases of the operators`, async () => {
    let worst = 0;
    for (const c of cases()) {
      for (const form of ["recurrent", "chunk"]) {
        worst = Math.max(worst, compare(c, form, await operators[form](c.rule, { ...c.call, device: "cpu" })));
      }
    }
    return `each within its tolerance, the worst ${worst.toExponential(1)}`;
  });

  await test("node cpu: attention is its formula", async () => {
    const [tokens, heads, headDim, window] = [37, 4, 12, 9];
    const kvHeads = 2;
    let seed = 1;
    const random = (n) => Float32Array.from({ length: n }, () => ((seed = (seed * 48271) % 2147483647) / 2147483647 - 0.5) * 4);
    const [q, k, v] = [random(tokens * heads * headDim), random(tokens * kvHeads * headDim), random(tokens * kvHeads * headDim)];
    const got = await operators.attention({ shape: { tokens, heads, kvHeads, headDim }, q, k, v, window, device: "cpu" });
    const want = new Float64Array(got.length);
    for (let t = 0; t < tokens; t++) {
      for (let h = 0; h < heads; h++) {
        const kv = Math.floor(h / (heads / kvHeads));
        const seen = Array.from({ length: Math.min(window, t + 1) }, (_, i) => t - i);
        const score = (s) => {
          let sum = 0;
          for (let d = 0; d < headDim; d++) sum += q[(t * heads + h) * headDim + d] * k[(s * kvHeads + kv) * headDim + d];
          return sum / Math.sqrt(headDim);
        };
        const weights = seen.map((s) => Math.exp(score(s)));
        const total = weights.reduce((a, b) => a + b);
        seen.forEach((s, i) => {
          for (let d = 0; d < headDim; d++) {
            want[(t * heads + h) * headDim + d] += (weights[i] / total) * v[(s * kvHeads + kv) * headDim + d];
          }
        });
      }
    }
    const worst = assertClose(got, want, 1e-5, "attention");
    const wrong = await operators.attention({ shape: { tokens, headDim }, q, k, v }).then(() => null, (e) => e);
    assert(wrong?.code === "argument", `wrong lengths are refused: ${wrong}`);
    const nowhere = await operators.attention({ shape: { tokens, headDim }, q, k, v, device: "gpu" }).then(() => null, (e) => e);
    assert(nowhere?.code === "no-gpu", `there is no GPU in Node: ${nowhere}`);
    return `worst ${worst.toExponential(1)}`;
  });

  for (const name of ["fla-gated_deltanet-tiny", "fla-delta_net-tiny"]) {
    await test(`node cpu: logits of ${name}`, async () => {
      const folder = join(golden, "checkpoints", name);
      const session = await load(filesOf(folder), { device: "cpu" });
      const expected = readSafetensors(join(folder, "expected.safetensors"));
      const ids = expected.input_ids.data;
      const vocab = session.info.vocab;
      await session.feed(ids);
      const worst = assertClose(await session.logits(), expected.logits.data.slice(-vocab), 2e-5, "logits");
      await session.dispose();
      return `within ${worst.toExponential(1)}`;
    });
  }

  await test("node cpu: the demo model's first story", async () => {
    const session = await load(filesOf(demo), { device: "cpu" });
    const expected = readSafetensors(join(demo, "expected.safetensors"));
    const ids = [...expected["0.ids"].data];
    const length = expected["0.prompt_len"].data[0];
    const { tokens } = await session.feed("Once upon a time");
    assertEqual([...tokens], ids.slice(0, length), "prompt");
    assertClose(await session.logits(), expected["0.logits_prompt"].data, 2e-5, "logits");
    const got = [];
    const run = session.generate(undefined, { temperature: 0, maxTokens: ids.length - length });
    for await (const { token } of run) got.push(token);
    assertEqual(got, ids.slice(length), "greedy ids");
    assertEqual((await run.done).finish, "length", "finish");
    assertClose(await session.logits(), expected["0.logits_last"].data, 2e-5, "logits");
    await session.dispose();
  });

  await test("node: leaving, aborting, stopping, saving, forking", async () => {
    const session = await load(filesOf(demo), { device: "cpu" });
    const options = { temperature: 0, maxTokens: 40 };
    const all = [];
    const other = await session.fork();
    for await (const { token } of other.generate("Once upon a time", options)) all.push(token);
    let count = 0;
    for await (const _ of session.generate("Once upon a time", options)) if (++count === 7) break;
    const prompt = (await session.tokens()).length - 7;
    assertEqual([...(await session.tokens())].slice(prompt), all.slice(0, 7), "tokens after leaving");
    const abort = new AbortController();
    let failed;
    try {
      for await (const _ of session.generate(undefined, { ...options, signal: abort.signal })) {
        if (++count === 12) abort.abort();
      }
    } catch (error) {
      failed = error;
    }
    assertEqual(failed?.name, "AbortError", "error");
    assertEqual([...(await session.tokens())].slice(prompt), all.slice(0, 12), "tokens after aborting");
    const bytes = await session.save();
    await other.restore(bytes);
    assertEqual([...(await other.tokens())], [...(await session.tokens())], "tokens after restoring");
    for (const s of [session, other]) {
      const rest = [];
      for await (const { token } of s.generate(undefined, { ...options, maxTokens: 28 })) rest.push(token);
      assertEqual(rest, all.slice(12), "the rest");
    }
    const stopped = session.generate(undefined, { temperature: 0, maxTokens: 60, stop: "." });
    for await (const _ of stopped);
    assert(["stop", "length"].includes((await stopped.done).finish), "finish");
    await session.dispose();
    await other.dispose();
  });

  await test("node: errors say what is wrong", async () => {
    const code = async (promise) => promise.then(() => "none", (error) => `${error.code}: ${error.message}`);
    const files = filesOf(demo);
    const { "config.json": _, ...noConfig } = files;
    assert(/^missing: config\.json/.test(await code(load(noConfig, { device: "cpu" }))), "no config");
    const cut = { ...files, "model.safetensors": files["model.safetensors"].subarray(0, 1000) };
    assert(/^format: model\.safetensors/.test(await code(load(cut, { device: "cpu" }))), "cut weights");
    assert(/^argument: device/.test(await code(load(files, { device: "toaster" }))), "device");
    const session = await load(files, { device: "cpu" });
    assert(/^argument: token 0/.test(await code(session.feed([999999]))), "token");
    assert(/^session-format: /.test(await code(session.restore(new Uint8Array(100)))), "session");
    assert(/^argument: temperature/.test(await code(session.generate("x", { temperature: -1 }).batches().next())), "temperature");
    await session.dispose();
    assert(/disposed/.test(await code(session.tokens())), "after dispose");
  });

  await test("node: the types name what there is", async () => {
    const types = readFileSync(join(site, "js", "index.d.ts"), "utf8");
    const package_ = await import(pathToFileURL(join(site, "js", "index.js")));
    const named = (text, pattern) => [...text.matchAll(pattern)].map((m) => m[1]);
    const exported = named(types, /^export (?:function|const|class) (\w+)/gm);
    assert(exported.length >= 6, `exports: ${exported}`);
    for (const name of exported) assert(package_[name] !== undefined, `${name} is not exported`);
    const session = await load(filesOf(join(golden, "checkpoints", "fla-gated_deltanet-tiny")), { device: "cpu" });
    const body = /export interface Session \{([^]*?)\n\}/.exec(types)[1];
    const members = named(body, /^ {2}(?:readonly )?(\w+)[(:]/gm);
    assert(members.length >= 15, `members: ${members}`);
    for (const name of members) assert(session[name] !== undefined, `Session.${name} does not exist`);
    const info = named(/export interface ModelInfo \{([^]*?)\n\}/.exec(types)[1], /^ {2}(\w+):/gm);
    assertEqual(Object.keys(session.info).sort(), info.sort(), "ModelInfo");
    await session.dispose();
  });

  shutdown();
}
