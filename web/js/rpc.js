// Calls across a message port: requests with promises, and events. Both sides use this file.

import { DeltanetError } from "./errors.js";

/** Codes for errors of the browser's own: of files that cannot be read, and of text that is no JSON. */
const CODES = { NotReadableError: "file", NotFoundError: "file", SecurityError: "file", SyntaxError: "format" };

/** An error as plain data: errors do not keep their extra fields when they are posted. */
export function packError(error) {
  const { name = "Error", message = String(error), stack } = error ?? {};
  // (DOM exceptions have numbers for codes.)
  let code = typeof error?.code === "string" ? error.code : CODES[name];
  if (error instanceof WebAssembly.RuntimeError) code = "crashed";
  return { name, message, code, stack };
}

export function unpackError({ name, message, code }) {
  if (code) return new DeltanetError(code, message);
  if (name === "AbortError") return new DOMException(message, name);
  return Object.assign(new Error(message), { name });
}

/** The calling side. `events[name](data)` hears what the other side tells. */
export class Caller {
  #port;
  #next = 1;
  #open = new Map();
  #events;

  constructor(port, events = {}) {
    this.#port = port;
    this.#events = events;
    port.onmessage = ({ data }) => this.#hear(data);
  }

  /** Calls `method` with one argument; `transfer` moves buffers instead of copying them. */
  call(method, argument, transfer = []) {
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#open.set(id, { resolve, reject });
      try {
        this.#port.postMessage({ id, method, argument }, transfer);
      } catch (error) {
        this.#open.delete(id);
        reject(new DeltanetError("argument", `${method}: expected values that a Worker can be sent, got others (${error.message})`));
      }
    });
  }

  /** Tells something without an answer. */
  tell(method, argument) {
    this.#port.postMessage({ method, argument });
  }

  /** Fails every open call: the other side is gone. */
  fail(error) {
    for (const { reject } of this.#open.values()) reject(error);
    this.#open.clear();
  }

  #hear({ id, value, error, event, data }) {
    if (event) {
      this.#events[event]?.(data);
      return;
    }
    const call = this.#open.get(id);
    this.#open.delete(id);
    if (error) call?.reject(unpackError(error));
    else call?.resolve(value);
  }
}

/** A value with the buffers to move along with it. */
export class Moved {
  constructor(value, transfer) {
    this.value = value;
    this.transfer = transfer;
  }
}

/** The answering side: `methods[name](argument)` may return a promise. */
export function answer(port, methods) {
  port.onmessage = async ({ data: { id, method, argument } }) => {
    try {
      let value = await methods[method](argument);
      let transfer = [];
      if (value instanceof Moved) ({ value, transfer } = value);
      if (id) port.postMessage({ id, value }, transfer);
    } catch (error) {
      if (id) port.postMessage({ id, error: packError(error) });
    }
  };
  return (event, data, transfer = []) => port.postMessage({ event, data }, transfer);
}
