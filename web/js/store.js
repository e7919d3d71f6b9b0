// The browser's own storage: files of models that were downloaded, in the origin private file system.
//
//   deltanet-v1/<hash of the folder's address>/index.json   {url, used, files: {name: {size, version, done}}}
//                                             /<name>       its bytes, or the first part of them
//              /kernels-<hash of the address>                 what was compiled for the model
//
// Everything here is best effort: where there is no storage, or not enough, models load without it.

const ROOT = "deltanet-v1";
const FLUSH_BYTES = 8 << 20;

async function root(create) {
  const directory = await navigator.storage.getDirectory();
  return directory.getDirectoryHandle(ROOT, { create });
}

async function keyOf(url) {
  const bytes = new TextEncoder().encode(url);
  // FNV-1a in two halves: a name for a folder, nothing more.
  let [a, b] = [0x811c9dc5, 0x01000193];
  for (const byte of bytes) {
    a = Math.imul(a ^ byte, 0x01000193) >>> 0;
    b = Math.imul(b ^ byte, 0x85ebca6b) >>> 0;
  }
  return a.toString(16).padStart(8, "0") + b.toString(16).padStart(8, "0");
}

async function readIndex(directory) {
  try {
    const handle = await directory.getFileHandle("index.json");
    const index = JSON.parse(await (await handle.getFile()).text());
    return typeof index?.files === "object" ? index : undefined;
  } catch {
    return undefined;
  }
}

async function writeIndex(directory, index) {
  const handle = await directory.getFileHandle("index.json", { create: true });
  const access = await handle.createSyncAccessHandle();
  try {
    const bytes = new TextEncoder().encode(JSON.stringify(index));
    access.truncate(0);
    access.write(bytes, { at: 0 });
    access.flush();
  } finally {
    access.close();
  }
}

/** The shelf of one model, or undefined where there is no storage. */
export async function open(url) {
  try {
    const key = await keyOf(url);
    const directory = await (await root(true)).getDirectoryHandle(key, { create: true });
    const index = (await readIndex(directory)) ?? { url, used: 0, files: {} };
    index.used = Date.now();
    return new Shelf(key, directory, index);
  } catch {
    return undefined;
  }
}

class Shelf {
  constructor(key, directory, index) {
    this.key = key;
    this.directory = directory;
    this.index = index;
  }

  /** The stored files, if all that were started are whole. */
  complete() {
    const files = Object.entries(this.index.files);
    if (files.length === 0 || files.some(([, f]) => !f.done)) return undefined;
    return files.map(([name, { size, version }]) => ({ name, size, version }));
  }

  /** Makes room for the files that are not here: models that were used longest ago give way. */
  async reserve(list) {
    this.room = true;
    const names = new Set(list.map((f) => f.name));
    for (const name of Object.keys(this.index.files)) {
      if (!names.has(name)) await this.drop(name);
    }
    const missing = list.filter((f) => {
      const file = this.index.files[f.name];
      return !(file?.done && file.version === f.version);
    });
    const need = missing.reduce((n, f) => n + (f.size ?? 0), 0);
    try {
      const space = async () => {
        const { quota = 0, usage = 0 } = await navigator.storage.estimate();
        return quota - usage;
      };
      const others = (await listShelves()).filter((s) => s.key !== this.key).sort((a, b) => a.used - b.used);
      while (need > 0.95 * (await space()) && others.length > 0) await remove(others.shift().key);
      this.room = need <= 0.95 * (await space());
    } catch {
      // No estimate: a write that fails will tell.
    }
    await this.save();
  }

  async save() {
    await writeIndex(this.directory, this.index).catch(() => {});
  }

  async drop(name) {
    delete this.index.files[name];
    await this.directory.removeEntry(name).catch(() => {});
  }

  /** A file's place: as much of its right version as is stored. */
  async file({ name, size, version, sha256 }) {
    try {
      if (this.index.files[name]?.version !== version) await this.drop(name);
      const known = this.index.files[name];
      if (!known && !this.room) return undefined;
      const handle = await this.directory.getFileHandle(name, { create: true });
      const have = known ? (await handle.getFile()).size : 0;
      if (have > size || (known?.done && have !== size)) {
        await this.drop(name);
        return this.file({ name, size, version, sha256 });
      }
      return new Stored(this, handle, { name, size, version, sha256 }, have);
    } catch {
      return undefined;
    }
  }
}

class Stored {
  #shelf;
  #handle;
  #file;
  #access;
  #at = 0;
  #unflushed = 0;
  /** Everything that came was written. */
  #kept = false;

