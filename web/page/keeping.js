// The story on the page is kept as it grows, with the words that are in no story yet, and offered on the next visit.

import { $, make, number } from "./dom.js";
import { app, places, story } from "./app.js";
import { library, newId, plain } from "./library.js";

/** Larger states are made from their text again. */
const MOST_STATE_BYTES = 32e6;
const EVERY_MS = 1000;

/** Of the story on the page. */
let id = newId();
/** A record of it was begun; and there is one. */
let [kept, recorded] = [false, false];
let last = 0;
/** Words that were sent and are in no record yet. */
let sent = "";
/** They, and what is in the box, are kept. */
let safe = true;

/** Keeps the story: with the memory where nothing uses the session, else the text alone. */
export async function keepStory() {
  const { session } = app;
  if (!session) return;
  last = performance.now();
  if (story.length === 0) {
    if (kept) {
      library.remove(id);
      keepAnother();
    }
    return;
  }
  kept = true;
  const record = { id, model: session.info.fingerprint, open: true, tokens: plain(story.tokens) };
  const { stateBytes, cacheBytesPerToken } = session.info;
  if (!app.run && !app.busy && stateBytes + story.length * cacheBytesPerToken <= MOST_STATE_BYTES) {
    record.bytes = await session.save().catch(() => undefined);
    // The next part may have begun meanwhile: the state is that of another text, then, and so is the record.
    if (app.run || app.busy || record.id !== id || record.tokens.length !== story.length) return;
  }
  await library.put(record);
  // What is in the box belongs to it. (Where that failed, the record before is of the same story.)
  if (record.id === id) recorded ||= library.works;
  keepDraft();
}

/** The same while text comes, now and then. */
export function keepGrowing() {
  if (performance.now() - last >= EVERY_MS) keepStory();
}

/** From here on the story is another one, of which there is no record yet. What is in the box goes along. */
export function keepAnother() {
  library.keepDraft(id);
  [id, kept, recorded] = [newId(), false, false];
  keepDraft();
}

/** Both words, as they stand in the box when the first come back to it. */
const before = (words, box) => (words && box ? `${words} ${box}` : words || box);

/** Keeps what is in the box, and what was sent and is in no record yet. */
export function keepDraft() {
  safe = library.keepDraft(id, before(sent, $("prompt").value), !(recorded && library.works));
}

/** The same with these words, if any, as those that were sent. They may be in the box again: then there are none. */
export function keepWords(words = "") {
  sent = words;
  keepDraft();
}

/** The words that were sent are the story's now: once that is in its record, they are kept there. */
export async function keepRead() {
  const words = sent;
  await keepStory();
  if (sent === words) keepWords();
}

/** Puts words that were kept into the box, before what is there. */
export function putBack(words) {
  const box = $("prompt");
  box.value = before(words, box.value);
  keepDraft();
}

/**
 * Puts what was left in the box without a story there again, as soon as the page is there, whatever becomes of the model;
 * but not the words that the page's address has it write anyway.
 */
export function recallDraft(address) {
  const words = library.takeDraft();
  if (words !== address) putBack(words);
}

/** Brings back what earlier visits left of this model; `resume(place)` goes on with the latest. */
export async function recallStories(resume) {
  const model = app.session.info.fingerprint;
  const records = await library.all(model);
  if (app.session?.info.fingerprint !== model) return;
  places.recall(records.filter((r) => r.id !== id));
  const latest = records.find((r) => r.open && r.id !== id);
  const button = $("resume");
  button.hidden = !latest;
  if (!latest) return;
  button.dataset.id = latest.id;
  const end = (words) => {
    const text = words.replace(/\s+/g, " ").trim();
    return text.length > 90 ? `…${text.slice(-90)}` : text;
  };
  const unread = latest.draft.trim();
  button.replaceChildren(
    make("strong", { textContent: "Pick up where you left" }),
    make("span", { textContent: end(latest.tokens.map((t) => t.text).join("")) }),
    ...(unread ? [make("span", { className: "yours", textContent: end(latest.draft) })] : []),
    make("small", { textContent: `${number(latest.tokens.length)} tokens${unread ? ", and words of yours that are not read yet" : ""}` }),
  );
  button.onclick = () => resume(latest);
}

// Leaving in mid-story: the text so far. Where nothing can be kept, the browser asks first.
addEventListener("pagehide", () => {
  if (app.run) keepStory();
});
addEventListener("beforeunload", (event) => {
  if ((story.length > 0 && !library.works) || !safe) event.preventDefault();
});
