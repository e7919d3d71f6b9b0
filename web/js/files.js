// From a URL or a set of files to the bytes of a checkpoint, in the Worker.

import { DeltanetError } from "./errors.js";
import * as store from "./store.js";

const WEIGHTS = "model.safetensors";
const INDEX = "model.safetensors.index.json";
const OPTIONAL = ["tokenizer.json", "generation_config.json"];
/** What a checkpoint may consist of, beside its weights; other files of a folder are left alone. */
const SMALL = ["config.json", ...OPTIONAL];
const isWeights = (name) => name.endsWith(".safetensors");

/**
 * Feeds every file of `source` to `loader`.
 *
 * `source` is `{url}`, the address of a folder or of a `files.json` in it, or `{files: [{name, blob}]}`.
 */
export async function collect(source, options, loader, tell, signal) {
  const parts = source.files ? await local(source.files) : await remote(source.url, options, signal);
  // A config that cannot be run saves the way of the weights; so does a file that is missing.
  const rank = ({ name }) => (name === "config.json" ? 0 : isWeights(name) ? 2 : 1);
  parts.sort((a, b) => rank(a) - rank(b) || (a.size ?? 0) - (b.size ?? 0));
  const meter = new Meter(parts, tell);
  for (const part of parts) {
    await part.read({
      announce(size) {
        part.index = loader.file(part.name, size);
        // Of an empty file nothing else comes.
        if (size === 0) loader.push(part.index, new Uint8Array());
      },
      push(bytes, from) {
        loader.push(part.index, bytes);
        meter.add(part, bytes.length, from);
      },
      restart() {
        loader.restart(part.index);
        meter.restart(part);
      },
      signal,
    });
    signal.throwIfAborted();
  }
  meter.end();
}

/** Bytes so far, of how many, and how fast those from the network come. */
class Meter {
  #parts;
  #tell;
  #told = 0;
  #recent = [];

  constructor(parts, tell) {
    this.#parts = parts;
    this.#tell = tell;
    for (const part of parts) part.done = 0;
    this.#report("reading");
  }

  add(part, bytes, from) {
    part.done += bytes;
    const now = performance.now();
    if (from === "network") {
      this.#recent.push({ now, bytes });
      while (this.#recent[0].now < now - 3000) this.#recent.shift();
    }
    if (now - this.#told >= 50) this.#report(from === "network" ? "downloading" : "reading");
  }

  restart(part) {
    part.done = 0;
  }

  end() {
    this.#report("reading");
  }

  #report(stage) {
    this.#told = performance.now();
    const sum = (of) => this.#parts.reduce((n, part) => n + of(part), 0);
    const span = this.#recent.length > 1 ? this.#told - this.#recent[0].now : 0;
    const bytes = this.#recent.reduce((n, r) => n + r.bytes, 0);
    this.#tell({
      stage,
      done: sum((p) => p.done),
      total: sum((p) => Math.max(p.size ?? 0, p.done)),
      bytesPerSecond: span > 0 ? (1000 * bytes) / span : 0,
    });
  }
}

/** The files beside the uppermost config.json. */
async function local(files) {
  const all = files.map(({ name, blob }) => {
    const [, folder, file] = /^(.*[\\/])?([^\\/]*)$/.exec(name);
    return { folder: folder ?? "", name: file, blob };
  });
  const config = all.filter(({ name }) => name === "config.json").sort((a, b) => a.folder.length - b.folder.length)[0];
  if (!config) {
    throw new DeltanetError("missing", "config.json: not found; a model is a folder with config.json and model.safetensors");
  }
  const beside = new Map(all.filter(({ folder }) => folder === config.folder).map((file) => [file.name, file.blob]));
  // One file of weights needs no others.
  const index = beside.has(WEIGHTS) ? undefined : beside.get(INDEX);
  // (What is wrong with an index, the whole checkpoint tells.)
  const named = index ? await index.text().then(shards).catch(() => new Set()) : new Set(beside.has(WEIGHTS) ? [WEIGHTS] : []);
  const names = [...SMALL, ...(index ? [INDEX] : [])].filter((name) => beside.has(name));
  return [...names, ...named].map((name) => ({
    name,
    // What is not there is told first.
    size: beside.get(name)?.size ?? 0,
    async read({ announce, push, signal }) {
      const blob = beside.get(name);
      if (!blob) throw new DeltanetError("missing", `${name}: not found, but named in ${INDEX}`);
      announce(blob.size);
      await stream(blob.stream(), (bytes) => push(bytes, "disk"), signal);
    },
  }));
}

