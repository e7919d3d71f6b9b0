// What the package is given: what is refused before anything changes, and in which words. In Node.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { TINY, failure, soon, words } from "./calls.mjs";
import { assert, assertEqual, site, test } from "./harness.mjs";
import { filesOf } from "./node.mjs";

export async function refusals() {
  const { DeltanetError, load, open, operators, shutdown, storage } = await import(pathToFileURL(join(site, "js", "index.js")));

  await test("node: arguments are checked before anything changes", async () => {
    const session = await load(filesOf(TINY), { device: "cpu" });
    const [one, two] = [1, 2].map((n) => new Float32Array(n).fill(0.5));
    const call = (shape, more) => ({ shape: { tokens: 1, keyDim: 2, valueDim: 2, ...shape }, q: two, k: two, v: two, device: "cpu", ...more });
    const heads = (shape, more) => ({ shape: { tokens: 1, headDim: 2, ...shape }, q: two, k: two, v: two, device: "cpu", ...more });
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
      "feed options": [() => session.feed([1], 5), /options: expected a plain object, got 5$/],
      "feed signal": [() => session.feed([1], { signal: 5 }), /signal: expected an AbortSignal, got 5$/],
      "feed onProgress": [() => session.feed([1], { onProgress: "x" }), /onProgress: expected a function, got "x"$/],
      score: [() => session.score("abc"), /tokens: expected an array of token ids, got "abc"$/],
      gates: [() => session.gates([[]]), /token 0: .*got an array$/],
      decode: [() => session.decode([-1]), /token 0: /],
      encode: [() => session.encode(5), /text: expected a text, got 5$/],
      restore: [() => session.restore(5), /saved session: expected an ArrayBuffer, a Uint8Array or a Blob, got 5$/],
      "generate a word": [() => start({}, ["a"]), /token 0: /],
      "generate options": [() => start(5), /options: expected a plain object, got 5$/],
      temperature: [() => start({ temperature: -1 }), /temperature/],
      "temperature in words": [() => start({ temperature: "hot" }), /temperature: expected a number/],
      maxTokens: [() => start({ maxTokens: 1.5 }), /maxTokens/],
      "an empty stop": [() => start({ stop: "" }), /stop/],
      "a stop without tokenizer": [() => start({ stop: "." }), /^DeltanetError tokenizer: /],
      "an option that cannot be sent": [() => start({ temperature: () => 1 }), /cannot|sent/],
      batches: [() => session.generate([1]).batches(0).next(), /most: expected a whole number of at least 1, got 0$/],
      "a signal for options": [() => session.feed([1], new AbortController().signal), /options: expected a plain object, got an object \(AbortSignal\)$/],
      "a list for options": [() => start([5]), /options: expected a plain object, got an array$/],
      "feed signl": [() => session.feed([1], { signl: null, sginal: 5 }), /options: expected signal, or another of onProgress, got "sginal"$/],
      "score batch": [() => session.score([1], { batch: 5 }), /options: expected no other names than onProgress, signal, got "batch"$/],
      "gates progress": [() => session.gates([1], { progress: 5 }), /options: expected onProgress, or another of signal, got "progress"$/],
      "generate max_tokens": [() => start({ max_tokens: 5 }), /options: expected maxTokens, or another of temperature, topK, .*signal, got "max_tokens"$/],
      "generate temprature": [() => start({ temprature: 0 }), /options: expected temperature, or another of topK, .*, got "temprature"$/],
      "generate top-p": [() => start({ "top-p": 0.5 }), /options: expected topP, or another of .*, got "top-p"$/],
      "generate pieces": [() => start({ pieces: 5 }), /options: expected no other names than temperature, .*, got "pieces"$/],
      "view directly": [() => session.view({}, { directly: true }), /options: expected no other names than direct, got "directly"$/],
      "load onprogress": [() => load(filesOf(TINY), { onprogress: () => {} }), /options: expected onProgress, or another of device, .*, got "onprogress"$/],
      "chunk of a misspelt tensor": [() => operators.chunk("kda", { shape: {}, initial_state: 5 }), /tensors: expected initialState, or another of shape, .*, got "initial_state"$/],
      "recurrent, misspelt shape": [() => operators.recurrent("kda", { shape: { tokens: 1, key_dim: 2 } }), /shape: expected keyDim, or another of .*, got "key_dim"$/],
      "precond of a number": [() => operators.chunk("kda", { precond: 5 }), /precond: expected a plain object, got 5$/],
      "precond, misspelt": [() => operators.chunk("kda", { precond: { logScales: 5 } }), /precond: expected logScale, or another of g, beta, initial, got "logScales"$/],
      "attention, misspelt": [() => operators.attention({ theta: 5 }), /tensors: expected .*, got "theta"$/],
      "attention, misspelt shape": [() => operators.attention({ shape: { valueHeads: 5 } }), /shape: expected .*, got "valueHeads"$/],
      "attention, misspelt norm": [() => operators.attention({ qkNorm: { epsilon: 5 } }), /qkNorm: expected .*, got "epsilon"$/],
      // Options that are out of their domain are called what the caller called them.
      topP: [() => start({ topP: 2 }), /^DeltanetError argument: topP: expected above 0, at most 1, got 2$/],
      minP: [() => start({ minP: -1 }), /^DeltanetError argument: minP: expected from 0 to 1, got -1$/],
      repetitionPenalty: [() => start({ repetitionPenalty: 0 }), /^DeltanetError argument: repetitionPenalty: expected a number above 0, got 0$/],
      topK: [() => start({ topK: -1 }), /^DeltanetError argument: topK: /],
      stepsAhead: [() => start({ stepsAhead: 0 }), /^DeltanetError argument: stepsAhead: /],
      keyDim: [() => operators.chunk("kda", call({ keyDim: 300 })), /^DeltanetError argument: keyDim: expected 1 to 256, got 300$/],
      valueHeads: [() => operators.chunk("kda", call({ heads: 2, valueHeads: 3 })), /^DeltanetError argument: valueHeads: expected a multiple of 2 heads, got 3$/],
      cuSeqlens: [() => operators.chunk("kda", call({}, { cuSeqlens: new Uint32Array(3) })), /^DeltanetError argument: cuSeqlens: expected with batch 1/],
      initialState: [() => operators.chunk("linear_attention", call({}, { initialState: one })), /^DeltanetError argument: initialState: expected \[1, 1, 2, 2\], got 1 elements$/],
      "precond.beta": [() => operators.chunk("kda", call({}, { precond: { g: one } })), /^DeltanetError argument: precond\.beta: expected a Float32Array, got nothing$/],
      "precond.logScale": [() => operators.chunk("preconditioned_deltanet", call({}, { beta: one, precond: { g: one, beta: one, logScale: two } })), /^DeltanetError argument: precond\.logScale: expected \[1\], got 2 elements$/],
      "a tensor of another type": [() => operators.chunk("kda", call({}, { beta: [1] })), /^DeltanetError argument: beta: expected a Float32Array, got object$/],
      kvHeads: [() => operators.attention(heads({ kvHeads: 0 })), /^DeltanetError argument: kvHeads: expected at least 1, got 0$/],
      headDim: [() => operators.attention(heads({ headDim: 0 })), /^DeltanetError argument: headDim: /],
      ropeTheta: [() => operators.attention(heads({}, { ropeTheta: -1 })), /^DeltanetError argument: ropeTheta: expected a positive number, got -1$/],
      "qkNorm.k": [() => operators.attention(heads({}, { qkNorm: { q: two } })), /^DeltanetError argument: qkNorm\.k: expected a Float32Array, got nothing$/],
      "qkNorm.eps": [() => operators.attention(heads({}, { qkNorm: { q: two, k: two, eps: -1 } })), /^DeltanetError argument: qkNorm\.eps: expected a number that is not negative, got -1$/],
      "qkNorm.eps in words": [() => operators.attention(heads({}, { qkNorm: { q: two, k: two, eps: "small" } })), /^DeltanetError argument: qkNorm\.eps: expected a number, got string$/],
      "a tensor that no memory holds": [() => operators.attention(heads({ tokens: 2 ** 40 })), /^DeltanetError argument: q: expected a tensor that memory can hold, got \[1, \d+, 1, 2\]$/],
      view: [() => session.view(undefined), /canvas: expected a canvas element, got undefined$/],
      "load()": [() => load(), /source: expected an address, files, or a map from names to bytes, got undefined$/],
      "load(5)": [() => load(5), /source: .*got 5$/],
      "an address that is none": [() => load("http://"), /^DeltanetError address: source: expected the address of a model's folder, got "http:\/\/"$/],
      "files that are none": [() => load({ "config.json": 5 }), /config\.json: expected a Blob, an ArrayBuffer or a typed array, got 5$/],
      "a list of nothing": [() => load([null]), /name of a file: expected a text, got undefined$/],
      "load options": [() => load(filesOf(TINY), 5), /options: expected a plain object, got 5$/],
      "load device": [() => load(filesOf(TINY), { device: 5 }), /device: expected auto, gpu or cpu, got 5$/],
      "load sessions": [() => load(filesOf(TINY), { sessions: 0 }), /sessions: expected/],
      "load store": [() => load(filesOf(TINY), { store: "no" }), /store: expected true or false, got "no"$/],
      open: [() => open("toaster"), /device: expected auto, gpu or cpu, got "toaster"$/],
      "chunk(kda)": [() => operators.chunk("kda"), /tensors: expected a plain object, got undefined$/],
      "chunk()": [() => operators.chunk(), /rule: expected a text, got undefined$/],
      "chunk of nothing": [() => operators.chunk("kda", {}), /tokens: expected a number, got nothing$/],
      "no such rule": [() => operators.recurrent("rnn", {}), /rule: expected one of /],
      "attention()": [() => operators.attention(), /tensors: expected a plain object, got undefined$/],
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

  await test("node: options that are refused are those that no type names", async () => {
    const types = readFileSync(join(site, "js", "index.d.ts"), "utf8");
    const documented = (name) => [...new RegExp(`interface ${name} \\{([^]*?)\n\\}`).exec(types)[1].matchAll(/^ {2}(\w+)\??:/gm)].map((m) => m[1]).sort();
    const session = await load(filesOf(TINY), { device: "cpu" });
    const calls = {
      LoadOptions: (o) => load(filesOf(TINY), o),
      ReadOptions: (o) => session.feed([1], o),
      GenerateOptions: (o) => session.generate([1], o).done,
      DeltaCall: (o) => operators.chunk("kda", o),
      Shape: (o) => operators.chunk("kda", { shape: o }),
      AttentionCall: (o) => operators.attention(o),
    };
    for (const [type, call] of Object.entries(calls)) {
      const said = await words(call({ Zzzzzzzzzz: 1 }));
      const names = /expected no other names than (.*), got "Zzzzzzzzzz"$/.exec(said)?.[1].split(", ").sort();
      assertEqual(names, documented(type), type);
    }
    await session.dispose();
  });

  shutdown();
}
