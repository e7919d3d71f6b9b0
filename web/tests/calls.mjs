// How the package's calls behave: what can be stopped, what is refused, and in which words. In Node.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { assert, assertClose, assertEqual, demo, golden, native, site, test } from "./harness.mjs";
import { filesOf } from "./node.mjs";

export const TINY = join(golden, "checkpoints", "fla-gated_deltanet-tiny");
export const failure = (promise) => Promise.resolve(promise).then(() => undefined, (error) => error);
/** What an error says to whoever shows it. */
export const words = async (promise) => {
  const error = await failure(promise);
  return error && `${error.name} ${error.code}: ${error.message}`;
};
/** Fails where a call hangs. */
export const soon = (promise, what) =>
  Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`${what}: no answer in 20 s`)), 20_000).unref())]);

export async function calls() {
  const { load, shutdown } = await import(pathToFileURL(join(site, "js", "index.js")));

  await test("node: a long prompt tells how far it is, and takes no time to stop", async () => {
    const session = await load(filesOf(demo), { device: "cpu" });
    await session.feed("Once upon a time");
    const before = await session.tokens();
    const logits = await session.logits();
    const long = Uint32Array.from({ length: 3000 }, (_, i) => 10 + (i * 7919) % 3000);
    const same = async (what) => {
      assertEqual([...(await session.tokens())], [...before], `tokens after ${what}`);
      assertClose(await session.logits(), logits, 0, `logits after ${what}`);
    };
    for (const method of ["feed", "gates", "score"]) {
      const abort = new AbortController();
      let [calls, at] = [0, 0];
      const onProgress = ({ read, total }) => {
        assertEqual(total, long.length, "total");
        assert(read >= at, `${read} after ${at}`);
        at = read;
        if (++calls === 3) abort.abort();
      };
      const error = await failure(soon(session[method](long, { signal: abort.signal, onProgress }), method));
      assertEqual(error?.name, "AbortError", `error of ${method}`);
      assert(at > 0 && at < 300, `${method} stopped after ${at} tokens`);
      await same(method);
      assertEqual(await failure(session[method](long, { signal: AbortSignal.abort(new Error("early")) })).then((e) => e.message), "early", "an abort before");
      await same(method);
    }
    // The same in a generation, by its signal and by stop().
    for (const end of ["abort", "stop"]) {
      const abort = new AbortController();
      let calls = 0;
      const run = session.generate(long, { signal: abort.signal, onProgress: () => ++calls === 3 && (end === "stop" ? run.stop() : abort.abort()) });
      const first = soon(run.batches().next(), end);
      if (end === "stop") {
        assertEqual((await first).done, true, "the iteration");
        assertEqual(await run.done, { finish: "cancelled", endToken: null, tail: "" }, "done");
      } else {
        assertEqual((await failure(first))?.name, "AbortError", "error");
      }
      await same(`generate and ${end}`);
    }
    // A session that goes while it reads.
    const other = await session.fork();
    let read = false;
    const reading = failure(other.gates(long)).finally(() => (read = true));
    await soon(session.tokens(), "another session");
    assertEqual(read, false, "another session is answered meanwhile");
    await soon(other.dispose(), "dispose");
    assertEqual((await reading)?.code, "disposed", "a session that goes while it reads");
    await same("dispose of another");
    await session.dispose();
  });

  await test("node: in pieces or whole, a prompt is the same", async () => {
    const session = await load(filesOf(demo), { device: "cpu" });
    const ids = Uint32Array.from({ length: 300 }, (_, i) => 10 + (i * 7919) % 3000);
    const other = await session.fork();
    let last;
    await session.feed(ids, { onProgress: (p) => (last = p) });
    assertEqual(last, { read: 300, total: 300 }, "progress at the end");
    const whole = await other.gates(ids);
    assertClose(await session.logits(), await other.logits(), 2e-5, "logits");
    await other.reset();
    const parts = [];
    for (let i = 0; i < ids.length; i += 100) parts.push(...(await other.gates(ids.subarray(i, i + 100))));
    assertClose(parts, whole, 2e-5, "gates");
    await other.reset();
    const nll = await other.score(ids);
    assertEqual(nll.length, ids.length - 1, "scores");
    await other.reset();
    assertClose([...(await other.score(ids.subarray(0, 77))), ...(await other.score(ids.subarray(77)))], nll, 2e-5, "scores");
    await session.dispose();
    await other.dispose();
  });

  await test("node: a session that generates refuses other calls, and never hangs", async () => {
    const session = await load(filesOf(TINY), { device: "cpu" });
    await session.feed([1, 2, 3]);
    const others = {
      save: () => session.save(),
      fork: () => session.fork(),
      tokens: () => session.tokens(),
      logits: () => session.logits(),
      reset: () => session.reset(),
      feed: () => session.feed([1]),
      score: () => session.score([1]),
      gates: () => session.gates([1]),
      restore: () => session.restore(new Uint8Array(9)),
      generate: () => session.generate().batches().next(),
      "generate, done": () => session.generate([1]).done,
    };
    let count = 0;
    const options = { maxTokens: 6, temperature: 0, stopAtEndOfText: false };
    for await (const _ of session.generate(undefined, options)) {
      count += 1;
      for (const [name, call] of Object.entries(others)) {
        assert(/^DeltanetError busy: session: /.test(await words(soon(call(), name))), `${name} inside the loop`);
      }
    }
    assertEqual(count, 6, "tokens");
    assertEqual((await session.tokens()).length, 9, "tokens of the session");
    // Nobody iterates: it runs to its end for whoever waits for that.
    const run = session.generate([4], options);
    const { finish, prompt } = await soon(run.done, "done");
    assertEqual([finish, [...prompt.tokens]], ["length", [4]], "how it ended");
    assertEqual((await session.tokens()).length, 16, "tokens of the session");
    assert(/once/.test(await words(soon(run.batches().next(), "a second iteration"))), "a second iteration");
    // After stop() calls wait for its end, and do not ask for more pieces.
    const stopped = session.generate(undefined, { ...options, maxTokens: 1000 });
    await stopped.batches().next();
    stopped.stop();
    const length = (await soon(session.tokens(), "tokens after stop()")).length;
    assert(length > 16 && length < 600, `${length} tokens`);
    assertEqual((await session.fork().then((f) => f.dispose())) >= 0, true, "fork after stop()");
    await session.dispose();
  });

  await test("node: an empty prompt begins a text, as in the native program", async () => {
    const session = await load(filesOf(demo), { device: "cpu" });
    const options = { maxTokens: 5, temperature: 0 };
    const fed = await session.feed("");
    assertEqual([...fed.tokens], [session.info.bos], "tokens of feed(\"\")");
    const greedy = async (run) => {
      const ids = [];
      for await (const { token } of run) ids.push(token);
      return ids;
    };
    const want = await greedy(session.generate(undefined, options));
    await session.reset();
    const run = session.generate("", options);
    assertEqual(await greedy(run), want, "tokens");
    assertEqual([...(await run.done).prompt.tokens], [session.info.bos], "prompt");
    if (existsSync(native)) {
      const lines = execFileSync(native, ["", "--device", "cpu", "--temperature", "0", "--max-tokens", "5", "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
      const tokens = lines.trim().split("\n").map((l) => JSON.parse(l).token).filter((t) => t !== undefined);
      assertEqual(tokens, want, "the native program's tokens");
    }
    // In mid-text it adds nothing.
    const before = (await session.tokens()).length;
    assertEqual([...(await session.feed("")).tokens], [], "tokens");
    await greedy(session.generate("", { ...options, maxTokens: 1 }));
    assertEqual((await session.tokens()).length, before + 1, "length");
    await session.reset();
    assert(/^DeltanetError argument: prompt: expected at least one token/.test(await words(session.generate().done)), "no prompt");
    await session.dispose();
  });

  await test("node: what onProgress throws rejects its call, which leaves all as an abort would", async () => {
    const session = await load(filesOf(demo), { device: "cpu" });
    await session.feed("Once upon a time");
    const [before, logits] = [await session.tokens(), await session.logits()];
    const same = async (what) => {
      assertEqual([...(await session.tokens())], [...before], `tokens after ${what}`);
      assertClose(await session.logits(), logits, 0, `logits after ${what}`);
    };
    const mine = new Error("the application's own");
    const calls = {
      feed: (prompt, options) => session.feed(prompt, options),
      score: (prompt, options) => session.score(prompt, options),
      gates: (prompt, options) => session.gates(prompt, options),
      "generate, iterated": (prompt, options) => session.generate(prompt, options).batches().next(),
      "generate, done": (prompt, options) => session.generate(prompt, options).done,
    };
    const long = Uint32Array.from({ length: 600 }, (_, i) => 10 + (i * 7919) % 3000);
    for (const [name, call] of Object.entries(calls)) {
      for (const prompt of [long, [11], ...(/feed|generate/.test(name) ? ["A cat"] : [])]) {
        const what = `${name} of ${prompt.length}`;
        let heard = 0;
        const throwing = () => {
          heard += 1;
          throw mine;
        };
        assert((await failure(soon(call(prompt, { onProgress: throwing }), what))) === mine, `${what}: another error`);
        assertEqual(heard, 1, `${what}: calls of onProgress`);
        await same(what);
      }
      // Later, and from a promise; what is thrown matters more than an abort by it.
      let reports = 0;
      const later = async ({ read }) => {
        if (read > 0 && ++reports === 2) throw mine;
      };
      assert((await failure(soon(call(long, { onProgress: later }), name))) === mine, `${name}: another error of a promise`);
      await same(`${name} and a promise`);
      const abort = new AbortController();
      const both = () => {
        abort.abort();
        throw mine;
      };
      assert((await failure(soon(call(long, { onProgress: both, signal: abort.signal }), name))) === mine, `${name}: another error beside an abort`);
      await same(`${name} and an abort`);
      // An abort by it takes effect, however short the prompt is.
      const alone = new AbortController();
      const error = await failure(soon(call([11], { onProgress: () => alone.abort(), signal: alone.signal }), name));
      assertEqual(error?.name, "AbortError", `${name}, aborted`);
      await same(`${name}, aborted`);
    }
    // At the end all has been read.
    const last = ({ read, total }) => {
      if (read === total) throw mine;
    };
    assert((await failure(soon(session.feed([11, 12], { onProgress: last }), "feed"))) === mine, "an error at the end");
    assertEqual([...(await session.tokens())].slice(before.length), [11, 12], "tokens");
    const run = session.generate([13], { onProgress: last, maxTokens: 1000 });
    const got = [];
    const error = await failure(soon((async () => {
      for await (const { token } of run) got.push(token);
    })(), "generate"));
    assert(error === mine && (await failure(run.done)) === mine, `an error at the end of a generation's prompt: ${error}`);
    assert(got.length < 100, `${got.length} tokens`);
    assertEqual([...(await session.tokens())].slice(before.length + 2), [13, ...got], "the session after exactly what was handed out");

    // Loading: at its first and its last report.
    let reports = 0;
    await (await load(filesOf(TINY), { onProgress: () => (reports += 1) })).dispose();
    for (const at of [1, reports]) {
      let count = 0;
      const onProgress = () => {
        if (++count === at) throw mine;
      };
      assert((await failure(soon(load(filesOf(TINY), { onProgress }), "load"))) === mine, `report ${at} of a load`);
    }
    await session.dispose();
  });

  await test("node: errors tell apart what is wrong", async () => {
    const { "config.json": _, ...noConfig } = filesOf(TINY);
    assert(/^DeltanetError missing: config\.json: not found/.test(await words(load(noConfig))), "no config.json");
    const { "model.safetensors": __, ...noWeights } = filesOf(TINY);
    assert(/^DeltanetError missing: model\.safetensors: not found/.test(await words(load(noWeights))), "no weights");
    // The config tells before the weights are read.
    const config = JSON.stringify({ ...JSON.parse(readFileSync(join(TINY, "config.json"))), model_type: "llama" });
    const foreign = { "model.safetensors": new Uint8Array(32 << 20), "config.json": new TextEncoder().encode(config) };
    let most = 0;
    const onProgress = ({ done }) => (most = Math.max(most, done));
    assert(/^DeltanetError config: config\.json: model_type: /.test(await words(load(foreign, { onProgress }))), "another family");
    assert(most <= config.length, `${most} bytes read of a model that cannot be run`);
    // So does a config that is none, or larger than the weights; and a file of weights that is not there.
    const weights = new Uint8Array(16 << 20);
    const named = (...files) => JSON.stringify({ weight_map: Object.fromEntries(files.map((file, i) => [`tensor ${i}`, file])) });
    for (const [what, files, pattern, bytes] of [
      ["an empty config", { "config.json": "", "model.safetensors": weights }, /^DeltanetError format: config\.json: /, 0],
      ["no JSON", { "config.json": "<html>", "model.safetensors": weights }, /^DeltanetError format: config\.json: /, 6],
      ["no text", { "config.json": new Uint8Array([255, 254]), "model.safetensors": weights }, /^DeltanetError format: config\.json: expected UTF-8/, 2],
      ["a huge config", { "config.json": new Uint8Array(5 << 20), "model.safetensors": weights }, /^DeltanetError format: config\.json: expected at most 4194304 bytes, got 5242880$/, 0],
      ["a config larger than the weights", { "config.json": config + " ".repeat(99), "model.safetensors": new Uint8Array(9), "tokenizer.json": "{}" }, /^DeltanetError config: /, config.length + 99],
      [
        "a file of weights that the index names",
        { "config.json": readFileSync(join(TINY, "config.json"), "utf8"), "model.safetensors.index.json": named("a.safetensors", "b.safetensors"), "a.safetensors": weights },
        /^DeltanetError missing: b\.safetensors: not found, but named in model\.safetensors\.index\.json$/,
        1 << 16,
      ],
    ]) {
      most = 0;
      const blobs = Object.fromEntries(Object.entries(files).map(([name, data]) => [name, new Blob([data])]));
      const said = await words(load(blobs, { onProgress }));
      assert(pattern.test(said), `${what}: ${said}`);
      assert(most <= bytes, `${what}: ${most} bytes read`);
    }
    // What the index does not name is left alone.
    const { "model.safetensors": all, ...rest } = filesOf(TINY);
    const header = JSON.parse(new TextDecoder().decode(all.subarray(8, 8 + Number(new DataView(all.buffer, all.byteOffset).getBigUint64(0, true)))));
    const index = JSON.stringify({ weight_map: Object.fromEntries(Object.keys(header).filter((n) => n !== "__metadata__").map((n) => [n, "part-1.safetensors"])) });
    const sharded = { ...rest, "model.safetensors.index.json": new Blob([index]), "part-1.safetensors": all, "consolidated.safetensors": weights };
    most = 0;
    await (await load(sharded, { onProgress: ({ stage, done }) => stage === "reading" && onProgress({ done }) })).dispose();
    assert(most < weights.length, `${most} bytes read`);

    const session = await load(filesOf(TINY));
    await session.feed([1, 2, 3]);
    const saved = await session.save();
    for (const length of [0, 10, 30, 100, saved.length - 1]) {
      assert(/^DeltanetError session-format: /.test(await words(session.restore(saved.slice(0, length)))), `${length} bytes of a saved session`);
    }
    const changed = saved.slice();
    changed[60] ^= 1;
    assert(/^DeltanetError session-format: .*checksum/.test(await words(session.restore(changed))), "one bit of a saved session");
    const other = await load(filesOf(join(golden, "checkpoints", "fla-delta_net-tiny")));
    assert(/^DeltanetError session: .*another model/.test(await words(other.restore(saved))), "another model's session");
    // A view of a larger buffer is what it shows, not the buffer.
    const padded = new Uint8Array(saved.length + 16);
    padded.set(saved, 8);
    assertEqual([...(await session.restore(padded.subarray(8, 8 + saved.length)))], [1, 2, 3], "restored");
    await other.dispose();

    // After its end a session says so, whatever it is asked.
    await session.dispose();
    assertEqual(await session.dispose(), await session.dispose(), "dispose again");
    const after = {
      tokens: () => session.tokens(),
      feed: () => session.feed([1]),
      generate: () => session.generate([1]).done,
      encode: () => session.encode("a"),
      save: () => session.save(),
      fork: () => session.fork(),
    };
    for (const [what, call] of Object.entries(after)) {
      assertEqual(await words(soon(call(), what)), "DeltanetError disposed: session: it has been disposed of", what);
    }
    // A session of an engine that was shut down is none of the next engine's.
    const old = await load(filesOf(TINY));
    await old.feed([1]);
    shutdown();
    const next = await load(filesOf(TINY));
    await next.feed([2, 3]);
    assert(/^DeltanetError disposed: session: its engine has ended/.test(await words(old.tokens())), "an old session");
    assertEqual(await old.dispose(), 0, "dispose of an old session");
    assertEqual([...(await next.tokens())], [2, 3], "the new session");
    const loading = words(load(filesOf(demo)));
    shutdown();
    assertEqual(await loading, "DeltanetError disposed: engine: it was shut down", "a load that is shut down");
  });

  await test("node: every code of an error is documented", async () => {
    const documented = new Set([.../export type ErrorCode =([^]*)/.exec(readFileSync(join(site, "js", "index.d.ts"), "utf8"))[1].matchAll(/"([\w-]+)"/g)].map((m) => m[1]));
    const rust = readFileSync(new URL("../src/error.rs", import.meta.url), "utf8");
    const codes = [...rust.matchAll(/=> "([\w-]+)",/g)].map((m) => m[1]);
    assert(codes.length > 10, `codes: ${codes}`);
    for (const code of [...codes, "busy", "disposed", "crashed"]) assert(documented.has(code), `${code} is not documented`);
  });

  shutdown();
}