  constructor(shelf, handle, file, size) {
    this.#shelf = shelf;
    this.#handle = handle;
    this.#file = file;
    this.size = size;
  }

  /**
   * Hands over what is stored; returns how much that is. Less than there is where another tab is writing the file: it
   * cannot be read while it grows, and what is missing is fetched.
   */
  async read(push, signal) {
    const step = 4 << 20;
    try {
      const blob = await this.#handle.getFile();
      while (this.#at < blob.size) {
        const bytes = new Uint8Array(await blob.slice(this.#at, this.#at + step).arrayBuffer());
        signal?.throwIfAborted();
        this.#at += bytes.length;
        push(bytes);
      }
    } catch (error) {
      if (error.name !== "NotReadableError") throw error;
    }
    return this.#at;
  }

  /** Gets ready for the rest. Another tab may be writing the same file: then this one does not. */
  async begin() {
    try {
      const { name, size, version } = this.#file;
      this.#access = await this.#handle.createSyncAccessHandle();
      this.#kept = true;
      // (Another tab may have gone on since: the same bytes.)
      this.#at = Math.min(this.#at, this.#access.getSize());
      this.#shelf.index.files[name] = { size, version, done: false };
      await this.#shelf.save();
    } catch {
      this.#access = undefined;
      this.#kept = false;
    }
  }

  append(bytes) {
    try {
      if (!this.#access) return;
      this.#access.write(bytes, { at: this.#at });
      this.#at += bytes.length;
      this.#unflushed += bytes.length;
      if (this.#unflushed >= FLUSH_BYTES) {
        this.#access.flush();
        this.#unflushed = 0;
      }
    } catch {
      // Full: what is here is of no use without the rest.
      this.clear();
      this.close();
      this.#kept = false;
    }
  }

  clear() {
    try {
      this.#access?.truncate(0);
      this.#at = 0;
    } catch {
      this.#access = undefined;
    }
  }

  close() {
    try {
      this.#access?.flush();
      this.#access?.close();
    } catch {
      // It is closed.
    }
    this.#access = undefined;
  }

  /** After the last byte: checks and records it. False: what came is not the file. */
  async finish() {
    const { name, size, version, sha256 } = this.#file;
    if (!this.#kept) return true;
    try {
      const blob = await this.#handle.getFile();
      let right = blob.size === size;
      if (right && sha256 && globalThis.crypto?.subtle && size <= 1 << 29) {
        const digest = await crypto.subtle.digest("SHA-256", await blob.arrayBuffer());
        right = hex(digest) === sha256;
      }
      if (right) this.#shelf.index.files[name] = { size, version, done: true };
      else await this.#shelf.drop(name);
      await this.#shelf.save();
      return right;
    } catch {
      // It loads without.
      return true;
    }
  }
}

const hex = (buffer) => Array.from(new Uint8Array(buffer), (b) => b.toString(16).padStart(2, "0")).join("");

async function listShelves() {
  const shelves = [];
  try {
    for await (const [key, directory] of (await root(false)).entries()) {
      if (directory.kind !== "directory") continue;
      const index = await readIndex(directory);
      let bytes = 0;
      for await (const entry of directory.values()) {
        if (entry.kind === "file") bytes += (await entry.getFile()).size;
      }
      shelves.push({ key, url: index?.url ?? "", used: index?.used ?? 0, bytes });
    }
  } catch {
    // No storage, nothing stored.
  }
  return shelves;
}

/** What `remember` kept of a model's address, or "". */
export async function recall(url) {
  try {
    const handle = await (await root(false)).getFileHandle(`kernels-${await keyOf(url)}`);
    return await (await handle.getFile()).text();
  } catch {
    return "";
  }
}

/** Keeps a little text with a model's address: what was compiled for it. */
export async function remember(url, text) {
  if (!url || (await recall(url)) === text) return;
  try {
    const handle = await (await root(true)).getFileHandle(`kernels-${await keyOf(url)}`, { create: true });
    const access = await handle.createSyncAccessHandle();
    access.truncate(0);
    access.write(new TextEncoder().encode(text), { at: 0 });
    access.close();
  } catch {
    // It is compiled later, then.
  }
}

/** Models that are stored: `{key, url, used, bytes}`. */
export const list = listShelves;

/** Removes one, or all without a key. */
export async function remove(key) {
  try {
    if (key) await (await root(false)).removeEntry(key, { recursive: true });
    else await (await navigator.storage.getDirectory()).removeEntry(ROOT, { recursive: true });
  } catch {
    // It is not there.
  }
}
