// What callers give, checked before anything is sent or changed. (Numbers among the options are checked by the module.)

import { DeltanetError, wrong } from "./errors.js";

const isObject = (value) => typeof value === "object" && value !== null;
/** Signals, lists and maps have none of the fields that are looked for: they would be taken, and change nothing. */
const isPlain = (value) => isObject(value) && Object.prototype.toString.call(value) === "[object Object]";
const isFunction = (value) => typeof value === "function";
const isWhole = (value) => Number.isInteger(value) && value >= 0;

/** By what takes them: the names that there are. `index.d.ts` says what each means. */
const NAMES = Object.fromEntries(Object.entries({
  load: "onProgress device sessions store signal",
  read: "onProgress signal",
  generate: "temperature topK topP minP repetitionPenalty seed maxTokens stop stopAtEndOfText stepsAhead onProgress signal",
  view: "direct",
  show: "session width height layer head dark gain gap",
  delta: "shape q k v beta g initialState precond cuSeqlens scale l2norm chunk chunkStates device",
  "delta.shape": "batch tokens heads valueHeads keyDim valueDim",
  "delta.precond": "g beta logScale initial",
  attention: "shape q k v qkNorm cuSeqlens scale window ropeTheta device",
  "attention.shape": "batch tokens heads kvHeads headDim",
  "attention.qkNorm": "q k eps",
}).map(([call, names]) => [call, names.split(" ")]));

/** What values of these names must be; those of other names are checked where they are read. */
const OPTIONS = {
  signal: ["an AbortSignal", (v) => isFunction(v.throwIfAborted)],
  onProgress: ["a function", isFunction],
  device: ["auto, gpu or cpu", (v) => ["auto", "gpu", "cpu"].includes(v)],
  store: ["true or false", (v) => typeof v === "boolean"],
  direct: ["true or false", (v) => typeof v === "boolean"],
  width: ["a whole number", isWhole],
  height: ["a whole number", isWhole],
};

/** Options without those that are null, which means none. `call`: which ones there are. */
export const options = (given, call, what = "options") => required(given ?? {}, call, what);

/** What must be there: an object of options. */
export function required(given, call, what = "options") {
  if (!isPlain(given)) throw wrong(what, "a plain object", given);
  const set = Object.entries(given).filter(([, value]) => value !== undefined && value !== null);
  for (const [name, value] of set) {
    if (!NAMES[call].includes(name)) throw wrong(what, among(NAMES[call], name), name);
    const [expected, fits] = OPTIONS[name] ?? [];
    if (fits && !fits(value)) throw wrong(name, expected, value);
    if (NAMES[`${call}.${name}`]) required(value, `${call}.${name}`, name);
  }
  return Object.fromEntries(set);
}

/** The name that was meant, if one looks like it, and what else there is. */
function among(names, name) {
  const plain = (word) => word.toLowerCase().replace(/[^a-z0-9]/g, "");
  const given = plain(name.slice(0, 40));
  const far = (word) => distance(plain(word), given);
  const nearest = names.reduce((best, word) => (far(word) < far(best) ? word : best));
  const meant = far(nearest) <= Math.max(nearest.length, given.length) / 3;
  const others = names.filter((word) => !meant || word !== nearest).join(", ");
  return meant && others ? `${nearest}, or another of ${others}` : `no other names than ${names.join(", ")}`;
}

/** Letters to change, put in or leave out between two words. */
function distance(a, b) {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 0; i < a.length; i++) {
    const next = [i + 1];
    for (let j = 0; j < b.length; j++) next.push(Math.min(row[j] + (a[i] === b[j] ? 0 : 1), row[j + 1] + 1, next[j] + 1));
    row = next;
  }
  return row[b.length];
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
