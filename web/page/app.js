// What the parts of the page share.

import { $, able, kept, say } from "./dom.js";
import { keepStory } from "./keeping.js";
import { knobs } from "./knobs.js";
import { Memory } from "./memory.js";
import * as messages from "./messages.js";
import { Places } from "./places.js";
import { Story } from "./story.js";

export const query = new URLSearchParams(location.search);
/** The device that the address names. */
export const asked = query.get("device") || "auto";
export const DEMO = "models/stories-17m/files.json";
export const OPENINGS = [
  "Once upon a time",
  "The old wizard opened the door and",
  "“Where are you going?” asked the fox.",
  "In the middle of the forest there lived",
];

export const story = new Story();
export const memory = new Memory(story);
export const places = new Places(story);
export const settings = knobs();

export const app = {
  /** The session of the package, once a model is loaded. */
  session: undefined,
  /** The generation under way. */
  run: undefined,
  /** Something else uses the session; it takes a moment. */
  busy: false,
  /** The state before the last part was written: `{length, bytes, prompt}`. */
  before: undefined,
  /** Where the model is from, and the device that was asked for. */
  source: query.get("model") || DEMO,
  device: ["auto", "gpu", "cpu"].includes(asked) ? asked : "auto",
};

/** Makes the buttons say what can be done now. */
export function update() {
  const [writing, some] = [Boolean(app.run), story.length > 0];
  const busy = writing || app.busy;
  $("go").textContent = writing ? "Stop" : !some ? "Tell the story" : $("prompt").value.trim() ? "Add and go on" : "Go on";
  able("go", Boolean(app.session) && (writing || !app.busy));
  able("again", !busy && Boolean(app.before));
  able("copy", some);
  for (const id of ["fresh", "save", "rewind", "bookmark"]) able(id, !busy && some);
  able("open", !busy && Boolean(app.session));
  const words = app.session?.info.hasTokenizer !== false;
  $("openings").hidden = !words;
  $("prompt").placeholder = some ? `Your ${words ? "words" : "tokens"}, or just go on` : words ? OPENINGS[0] : "1 2 3";
  places.busy(busy);
  story.busy(writing);
}

/** What helps against an error is for the part that loads models to say. */
export const remedies = { of: () => ({}) };

export function failed(error) {
  messages.showError(error, remedies.of(error));
  $("status").textContent = "An error occurred.";
}

/** Runs something that uses the session; shows what goes wrong, and how things are afterwards. Whether it came to its end. */
export async function guarded(work) {
  if (app.busy) return false;
  app.busy = true;
  update();
  let done = false;
  try {
    await work();
    done = true;
  } catch (error) {
    if (error?.name === "AbortError") say("Stopped: nothing has changed.");
    else failed(error);
  } finally {
    app.busy = false;
  }
  refresh();
  return done;
}

const waiting = [];

/** Stops what is being written, and waits until nothing uses the session. */
export async function idle() {
  while (app.run || app.busy) {
    app.run?.stop();
    await new Promise((done) => waiting.push(done));
  }
}

/** How things are once nothing uses the session. */
export function refresh() {
  for (const done of waiting.splice(0)) done();
  update();
  keepStory();
  memory.grow(story.length);
  memory.look();
  memory.follow();
}

/** What stands for tokens that have no text because there is no tokenizer. */
export const label = (tokens, texts) => (app.session.info.hasTokenizer ? texts : Array.from(tokens, (t) => `${t} `));

function theme(name) {
  document.documentElement.dataset.theme = name;
  memory.look();
}
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.onchange = () => kept.get("theme") ?? theme(dark.matches ? "dark" : "light");
theme(kept.get("theme") ?? (dark.matches ? "dark" : "light"));
$("theme").onclick = () => {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  kept.set("theme", next);
  theme(next);
};
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => memory.look(), 200);
});
