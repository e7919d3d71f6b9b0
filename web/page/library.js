// Stories that outlive the visit: a record each in the browser's database. Where there is none, they live as long as the
// page, and nothing here fails.

import { kept } from "./dom.js";

const STORE = "stories";
/** Where words are kept that are in no story yet. */
const DRAFTS = "drafts";
/** Of one model. Those that have not been touched for longest give way. */
const MOST_STORIES = 40;
const MOST_STATES = 4;
/** Of words without a story. */
const MOST_ALONE = 8;

/** The drafts that are kept; whatever else may be there is none. */
const drafts = () => Object.fromEntries(Object.entries({ ...kept.get(DRAFTS) }).filter(([, d]) => typeof d?.text === "string"));
/** Those without a story, the latest first. */
const alone = (all) => Object.entries(all).filter(([, d]) => d.alone).sort(([, a], [, b]) => (b.when || 0) - (a.when || 0));

let opening;

function open() {
  opening ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("deltanet", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => {
      request.result.onclose = () => (opening = undefined);
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
  });
  return opening;
}

async function transact(mode, work) {
  const transaction = (await open()).transaction(STORE, mode);
  const request = work(transaction.objectStore(STORE));
  await new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onabort = () => reject(transaction.error);
  });
  return request.result;
}

export const library = {
  /** Whether there is a database, and what was put last is there. */
  works: false,

  /** Keeps `{id, model, open, tokens, bytes}`; `open`: it was being written, and is no bookmark. */
  async put(record) {
    record = { ...record, when: Date.now() };
    try {
      await transact("readwrite", (store) => store.put(record));
      this.works = true;
    } catch {
      // Full, perhaps: the text alone is small, and the state follows from it.
      if (record.bytes) return this.put({ ...record, bytes: undefined });
      this.works = false;
    }
  },

  async remove(id) {
    this.keepDraft(id);
    await transact("readwrite", (store) => store.delete(id)).catch(() => {});
  },

  /** The stories of a model, the latest first, each with the `draft` that was kept with it. */
  async all(model) {
    let records = [];
    const before = drafts();
    try {
      records = await transact("readonly", (store) => store.getAll());
      this.works = true;
      this.release(Object.keys(before).filter((id) => !records.some((r) => r.id === id)));
    } catch {
      // Nothing is kept here.
    }
    const mine = records.filter((r) => r.model === model).sort((a, b) => b.when - a.when);
    for (const { id } of mine.splice(MOST_STORIES)) this.remove(id);
    for (const record of mine.slice(MOST_STATES)) {
      if (!record.bytes) continue;
      delete record.bytes;
      transact("readwrite", (store) => store.put(record)).catch(() => {});
    }
    const all = drafts();
    return mine.map((record) => ({ ...record, draft: all[record.id]?.text ?? "" }));
  },

  /** Drafts whose records are missing belong to no story: a later visit has them in the box. */
  release(ids) {
    const all = drafts();
    const orphans = ids.filter((id) => all[id] && !all[id].alone);
    for (const id of orphans) all[id].alone = true;
    if (orphans.length > 0) kept.set(DRAFTS, all);
  },

  /**
   * Keeps words that are in no story yet with the record of this id, in place of those before; without words, none.
   * `none`: there is no record. They are in storage before this returns, for the page may be about to go; or it returns
   * false.
   */
  keepDraft(id, text, none) {
    const all = drafts();
    if (text) all[id] = { text, alone: none, when: Date.now() };
    else if (!all[id]) return true;
    else delete all[id];
    for (const [old] of alone(all).slice(MOST_ALONE)) delete all[old];
    return kept.set(DRAFTS, all);
  },

  /** The words that were kept last without a story, which are the caller's from now on; or "". */
  takeDraft() {
    const [[id, { text }] = ["", { text: "" }]] = alone(drafts());
    if (id) this.keepDraft(id);
    return text;
  },
};

/** A name that no other record has. */
export const newId = () => `${Date.now()}-${Math.random()}`;

/** Tokens of a story as plain data. */
export const plain = (tokens) => tokens.map(({ id, text, yours, logprob }) => ({ id, text, yours, logprob }));