/** Calls `take` with every chunk of a stream. */
export async function stream(readable, take, signal) {
  const reader = readable.getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      signal?.throwIfAborted();
      take(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** The folder of a model, with a slash at its end. A model page of the Hugging Face hub stands for its files. */
function folder(url) {
  const address = new URL(url);
  if (address.pathname.endsWith("/config.json")) return new URL(".", address);
  const hub = address.hostname === "huggingface.co" && /^\/[^/]+\/[^/]+\/?$/.test(address.pathname);
  if (hub) address.pathname = `${address.pathname.replace(/\/$/, "")}/resolve/main/`;
  else if (!address.pathname.endsWith("/")) address.pathname += "/";
  return address;
}

async function remote(url, options, signal) {
  const listed = /\.json$/.test(new URL(url).pathname) && !/\/config\.json$/.test(new URL(url).pathname);
  const base = listed ? new URL(".", url) : folder(url);
  const shelf = options.store === false ? undefined : await store.open(base.href);
  const list = listed ? await readList(url, shelf, signal) : await probe(base, shelf, signal);
  await shelf?.reserve(list);
  return list.map((file) => part(file, new URL(file.name, base), shelf));
}

/** `files.json`: `{files: [{name, size, sha256}]}`. Without a connection, what was stored is taken. */
async function readList(url, shelf, signal) {
  try {
    const response = await get(url, { cache: "no-cache", signal });
    const files = parsed(await response.text(), url)?.files;
    const fine = Array.isArray(files) && files.every((f) => typeof f?.name === "string" && Number.isFinite(f.size));
    if (!fine) throw new DeltanetError("format", `${url}: expected {files: [{name, size}]}`);
    return files.map(({ name, size, sha256 }) => ({ name, size, sha256, version: sha256 ?? `${size}` }));
  } catch (error) {
    return fromShelf(shelf, error);
  }
}

/** Finds out which files a folder has, and their versions. */
async function probe(base, shelf, signal) {
  const look = async (name, needed) => {
    const response = await fetch(new URL(name, base), { method: "HEAD", cache: "no-cache", signal });
    if (response.status === 404 && !needed) return undefined;
    if (!response.ok) throw new DeltanetError("io", `${new URL(name, base).href}: the server answered ${response.status}`);
    const { headers } = response;
    const length = headers.get("content-encoding") ? null : headers.get("content-length");
    const size = length === null ? undefined : Number(length);
    const version = [headers.get("etag"), headers.get("last-modified"), length].join("|");
    return { name, size, version };
  };
  try {
    const config = await look("config.json", true);
    const whole = await look(WEIGHTS, false);
    const names = whole ? [] : [INDEX, ...shards(await (await get(new URL(INDEX, base), { signal })).text())];
    const others = await Promise.all([
      ...OPTIONAL.map((name) => look(name, false)),
      ...names.map((name) => look(name, true)),
    ]);
    return [config, ...others, whole].filter(Boolean);
  } catch (error) {
    return fromShelf(shelf, error);
  }
}

/** The files of weights that the text of an index names. */
function shards(text) {
  const names = new Set(Object.values(parsed(text, INDEX)?.weight_map ?? {}));
  for (const name of names) {
    if (typeof name !== "string" || !/^[\w.-]+\.safetensors$/.test(name)) {
      throw new DeltanetError("format", `${INDEX}: expected names of safetensors files, got ${JSON.stringify(name)}`);
    }
  }
  return names;
}

function parsed(text, name) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new DeltanetError("format", `${name}: expected JSON, got something else: ${error.message}`);
  }
}

function fromShelf(shelf, error) {
  const offline = error instanceof TypeError && error.name === "TypeError";
  const list = offline ? shelf?.complete() : undefined;
  if (list) return list;
  if (offline) throw new DeltanetError("io", `the model's files cannot be reached: ${error.message}`);
  throw error;
}

async function get(url, init) {
  const response = await fetch(url, init);
  if (!response.ok) throw new DeltanetError("io", `${url}: the server answered ${response.status}`);
  return response;
}

/** One remote file: from the shelf as far as it is there, the rest from the network. */
function part(file, url, shelf) {
  return {
    name: file.name,
    size: file.size,
    async read({ announce, push, restart, signal }) {
      if (file.size === undefined) {
        // Its size is not known before it is here.
        const bytes = new Uint8Array(await (await get(url, { signal })).arrayBuffer());
        announce(bytes.length);
        push(bytes, "network");
        return;
      }
      announce(file.size);
      const saved = await shelf?.file(file);
      let have = 0;
      if (saved?.size) have = await saved.read((bytes) => push(bytes, "disk"), signal);
      if (have === file.size) return;
      await saved?.begin();
      try {
        for (let tries = 0; have < file.size; ) {
          const headers = have > 0 ? { Range: `bytes=${have}-` } : {};
          const before = have;
          try {
            const response = await get(url, { headers, signal, cache: have > 0 ? "no-store" : "default" });
            if (have > 0 && response.status !== 206) {
              // The server has no parts: the whole file, then.
              have = 0;
              restart();
              saved?.clear();
            }
            await stream(response.body, (bytes) => {
              push(bytes, "network");
              saved?.append(bytes);
              have += bytes.length;
            }, signal);
            if (have < file.size && have === before) throw new TypeError("the connection ended early");
          } catch (error) {
            // A connection that breaks is taken up where it broke, if it had got anywhere.
            if (signal?.aborted || !(error instanceof TypeError)) throw error;
            tries = have > before ? 0 : tries + 1;
            if (tries > 3) throw new DeltanetError("io", `${url.href}: ${error.message}`);
            await new Promise((resolve) => setTimeout(resolve, 250 * 4 ** tries));
          }
        }
      } finally {
        saved?.close();
      }
      if ((await saved?.finish()) === false) {
        throw new DeltanetError("io", `${url.href}: the file arrived damaged; load it again`);
      }
    },
  };
}
