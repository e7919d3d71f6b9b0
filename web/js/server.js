// What runs in the Worker: models, sessions and canvases by number, and the calls on them.

import init, { Easel, Engine } from "./pkg/deltanet_web.js";
import { collect } from "./files.js";
import { Moved, answer } from "./rpc.js";
import * as store from "./store.js";

let memory;

const inNode = typeof process === "object" && Boolean(process.versions?.node);

/** The device to ask the module for. Node has no WebGPU: there `auto` is the CPU engine. */
function possible(device) {
  if (!inNode) return device;
  if (device === "gpu") throw Object.assign(new Error("no usable GPU: Node has no WebGPU"), { code: "no-gpu" });
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

/** Lets messages in, and the browser draw: a task, not a microtask. */
const pause = (() => {
  const { port1, port2 } = new MessageChannel();
  const waiting = [];
  port1.onmessage = () => waiting.shift()?.();
  port1.unref?.();
  return () => new Promise((resolve) => {
    waiting.push(resolve);
    port2.postMessage(null);
  });
})();

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
  const loads = new Map();
  const runs = new Map();

  const get = (map, id, what) => {
    const found = map.get(id);
    if (!found) throw Object.assign(new Error(`${what}: it has been disposed of`), { code: "argument" });
    return found;
  };

  function addSession(model, raw) {
    const id = next++;
    sessions.set(id, { id, model, raw, painter: raw.painter(), queue: Promise.resolve() });
    model.sessions.add(id);
    return id;
  }

  /** Runs `work` on a session after whatever it is doing; rebuilds the device and tries again if it was lost. */
  function onSession(id, work) {
    const session = get(sessions, id, "session");
    const result = session.queue.then(async () => {
      get(sessions, id, "session");
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

  /** `onSession` for work that feeds a session piece by piece: a second attempt begins where the first one did. */
  function fromTheStart(id, work) {
    let before;
    return onSession(id, async (session) => {
      const now = session.raw.tokens();
      before ??= now;
      if (now.length > before.length) {
        await session.raw.reset();
        if (before.length > 0) await session.raw.feed(before);
      }
      return work(session);
    });
  }

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
        await session.raw.refeed();
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

    async load({ load, source, options }) {
      options = { ...options, device: possible(options.device) };
      const abort = new AbortController();
      loads.set(load, abort);
      const progress = (data) => tell("progress", { load, ...data });
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
        loads.delete(load);
      }
    },
    cancelLoad({ load, reason }) {
      loads.get(load)?.abort(new DOMException(reason, "AbortError"));
    },

    encode: ({ model, text }) => get(models, model, "model").raw.encode(text),
    decode: ({ model, tokens }) => get(models, model, "model").raw.decode(tokens),
    pieces: ({ model, tokens }) => get(models, model, "model").raw.pieces(tokens),

    feed({ session, prompt }) {
      return onSession(session, async ({ raw, model }) => {
        const tokens = typeof prompt === "string" ? await raw.feedText(prompt) : Uint32Array.from(prompt);
        if (typeof prompt !== "string") await raw.feed(tokens);
        const texts = model.raw.info().hasTokenizer ? model.raw.pieces(tokens) : Array.from(tokens, () => "");
        return { tokens, texts };
      });
    },

    /** Streams pieces as events. `credit` batches go out before the other side must ask for more. */
    generate({ session, run, options, credit }) {
      const state = { session, credit, stopped: false, wake: () => {} };
      runs.set(run, state);
      let left = options.maxTokens ?? 256;
      let drawn = 0;
      const work = async ({ raw, id, model }) => {
        const software = model.raw.onSoftware();
        const frame = software ? SOFTWARE_FRAME_MS : FRAME_MS;
        const steps = software ? { stepsAhead: SOFTWARE_STEPS } : {};
        if (state.stopped) return { finish: "cancelled", endToken: null, tail: "" };
        return raw.generate({ ...steps, ...options, maxTokens: left }, async (tokens, logprobs, texts) => {
          left -= tokens.length;
          state.credit -= 1;
          tell("pieces", { run, tokens, logprobs, texts }, [tokens.buffer, logprobs.buffer]);
          if (performance.now() - drawn >= frame) {
            drawn = performance.now();
            // A picture that fails is not the text's business: if the device was lost, the text will hear of it.
            await redraw(id).catch(() => {});
          }
          await pause();
          // The state stays that of what the other side has until it asks for more.
          while (state.credit <= 0 && !state.stopped) await new Promise((resolve) => (state.wake = resolve));
          return !state.stopped;
        });
      };
      return onSession(session, work).finally(async () => {
        runs.delete(run);
        await redraw(session).catch(() => {});
      });
    },
    more({ run, credit }) {
      const state = runs.get(run);
      if (!state) return;
      state.credit += credit;
      state.wake();
    },
    stop({ run }) {
      const state = runs.get(run);
      if (!state) return;
      state.stopped = true;
      state.wake();
    },

    tokens: ({ session }) => onSession(session, ({ raw }) => raw.tokens()),
    logits: ({ session }) => onSession(session, ({ raw }) => raw.logits()),
    score: ({ session, tokens }) => fromTheStart(session, ({ raw }) => raw.score(tokens)),
    gates: ({ session, tokens }) => fromTheStart(session, ({ raw }) => raw.gates(tokens)),
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
      const easel = { canvas, bgra, direct, raw: undefined, session: 0, options: {} };
      const id = next++;
      easels.set(id, easel);
      return id;
    },
    async show({ easel: id, session, width, height, options }) {
      const easel = get(easels, id, "view");
      Object.assign(easel, { session, width, height, options });
      try {
        await draw(easel);
      } catch (error) {
        if (!(await mended(get(sessions, session, "session").model, error))) throw error;
        await draw(easel);
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
    for (const [run, state] of runs) if (state.session === id) methods.stop({ run });
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

  async function redraw(session) {
    for (const easel of easels.values()) {
      if (easel.session === session) await draw(easel);
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
