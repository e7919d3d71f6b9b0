// The story on the page is kept as it grows, and offered on the next visit.

import { $, make, number } from "./dom.js";
import { app, places, story } from "./app.js";
import { library, newId, plain } from "./library.js";

/** Larger states are made from their text again. */
const MOST_STATE_BYTES = 32e6;
const EVERY_MS = 1000;

/** Of the story on the page. */
let id = newId();
/** There is a record of it. */
let kept = false;
let last = 0;

/** Keeps the story: with the memory where nothing uses the session, else the text alone. */
export async function keepStory() {
  const { session } = app;
  if (!session) return;
  last = performance.now();
  if (story.length === 0) {
    if (kept) library.remove(id);
    keepAnother();
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
}

/** The same while text comes, now and then. */
export function keepGrowing() {
  if (performance.now() - last >= EVERY_MS) keepStory();
}

/** From here on the story is another one, of which there is no record yet. */
export function keepAnother() {
  [id, kept] = [newId(), false];
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
  const text = latest.tokens.map((t) => t.text).join("").replace(/\s+/g, " ").trim();
  const end = text.length > 90 ? `…${text.slice(-90)}` : text;
  button.replaceChildren(
    make("strong", { textContent: "Pick up where you left" }),
    make("span", { textContent: end }),
    make("small", { textContent: `${number(latest.tokens.length)} tokens` }),
  );
  button.onclick = () => resume(latest);
}

// Leaving in mid-story: the text so far. Where nothing can be kept, the browser asks first.
addEventListener("pagehide", () => {
  if (app.run) keepStory();
});
addEventListener("beforeunload", (event) => {
  if (story.length > 0 && !library.works) event.preventDefault();
});
