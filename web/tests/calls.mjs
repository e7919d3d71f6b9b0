// How the package's calls behave: what can be stopped, what is refused, and in which words. In Node.

import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { assert, assertClose, assertEqual, demo, golden, native, site, test } from "./harness.mjs";
import { filesOf } from "./node.mjs";

const TINY = join(golden, "checkpoints", "fla-gated_deltanet-tiny");
const failure = (promise) => Promise.resolve(promise).then(() => undefined, (error) => error);
/** What an error says to whoever shows it. */
const words = async (promise) => {
  const error = await failure(promise);
  return error && `${error.name} ${error.code}: ${error.message}`;
};
/** Fails where a call hangs. */
const soon = (promise, what) =>
  Promise.race([promise, new Promise((_, reject) => setTimeout(() => reject(new Error(`${what}: no answer in 20 s`)), 20_000).unref())]);

export async function calls() {
  const { DeltanetError, load, open, operators, shutdown, storage } = await import(pathToFileURL(join(site, "js", "index.js")));

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

  await test("node: arguments are checked before anything changes", async () => {
    const session = await load(filesOf(TINY), { device: "cpu" });
    const start = (options, prompt = [1, 2]) => session.generate(prompt, options).batches().next();
    const refused = {
      "feed a text without tokenizer": [() => session.feed("a"), /^DeltanetError tokenizer: .*none/],
      "feed(5)": [() => session.feed(5), /tokens: expected a text or an array of token ids, got 5$/],
      "feed()": [() => session.feed(), /got undefined$/],
      "feed(null)": [() => session.feed(null), /got null$/],
      "feed(function)": [() => session.feed(() => 1), /got a function$/],
      "a word": [() => session.feed([1, "a"]), /token 1: expected an id, a whole number below 256, got "a"$/],
      "a fraction": [() => session.feed([1.5]), /got 1\.5$/],
      "below zero": [() => session.feed([-1]), /got -1$/],
      "no number": [() => session.feed([NaN]), /got NaN$/],
      "a bigint": [() => session.feed([1n]), /got 1$/],
      "beyond the vocabulary": [() => session.feed([256]), /below 256, got 256$/],
      "feed options": [() => session.feed([1], 5), /options: expected an object, got 5$/],
      "feed signal": [() => session.feed([1], { signal: 5 }), /signal: expected an AbortSignal, got 5$/],
      "feed onProgress": [() => session.feed([1], { onProgress: "x" }), /onProgress: expected a function, got "x"$/],
      score: [() => session.score("abc"), /tokens: expected an array of token ids, got "abc"$/],
      gates: [() => session.gates([[]]), /token 0: .*got an array$/],
      decode: [() => session.decode([-1]), /token 0: /],
      encode: [() => session.encode(5), /text: expected a text, got 5$/],
      restore: [() => session.restore(5), /saved session: expected an ArrayBuffer, a Uint8Array or a Blob, got 5$/],
      "generate a word": [() => start({}, ["a"]), /token 0: /],
      "generate options": [() => start(5), /options: expected an object, got 5$/],
      temperature: [() => start({ temperature: -1 }), /temperature/],
      "temperature in words": [() => start({ temperature: "hot" }), /temperature: expected a number/],
      maxTokens: [() => start({ maxTokens: 1.5 }), /maxTokens/],
      "an empty stop": [() => start({ stop: "" }), /stop/],
      "a stop without tokenizer": [() => start({ stop: "." }), /^DeltanetError tokenizer: /],
      "an option that cannot be sent": [() => start({ temperature: () => 1 }), /cannot|sent/],
      batches: [() => session.generate([1]).batches(0).next(), /most: expected a whole number of at least 1, got 0$/],
      view: [() => session.view(undefined), /canvas: expected a canvas element, got undefined$/],
      "load()": [() => load(), /source: expected an address, files, or a map from names to bytes, got undefined$/],
      "load(5)": [() => load(5), /source: .*got 5$/],
      "an address that is none": [() => load("http://"), /^DeltanetError address: source: expected the address of a model's folder, got "http:\/\/"$/],
      "files that are none": [() => load({ "config.json": 5 }), /config\.json: expected a Blob, an ArrayBuffer or a typed array, got 5$/],
      "a list of nothing": [() => load([null]), /name of a file: expected a text, got undefined$/],
      "load options": [() => load(filesOf(TINY), 5), /options: expected an object, got 5$/],
      "load device": [() => load(filesOf(TINY), { device: 5 }), /device: expected auto, gpu or cpu, got 5$/],
      "load sessions": [() => load(filesOf(TINY), { sessions: 0 }), /sessions: expected/],
      "load store": [() => load(filesOf(TINY), { store: "no" }), /store: expected true or false, got "no"$/],
      open: [() => open("toaster"), /device: expected auto, gpu or cpu, got "toaster"$/],
      "chunk(kda)": [() => operators.chunk("kda"), /tensors: expected an object, got undefined$/],
      "chunk()": [() => operators.chunk(), /rule: expected a text, got undefined$/],
      "chunk of nothing": [() => operators.chunk("kda", {}), /tokens: expected a number, got nothing$/],
      "no such rule": [() => operators.recurrent("rnn", {}), /rule: expected one of /],
      "attention()": [() => operators.attention(), /tensors: expected an object, got undefined$/],
      "operator's device": [() => operators.attention({ device: "toaster" }), /device: expected auto, gpu or cpu/],
    };
    for (const [what, [call, pattern]] of Object.entries(refused)) {
      const said = await words(soon(call(), what));
      assert(/^DeltanetError (argument|tokenizer|address): [^\n]+$/.test(said) && pattern.test(said), `${what}: ${said}`);
      assertEqual([...(await session.tokens())], [], `${what}: tokens`);
    }
    assert((await failure(session.feed(5))) instanceof DeltanetError, "the class of errors");
    const heard = await failure((async () => session.onDevice(5))());
    assert(/listener: expected a function, got 5$/.test(heard.message), heard.message);
    // null is none.
    await session.feed([1], null);
    await session.feed([1], { signal: null, onProgress: null });
    for await (const _ of session.generate(null, null)) break;
    const { finish } = await session.generate(null, { maxTokens: 1, temperature: null, signal: null, stop: null, stopAtEndOfText: false }).done;
    assertEqual(finish, "length", "null options");
    await (await load(filesOf(TINY), null)).dispose();
    await open(null);
    assertEqual(await storage.list(), [], "storage");
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
