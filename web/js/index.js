// deltanet for web applications: see index.d.ts for every name and option.
//
//   const session = await load("models/stories-17m/");
//   for await (const { text } of session.generate("Once upon a time")) print(text);

import * as check from "./arguments.js";
import { disposed, wrong } from "./errors.js";
import { Generation } from "./generation.js";
import { abortable, alive, thread } from "./thread.js";

export { DeltanetError } from "./errors.js";
export { shutdown } from "./thread.js";

const call = (method, argument, transfer) => thread().caller.call(method, argument, transfer);

/** Loads a model from the address of its folder, or from its files; returns its first session. */
export async function load(source, options) {
  const { device = "auto", sessions, store = true, ...rest } = check.options(options, "load");
  const argument = { source: check.source(source), options: { device, sessions, store } };
  const home = thread();
  const undo = ({ session }) => home.caller.call("dispose", { session });
  const { model, session, info, grid } = await abortable(home, "load", argument, rest, undo);
  return new Session({ home, id: model, info, grid }, session);
}

/** Opens the device and compiles nothing yet: says in words what a load would use. */
export const open = async (device) => call("open", check.options({ device }, "load"));

/** A text being read and written by a model. */
export class Session {
  #id;
  /** `{home, id, info, grid}` */
  #model;
  #end;

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
    check.listener(listener);
    const { home, id } = this.#model;
    const heard = (event) => {
      if (event.info) this.#model.info = event.info;
      listener(event);
    };
    if (!home.models.has(id)) home.models.set(id, new Set());
    home.models.get(id).add(heard);
    return () => home.models.get(id)?.delete(heard);
  }

  #check() {
    if (this.#end) throw disposed("session");
    alive(this.#model.home, "session");
  }
  async #call(method, argument = {}) {
    this.#check();
    return this.#model.home.caller.call(method, { session: this.#id, model: this.#model.id, ...argument });
  }
  async #read(method, argument, options) {
    this.#check();
    return abortable(this.#model.home, method, { session: this.#id, ...argument }, check.options(options, "read"));
  }
  #tokens(list) {
    return check.tokens(list, this.info.vocab);
  }

  async feed(prompt, options) {
    return this.#read("feed", { prompt: check.prompt(prompt, this.info.vocab) }, options);
  }
  async score(tokens, options) {
    return this.#read("score", { prompt: this.#tokens(tokens) }, options);
  }
  async gates(tokens, options) {
    return this.#read("gates", { prompt: this.#tokens(tokens) }, options);
  }
  generate(prompt, options) {
    const { home, info } = this.#model;
    return new Generation({ home, id: this.#id, vocab: info.vocab, check: () => this.#check() }, prompt, options);
  }
  tokens() {
    return this.#call("tokens");
  }
  logits() {
    return this.#call("logits");
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
    return this.#call("restore", { bytes: await check.bytes(bytes) });
  }
  async encode(text) {
    return this.#call("encode", { text: check.text(text, "text") });
  }
  async decode(tokens) {
    return this.#call("decode", { tokens: this.#tokens(tokens) });
  }
  async pieces(tokens) {
    return this.#call("pieces", { tokens: this.#tokens(tokens) });
  }
  /** Once is enough; what ended with its engine is gone already. */
  dispose() {
    this.#end ??= this.#call("dispose").catch((error) => {
      if (error.code !== "disposed") throw error;
      return 0;
    });
    return this.#end;
  }

  /** Gives a canvas element to the Worker, which draws the state on it. */
  async view(canvas, options) {
    const { direct } = check.options(options, "view");
    this.#check();
    if (typeof canvas?.transferControlToOffscreen !== "function") throw wrong("canvas", "a canvas element", canvas);
    const offscreen = canvas.transferControlToOffscreen();
    const bgra = navigator.gpu?.getPreferredCanvasFormat() === "bgra8unorm";
    return new View(await call("attach", { canvas: offscreen, bgra, direct }, [offscreen]), this.#id);
  }
  get [Symbol.toStringTag]() {
    return "Session";
  }
  /** For `View.show`. */
  static idOf(session) {
    if (!(session instanceof Session)) throw wrong("session", "a session", session);
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
  async show(given) {
    const { session, width, height, ...options } = check.required(given, "show");
    if (session) this.#session = Session.idOf(session);
    return call("show", { easel: this.#id, session: this.#session, width, height, options });
  }
  detach() {
    return call("detach", { easel: this.#id });
  }
}

/** One operator, on tensors that are checked where they are read. */
const operator = (method, form) => async (rule, tensors) =>
  call(method, { form, rule: check.text(rule, "rule"), call: check.required(tensors, method, "tensors") });

/** The operators on typed arrays: `rule` is a name of the family, such as `gated_deltanet`. */
export const operators = {
  recurrent: operator("delta", "recurrent"),
  chunk: operator("delta", "chunk"),
  attention: async (tensors) => call("attention", { call: check.required(tensors, "attention", "tensors") }),
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

