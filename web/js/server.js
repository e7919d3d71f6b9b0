// What runs in the Worker: models, sessions and canvases by number, and the calls on them.

import init, { Easel, Engine } from "./pkg/deltanet_web.js";
import { DeltanetError, disposed } from "./errors.js";
import { collect } from "./files.js";
import { Moved, answer } from "./rpc.js";
import { between, pause, stoppable } from "./runs.js";
import * as store from "./store.js";

let memory;

const inNode = typeof process === "object" && Boolean(process.versions?.node);

/** The device to ask the module for. Node has no WebGPU: there `auto` is the CPU engine. */
function possible(device) {
  if (!inNode) return device;
  if (device === "gpu") throw new DeltanetError("no-gpu", "no usable GPU: Node has no WebGPU");
  return (device ?? "auto") === "auto" ? "cpu" : device;
}

/** Instantiates the module: streamed in browsers, read from disk in Node. */
async function instantiate() {
  if (inNode) {
    const { readFile } = await import("node:fs/promises");
    ({ memory } = await init({ module_or_path: await readFile(new URL("./pkg/deltanet_web_bg.wasm", import.meta.url)) }));
  } else {
    ({ memory } = await init());
  }
  return new Engine();
}

/** From picture to picture of the state, at least. */
const FRAME_MS = 33;
const SOFTWARE_FRAME_MS = 500;
/** Most steps a submission where a program imitates the GPU: the browser's own frames wait for each. */
const SOFTWARE_STEPS = 8;

