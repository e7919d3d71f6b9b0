// deltanet for web applications: see index.d.ts for every name and option.
//
//   const session = await load("models/stories-17m/");
//   for await (const { text } of session.generate("Once upon a time")) print(text);

import { Caller } from "./rpc.js";

let shared;

/** The Worker, started when it is first needed. Without Workers (Node), the same code runs in this thread. */
function worker() {
  if (shared) return shared;
  const loads = new Map();
  const runs = new Map();
  const models = new Map();
  const events = {
    progress: ({ load, ...data }) => loads.get(load)?.(data),
    pieces: ({ run, ...data }) => runs.get(run)?.(data),
    lost: ({ model }) => models.get(model)?.forEach((f) => f({ type: "lost" })),
    recovered: ({ model, info }) => models.get(model)?.forEach((f) => f({ type: "recovered", info })),
  };
  let port, end;
  if (typeof Worker === "function") {
    const thread = new Worker(new URL("./worker.js", import.meta.url), { type: "module", name: "deltanet" });
    thread.onerror = (event) => {
      event.preventDefault();
      const message = event.message ? `the engine could not start: ${event.message}` : "the engine could not start";
      if (shared?.port !== thread) return;
      // The next call starts another.
      shared.caller.fail(Object.assign(new Error(message), { code: "crashed" }));
      shared.end();
      shared = undefined;
    };
    port = thread;
    end = () => thread.terminate();
  } else {
    const { port1, port2 } = new MessageChannel();
    import("./server.js").then(({ serve }) => serve(port2));
    port = port1;
    end = () => {
      port1.close();
      port2.close();
    };
  }
  shared = { caller: new Caller(port, events), port, loads, runs, models, end, next: 1 };
  return shared;
}

/** Ends the Worker and everything in it. The next call starts another. */
export function shutdown() {
  if (!shared) return;
  shared.caller.fail(Object.assign(new Error("deltanet was shut down"), { code: "argument" }));
  shared.end();
  shared = undefined;
}

const call = (method, argument, transfer) => worker().caller.call(method, argument, transfer);

/** Loads a model from the address of its folder, or from its files; returns its first session. */
export async function load(source, { onProgress, device = "auto", sessions, store = true, signal } = {}) {
  signal?.throwIfAborted();
  const { loads } = worker();
  const id = worker().next++;
  if (onProgress) loads.set(id, onProgress);
  const cancel = () => call("cancelLoad", { load: id, reason: "loading was aborted" }).catch(() => {});
  signal?.addEventListener("abort", cancel, { once: true });
  try {
    const options = { device, sessions, store };
    const { model, session, info, grid } = await call("load", { load: id, source: await described(source), options });
    return new Session(new Model(model, info, grid), session);
  } catch (error) {
    throw signal?.aborted ? signal.reason : error;
  } finally {
    loads.delete(id);
    signal?.removeEventListener("abort", cancel);
  }
}

/** Opens the device and compiles nothing yet: says in words what a load would use. */
export const open = (device = "auto") => call("open", { device });

/** A source as plain data: absolute address, or names with blobs. */
async function described(source) {
  if (typeof source === "string" || source instanceof URL) {
    return { url: new URL(source, globalThis.document?.baseURI ?? globalThis.location?.href).href };
  }
  const blob = (data) => (data instanceof Blob ? data : new Blob([data]));
  const entries =
    source instanceof Map ? [...source]
    : Symbol.iterator in source ? Array.from(source, (f) => [f.webkitRelativePath || f.name, f.data ?? f])
    : Object.entries(source);
  return { files: entries.map(([name, data]) => ({ name, blob: blob(data) })) };
}

class Model {
  constructor(id, info, grid) {
    this.id = id;
    this.info = info;
    this.grid = grid;
  }
}

/** A text being read and written by a model. */
export class Session {
  #id;
  #model;

  constructor(model, id) {
    this.#model = model;
    this.#id = id;
  }

  get info() {
    return this.#model.info;
  }
  get grid() {
    return this.#model.grid;
  }

  /** Calls `listener` with `{type: "lost"}` and `{type: "recovered", info}`. Returns what takes it off again. */
  onDevice(listener) {
    const { models } = worker();
    const id = this.#model.id;
    const heard = (event) => {
      if (event.info) this.#model.info = event.info;
      listener(event);
    };
    if (!models.has(id)) models.set(id, new Set());
    models.get(id).add(heard);
    return () => models.get(id)?.delete(heard);
  }

