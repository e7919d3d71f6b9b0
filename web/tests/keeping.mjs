// Which words the page keeps with a story, and which without one, where the database takes its time. In Node.

import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { assert, assertEqual, site, test } from "./harness.mjs";

/** As much of a database as the page uses. What is put is there once what `hold` was given has come to its end. */
function database() {
  const records = new Map();
  let held;
  const store = {
    put: (record) => void records.set(record.id, record),
    delete: (id) => void records.delete(id),
    getAll: () => [...records.values()],
  };
  const transaction = (_, mode) => {
    const transaction = {};
    const work = (method) => (argument) => {
      const request = {};
      Promise.resolve(mode === "readwrite" && held).then(() => {
        request.result = store[method](argument);
        transaction.oncomplete();
      });
      return request;
    };
    transaction.objectStore = () => ({ put: work("put"), delete: work("delete"), getAll: work("getAll") });
    return transaction;
  };
  const indexedDB = {
    open() {
      const request = { result: { transaction } };
      queueMicrotask(() => request.onsuccess());
      return request;
    },
  };
  return { records, indexedDB, hold: (promise) => (held = promise) };
}

/** What the rest of the page is to the part that keeps stories. */
const APP = `
export const app = { session: undefined, run: undefined, busy: false };
export const places = { recall() {} };
export const story = { tokens: [], get length() { return this.tokens.length; } };
`;

/** The page's two modules, with little else. */
async function withPage(body) {
  const folder = mkdtempSync(join(tmpdir(), "deltanet-keeping-"));
  const { records, indexedDB, hold } = database();
  const stored = new Map();
  const prompt = { value: "" };
  const globals = {
    indexedDB,
    addEventListener: () => {},
    document: { getElementById: (id) => (id === "prompt" ? prompt : { dataset: {} }) },
    localStorage: { getItem: (name) => stored.get(name) ?? null, setItem: (name, value) => stored.set(name, value) },
  };
  const before = Object.fromEntries(Object.keys(globals).map((name) => [name, Object.getOwnPropertyDescriptor(globalThis, name)]));
  for (const [name, value] of Object.entries(globals)) Object.defineProperty(globalThis, name, { value, configurable: true, writable: true });
  try {
    for (const file of ["keeping.js", "library.js", "dom.js"]) copyFileSync(join(site, file), join(folder, file));
    writeFileSync(join(folder, "app.js"), APP);
    writeFileSync(join(folder, "package.json"), '{"type": "module"}');
    const of = (name) => import(pathToFileURL(join(folder, name)));
    const [keeping, { library }, { app, story }] = await Promise.all(["keeping.js", "library.js", "app.js"].map(of));
    const drafts = () => JSON.parse(stored.get("deltanet.drafts") ?? "{}");
    await body({ keeping, library, app, story, prompt, records, hold, stored, drafts });
  } finally {
    for (const [name, descriptor] of Object.entries(before)) {
      if (descriptor) Object.defineProperty(globalThis, name, descriptor);
      else delete globalThis[name];
    }
    rmSync(folder, { recursive: true, force: true });
  }
}

export async function keepings() {
  await test("node: words belong to a story once there is a record of it", () => withPage(async ({ keeping, app, story, prompt, records, hold, drafts }) => {
    const alone = () => Object.values(drafts()).map((d) => [d.text, d.alone]);
    const [holding, saving] = [[], []];
    hold(new Promise((resolve) => holding.push(resolve)));
    app.session = {
      info: { fingerprint: "a", stateBytes: 4, cacheBytesPerToken: 0 },
      save: () => new Promise((resolve) => saving.push(resolve)),
    };
    story.tokens = [{ id: 1, text: "Once" }];
    prompt.value = "a fox";
    const put = keeping.keepStory();
    keeping.keepDraft();
    assertEqual(alone(), [["a fox", true]], "while the state is saved");
    saving[0](new Uint8Array(4));
    await new Promise(setImmediate);
    keeping.keepDraft();
    assertEqual([alone(), records.size], [[["a fox", true]], 0], "while it is put into the database");
    holding[0]();
    await put;
    assertEqual([alone(), records.size], [[["a fox", false]], 1], "once it is there");
    // A state that comes too late makes no record.
    keeping.keepAnother();
    assertEqual(alone(), [["a fox", true]], "another story");
    const late = keeping.keepStory();
    story.tokens = [...story.tokens, { id: 2, text: " upon" }];
    saving[1](new Uint8Array(4));
    await late;
    keeping.keepDraft();
    assertEqual([alone(), records.size], [[["a fox", true]], 1], "of a story that has grown meanwhile");
  }));

  await test("node: words whose story is gone, and things that are no words, keep no page from its start", () => withPage(async ({ library, stored, drafts }) => {
    await library.put({ id: "here", model: "a", open: true, tokens: [] });
    stored.set("deltanet.drafts", JSON.stringify({
      none: null,
      number: 3,
      foreign: { text: 7, alone: true, when: 9 },
      here: { text: "of the story", alone: false, when: 1 },
      gone: { text: "of none", alone: false, when: 2 },
    }));
    assertEqual(library.takeDraft(), "", "words without a story");
    assertEqual((await library.all("a")).map((r) => r.draft), ["of the story"], "words of the story");
    assertEqual(drafts().here.alone, false, "alone");
    assertEqual([library.takeDraft(), library.takeDraft()], ["of none", ""], "words of a story that is gone");
    // The latest eight.
    const { now } = Date;
    try {
      for (let i = 1; i <= 12; i++) {
        Date.now = () => i;
        assert(library.keepDraft(`draft ${i}`, `words ${i}`, true), "kept");
      }
    } finally {
      Date.now = now;
    }
    const taken = Array.from({ length: 9 }, () => library.takeDraft());
    assertEqual(taken, [...[12, 11, 10, 9, 8, 7, 6, 5].map((i) => `words ${i}`), ""], "the latest");
    assertEqual(Object.keys(drafts()), ["here"], "what is left");
  }));
}