export function serve(port) {
  let engine;
  // A module that could not be fetched may be there the next time.
  const ready = () => (engine ??= instantiate().catch((error) => {
    engine = undefined;
    throw error;
  }));
  let next = 1;
  const models = new Map();
  const sessions = new Map();
  const endings = new Map();
  const easels = new Map();
  /** What can be stopped, by number. */
  const runs = new Map();

  const get = (map, id, what) => {
    const found = map.get(id);
    if (!found) throw disposed(what);
    return found;
  };

  function addSession(model, raw) {
    const id = next++;
    sessions.set(id, { id, model, raw, painter: raw.painter(), queue: Promise.resolve() });
    model.sessions.add(id);
    return id;
  }

  /** Something of a session's that `stop` ends. */
  function begin(run, session, more) {
    const state = stoppable({ session, ...more });
    runs.set(run, state);
    return state;
  }

  /** A session that does not generate. */
  function idle(id) {
    const session = get(sessions, id, "session");
    // Whoever calls may be the one whom the generation waits for: to wait for its end might take for ever.
    if (session.writing && !session.writing.stopped) {
      throw new DeltanetError("busy", "session: expected one that is idle, got one that generates: stop that, or await its `done`, first");
    }
    return session;
  }

  /** Runs `work` on a session that does not generate, after whatever else it is doing. */
  const onSession = async (id, work) => inTurn(idle(id), work);

  /** Runs `work` on a session after whatever it is doing; rebuilds the device and tries again if it was lost. */
  function inTurn(session, work) {
    const result = session.queue.then(async () => {
      get(sessions, session.id, "session");
      const attempt = () => {
        const active = Promise.resolve(work(session));
        session.active = active.catch(() => {});
        return active;
      };
      try {
        return await attempt();
      } catch (error) {
        if (!(await mended(session.model, error))) throw error;
        return attempt();
      }
    });
    session.queue = result.catch(() => {});
    return result;
  }

  /** What a reading asks between pieces. */
  const asks = (state, run, total) => between(state, (read) => tell("progress", { run, read, total }));

  const tokensOf = (raw, prompt) => (typeof prompt === "string" ? raw.encode(prompt) : prompt);
  const described = (model, tokens) => ({
    tokens,
    texts: model.raw.info().hasTokenizer ? model.raw.pieces(tokens) : Array.from(tokens, () => ""),
  });

  /** Reads a prompt, for the results of `method`. One that is stopped leaves the session as it was. */
  const reading = (method, finish) => ({ session, run, prompt, watched }) => {
    const state = begin(run, session, { watched });
    return onSession(session, async ({ raw, model }) => {
      const tokens = tokensOf(raw, prompt);
      const result = await raw.read(method, tokens, asks(state, run, tokens.length));
      if (!result) throw state.error ?? new DOMException("reading was aborted", "AbortError");
      tell("progress", { run, read: tokens.length, total: tokens.length });
      return finish(result, model, tokens);
    }).finally(() => runs.delete(run));
  };

  /** After an error: whether the same may be tried again, on a device that has been opened since. */
  async function mended(model, error) {
    if (!["device-lost", "gpu", "out-of-memory"].includes(error?.code)) return false;
    const bad = () => model.recovery || model.raw.isLost();
    // The news of a loss may come a moment after the call that failed by it.
    for (let i = 0; error.code !== "device-lost" && !bad() && i < 10; i++) await new Promise((resolve) => setTimeout(resolve, 50));
    if (!bad()) return error.code === "device-lost";
    await recover(model);
    return true;
  }

  /** Opens a device anew and feeds every session of the model its tokens again. */
  function recover(model) {
    model.recovery ??= (async () => {
      tell("lost", { model: model.id });
      // What is under way fails as well; only then are the sessions here.
      await Promise.all([...model.sessions].map((id) => sessions.get(id)).flatMap((s) => [s.active, s.drawing]));
      await model.raw.reopen();
      for (const id of model.sessions) {
        const session = sessions.get(id);
        await session.raw.refeed(() => pause().then(() => true));
        session.painter.free();
        session.painter = session.raw.painter();
      }
      tell("recovered", { model: model.id, info: model.raw.info() });
    })().finally(() => (model.recovery = undefined));
    return model.recovery;
  }

  const methods = {
    async open({ device }) {
      return (await ready()).open(possible(device));
    },

    async load({ run, source, options }) {
      options = { ...options, device: possible(options.device) };
      const abort = new AbortController();
      runs.set(run, { stop: () => abort.abort() });
      const progress = (data) => tell("progress", { run, ...data });
      try {
        const engine = await ready();
        // The device opens while the weights arrive, and compiles what this model needed last time; if it fails,
        // `finish` says so.
        const opening = engine.open(options.device)
          .then(async () => engine.prepare(await store.recall(source.url)))
          .catch(() => {});
        const loader = engine.loader();
        try {
          await collect(source, options, loader, progress, abort.signal);
          abort.signal.throwIfAborted();
        } catch (error) {
          loader.free();
          throw error;
        }
        await opening;
        const raw = await loader.finish(options, (stage, done, total) => progress({ stage, done, total }));
        if (options.store !== false) store.remember(source.url, engine.kernels());
        const model = { id: next++, raw, sessions: new Set() };
        models.set(model.id, model);
        const session = addSession(model, raw.session());
        if (abort.signal.aborted) await methods.dispose({ session });
        abort.signal.throwIfAborted();
        return { model: model.id, session, info: raw.info(), grid: sessions.get(session).painter.grid() };
      } finally {
        runs.delete(run);
      }
    },

    encode: ({ model, text }) => get(models, model, "model").raw.encode(text),
    decode: ({ model, tokens }) => get(models, model, "model").raw.decode(tokens),
    pieces: ({ model, tokens }) => get(models, model, "model").raw.pieces(tokens),

    feed: reading("feed", (_, model, tokens) => described(model, tokens)),
    score: reading("score", (result) => new Moved(result, [result.buffer])),
    gates: reading("gates", (result) => new Moved(result, [result.buffer])),

    /**
     * Reads the prompt, if there is one, then streams pieces as events. `credit` batches go out before the other side
     * must ask for more.
     */
    async generate({ session: id, run, prompt, options, credit, watched }) {
      const session = idle(id);
      const state = begin(run, id, { credit, watched });
      session.writing = state;
      let drawn = 0;
      let left = options.maxTokens ?? 256;
      let read;
      const write = async ({ raw, model }) => {
        // Before the prompt, which takes long and would stay.
        raw.check(options);
        if (prompt !== undefined && !read) {
          const tokens = tokensOf(raw, prompt);
          const whole = await raw.read("feed", tokens, asks(state, run, tokens.length));
          if (whole) {
            tell("progress", { run, read: tokens.length, total: tokens.length });
            read = described(model, tokens);
          }
        }
        if (state.stopped) return { finish: "cancelled", endToken: null, tail: "", prompt: read };
        const software = model.raw.onSoftware();
        const frame = software ? SOFTWARE_FRAME_MS : FRAME_MS;
        const steps = software ? { stepsAhead: SOFTWARE_STEPS } : {};
        const result = await raw.generate({ ...steps, ...options, maxTokens: left }, async (tokens, logprobs, texts) => {
          left -= tokens.length;
          state.credit -= 1;
          tell("pieces", { run, tokens, logprobs, texts }, [tokens.buffer, logprobs.buffer]);
          if (performance.now() - drawn >= frame) {
            drawn = performance.now();
            await redraw(id);
          }
          await pause();
          // The state stays that of what the other side has until it asks for more.
          while (state.credit <= 0 && !state.stopped) await new Promise((resolve) => (state.wake = resolve));
          return !state.stopped;
        });
        return { ...result, prompt: read };
      };
      try {
        return await inTurn(session, write);
      } finally {
        runs.delete(run);
        if (session.writing === state) session.writing = undefined;
        await redraw(id);
      }
    },
    more({ run, credit }) {
      const state = runs.get(run);
      if (!state) return;
      state.credit += credit;
      state.wake();
    },
    heard: ({ run }) => runs.get(run)?.heard?.(),
    stop: ({ run }) => runs.get(run)?.stop(),

    tokens: ({ session }) => onSession(session, ({ raw }) => raw.tokens()),
    logits: ({ session }) => onSession(session, ({ raw }) => raw.logits()),
    reset: ({ session }) => onSession(session, ({ raw }) => raw.reset()),
    fork: ({ session }) => onSession(session, ({ raw, model }) => addSession(model, raw.fork())),
    save: ({ session }) => onSession(session, async ({ raw }) => {
      const bytes = await raw.save();
      return new Moved(bytes, [bytes.buffer]);
    }),
    restore: ({ session, bytes }) => onSession(session, async ({ raw }) => {
      await raw.restore(bytes);
      return raw.tokens();
    }),

    /** Frees a session, and its model with the last one. Returns the GPU bytes that are left. */
    async dispose({ session: id }) {
      const session = sessions.get(id);
      if (session && !endings.has(id)) endings.set(id, end(session).finally(() => endings.delete(id)));
      await endings.get(id);
      return (await ready()).liveBytes();
    },

    async attach({ canvas, bgra, direct }) {
      await ready();
      const easel = { canvas, bgra, direct, raw: undefined, session: 0, options: {}, shown: { session: 0, options: {} } };
      const id = next++;
      easels.set(id, easel);
      return id;
    },
    async show({ easel: id, session, width, height, options }) {
      const easel = get(easels, id, "view");
      const now = { session, width, height, options };
      Object.assign(easel, now);
      try {
        await draw(easel).catch(async (error) => {
          if (!(await mended(get(sessions, session, "session").model, error))) throw error;
          await draw(easel);
        });
        easel.shown = now;
      } catch (error) {
        // What was shown before stays, unless another call has come since.
        if (easel.options === options) Object.assign(easel, easel.shown);
        throw error;
      }
    },
    detach({ easel: id }) {
      easels.get(id)?.raw?.free();
      easels.delete(id);
    },

    async delta({ form, rule, call }) {
      const result = await (await ready()).delta(form, rule, { ...call, device: possible(call.device) });
      const arrays = [result.o, result.finalState, result.finalSums, result.chunkStates];
      return new Moved(result, arrays.map((a) => a.buffer));
    },

    async attention({ call }) {
      const out = await (await ready()).attention({ ...call, device: possible(call.device) });
      return new Moved(out, [out.buffer]);
    },

    liveBytes: async () => (await ready()).liveBytes(),
    moduleBytes: async () => {
      await ready();
      return memory.buffer.byteLength;
    },
    loseDevice: async () => (await ready()).loseDevice(),
    stored: () => store.list(),
    forget: ({ key }) => store.remove(key),
  };

  /** Frees a session once it is idle. */
  async function end({ id, model, queue }) {
    for (const state of runs.values()) if (state.session === id) state.stop(disposed("session"));
    await queue;
    const session = sessions.get(id);
    sessions.delete(id);
    model.sessions.delete(id);
    await session.drawing;
    session.painter.free();
    session.raw.free();
    if (model.sessions.size > 0 || !models.delete(model.id)) return;
    model.raw.free();
    // What was drawn last holds on to buffers of the model.
    for (const easel of easels.values()) easel.raw?.clear();
  }

  /** A picture that fails is not the text's business: if the device was lost, the text will hear of it. */
  async function redraw(session) {
    for (const easel of easels.values()) {
      if (easel.session === session) await draw(easel).catch(() => {});
    }
  }

  async function draw(easel) {
    const session = sessions.get(easel.session);
    const { canvas, width, height, options } = easel;
    if (!session || !width || !height) return;
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== height) canvas.height = height;
    const { raw } = session.model;
    // Where a program imitates the GPU, browsers bring its canvases to the screen slowly, and Firefox may even crash.
    if (raw.onGpu() && (easel.direct ?? !raw.onSoftware())) {
      easel.raw ??= new Easel(canvas, easel.bgra);
      easel.raw.draw(session.painter, width, height, options);
    } else {
      easel.context ??= canvas.getContext("2d");
      const work = session.painter.pixels(width, height, options);
      // A painter must not go while it works.
      session.drawing = Promise.allSettled([session.drawing, work]).then(() => {});
      const pixels = await work;
      easel.context?.putImageData(new ImageData(new Uint8ClampedArray(pixels), width, height), 0, 0);
    }
  }

  const tell = answer(port, methods);
  return methods;
}
