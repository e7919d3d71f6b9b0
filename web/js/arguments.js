// What callers give, checked before anything is sent or changed. (Numbers among the options are checked by the module.)

import { DeltanetError, wrong } from "./errors.js";

const isObject = (value) => typeof value === "object" && value !== null;
const isFunction = (value) => typeof value === "function";
const isWhole = (value) => Number.isInteger(value) && value >= 0;

const OPTIONS = {
  signal: ["an AbortSignal", (v) => isFunction(v.throwIfAborted)],
  onProgress: ["a function", isFunction],
  device: ["auto, gpu or cpu", (v) => ["auto", "gpu", "cpu"].includes(v)],
  store: ["true or false", (v) => typeof v === "boolean"],
  direct: ["true or false", (v) => typeof v === "boolean"],
  width: ["a whole number", isWhole],
  height: ["a whole number", isWhole],
};

/** Options without those that are null, which means none. */
export function options(given, what = "options") {
  if (!isObject(given ?? {})) throw wrong(what, "an object", given);
  const set = Object.entries(given ?? {}).filter(([, value]) => value !== undefined && value !== null);
  for (const [name, value] of set) {
    const [expected, fits] = OPTIONS[name] ?? [];
    if (fits && !fits(value)) throw wrong(name, expected, value);
  }
  return Object.fromEntries(set);
}

/** What must be there: an object of options. */
export function required(given, what) {
  if (!isObject(given)) throw wrong(what, "an object", given);
  return options(given, what);
}

export function text(value, what) {
  if (typeof value !== "string") throw wrong(what, "a text", value);
  return value;
}

export function listener(value) {
  if (!isFunction(value)) throw wrong("listener", "a function", value);
  return value;
}

/** Token ids, each one of the vocabulary's. */
export function tokens(list, vocab, expected = "an array of token ids") {
  if (!isObject(list) || !isWhole(list.length) || list.length >= 2 ** 31) throw wrong("tokens", expected, list);
  const ids = new Uint32Array(list.length);
  for (let i = 0; i < ids.length; i++) {
    if (!isWhole(list[i]) || list[i] >= vocab) throw wrong(`token ${i}`, `an id, a whole number below ${vocab}`, list[i]);
    ids[i] = list[i];
  }
  return ids;
}

/** A text, or token ids. */
export const prompt = (value, vocab) =>
  typeof value === "string" ? value : tokens(value, vocab, "a text or an array of token ids");

/** A saved session's bytes. */
export async function bytes(value) {
  if (value instanceof Blob) value = await value.arrayBuffer();
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (!ArrayBuffer.isView(value)) throw wrong("saved session", "an ArrayBuffer, a Uint8Array or a Blob", value);
  return new Uint8Array(value.buffer, value.byteOffset, value.byteLength).slice();
}

/** Where a model comes from, as plain data: an absolute address, or names with blobs. */
export function source(given) {
  if (typeof given === "string" || given instanceof URL) {
    try {
      return { url: new URL(given, base()).href };
    } catch {
      throw new DeltanetError("address", `source: expected the address of a model's folder, got ${JSON.stringify(given)}`);
    }
  }
  if (!isObject(given)) throw wrong("source", "an address, files, or a map from names to bytes", given);
  const entries =
    given instanceof Map ? [...given]
    : Symbol.iterator in given ? Array.from(given, (f) => [f?.webkitRelativePath || f?.name, f?.data ?? f])
    : Object.entries(given);
  return { files: entries.map(([name, data]) => ({ name: text(name, "name of a file"), blob: blob(name, data) })) };
}

const base = () => globalThis.document?.baseURI ?? globalThis.location?.href;

function blob(name, data) {
  if (data instanceof Blob) return data;
  if (data instanceof ArrayBuffer || ArrayBuffer.isView(data)) return new Blob([data]);
  throw wrong(name, "a Blob, an ArrayBuffer or a typed array", data);
}