  #call(method, argument = {}, transfer) {
    return call(method, { session: this.#id, ...argument }, transfer);
  }

  feed(prompt) {
    return this.#call("feed", { prompt });
  }
  generate(prompt, options = {}) {
    return new Generation(this.#id, prompt, options);
  }
  tokens() {
    return this.#call("tokens");
  }
  logits() {
    return this.#call("logits");
  }
  score(tokens) {
    return this.#call("score", { tokens: Uint32Array.from(tokens) });
  }
  gates(tokens) {
    return this.#call("gates", { tokens: Uint32Array.from(tokens) });
  }
  reset() {
    return this.#call("reset");
  }
  async fork() {
    return new Session(this.#model, await this.#call("fork"));
  }
  save() {
    return this.#call("save");
  }
  async restore(bytes) {
    const data = bytes instanceof Blob ? new Uint8Array(await bytes.arrayBuffer()) : new Uint8Array(bytes);
    return this.#call("restore", { bytes: data });
  }
  encode(text) {
    return call("encode", { model: this.#model.id, text });
  }
  decode(tokens) {
    return call("decode", { model: this.#model.id, tokens: Uint32Array.from(tokens) });
  }
  pieces(tokens) {
    return call("pieces", { model: this.#model.id, tokens: Uint32Array.from(tokens) });
  }
  dispose() {
    return this.#call("dispose");
  }

  /** Gives a canvas element to the Worker, which draws the state on it. */
  async view(canvas, { direct } = {}) {
    const offscreen = canvas.transferControlToOffscreen();
    const bgra = navigator.gpu?.getPreferredCanvasFormat() === "bgra8unorm";
    return new View(await call("attach", { canvas: offscreen, bgra, direct }, [offscreen]), this.#id);
  }
  get [Symbol.toStringTag]() {
    return "Session";
  }
  /** For `View.show`. */
  static idOf(session) {
    return session.#id;
  }
}

/** Where a session's state is shown: see `Session.view`. */
class View {
  #id;
  #session;

  constructor(id, session) {
    this.#id = id;
    this.#session = session;
  }
  /** Draws, and from then on draws again as tokens arrive. */
  show({ session, width, height, ...options }) {
    if (session) this.#session = Session.idOf(session);
    return call("show", { easel: this.#id, session: this.#session, width, height, options });
  }
  detach() {
    return call("detach", { easel: this.#id });
  }
}

/** Tokens as they are made: iterate it for pieces, or its `batches()` for as many at a time as have come. */
class Generation {
  #session;
  #prompt;
  #options;
  #run;
  #started = false;
  #stopped = false;
  #ended = false;
  #settle;
  /** `{finish, endToken, tail, prompt}` once it has ended. */
  done = new Promise((resolve, reject) => (this.#settle = { resolve, reject }));

  constructor(session, prompt, { signal, ...options }) {
    this.#session = session;
    this.#prompt = prompt;
    this.#options = options;
    this.#run = worker().next++;
    this.signal = signal;
    // Whoever iterates hears of a failure there.
    this.done.catch(() => {});
  }

  /** Ends it after what has been handed out. */
  stop() {
    this.#stopped = true;
    if (this.#started) worker().caller.tell("stop", { run: this.#run });
    else this.#settle.resolve({ finish: "cancelled", endToken: null, tail: "", prompt: undefined });
    this.#ended ||= !this.#started;
  }

  async *[Symbol.asyncIterator]() {
    for await (const { tokens, texts, logprobs } of this.#stream(1, 1)) {
      for (let i = 0; i < tokens.length; i++) yield { token: tokens[i], text: texts[i], logprob: logprobs[i] };
    }
  }

  /** `{tokens, texts, logprobs}`, up to `most` tokens each; two batches may be under way before they are asked for. */
  batches(most = 64) {
    return this.#stream(most, 2);
  }

  async *#stream(pieces, credit) {
    if (this.#started || this.#ended) return;
    this.#started = true;
    const { caller, runs } = worker();
    const run = this.#run;
    const queue = [];
    let wake = () => {};
    let end;
    const aborted = () => this.stop();
    try {
      this.signal?.throwIfAborted();
      this.signal?.addEventListener("abort", aborted, { once: true });
      let prompt;
      if (this.#prompt !== undefined && this.#prompt.length > 0) {
        prompt = await call("feed", { session: this.#session, prompt: this.#prompt });
      }
      if (this.#stopped) {
        // It came while the prompt was being read: nothing is written.
        end = { result: { finish: "cancelled", endToken: null, tail: "", prompt } };
      } else {
        runs.set(run, (batch) => {
          queue.push(batch);
          wake();
        });
        const options = { ...this.#options, pieces };
        caller.call("generate", { session: this.#session, run, options, credit }).then(
          (result) => (end = { result: { ...result, prompt } }),
          (error) => (end = { error }),
        ).finally(() => wake());
      }
      for (;;) {
        while (queue.length > 0) {
          yield queue.shift();
          caller.tell("more", { run, credit: 1 });
        }
        if (end) break;
        await new Promise((resolve) => (wake = resolve));
      }
      this.signal?.throwIfAborted();
      if (end.error) throw end.error;
      this.#settle.resolve(end.result);
    } catch (error) {
      end ??= { error };
      this.#settle.reject(error);
      throw error;
    } finally {
      this.#ended = true;
      this.signal?.removeEventListener("abort", aborted);
      if (!end) {
        // The reader left: the session ends where it is, before it is used again.
        caller.tell("stop", { run });
        while (!end) await new Promise((resolve) => (wake = resolve));
        if (end.result) this.#settle.resolve(end.result);
        else this.#settle.reject(end.error);
      }
      runs.delete(run);
    }
  }
}

/** The operators on typed arrays: `rule` is a name of the family, such as `gated_deltanet`. */
export const operators = {
  recurrent: (rule, tensors) => call("delta", { form: "recurrent", rule, call: tensors }),
  chunk: (rule, tensors) => call("delta", { form: "chunk", rule, call: tensors }),
  attention: (tensors) => call("attention", { call: tensors }),
};

/** Models kept in the browser's storage. */
export const storage = {
  list: () => call("stored", {}),
  remove: (key) => call("forget", { key }),
};

/** For tests and curious readers. */
export const debug = {
  liveBytes: () => call("liveBytes", {}),
  moduleBytes: () => call("moduleBytes", {}),
  loseDevice: () => call("loseDevice", {}),
};

