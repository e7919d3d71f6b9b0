// Loading a model: progress, what went wrong, what is kept.

import { load, storage } from "./js/index.js";
import { $, bytes, home, hovers, inWords, make, say } from "./dom.js";
import * as messages from "./messages.js";
import { DEMO, app, idle, memory, places, refresh, remedies, story, update } from "./app.js";
import { keepAnother, recallStories } from "./keeping.js";
import { pickUp } from "./writing.js";

const STAGES = {
  downloading: "Fetching the model",
  reading: "Reading the model",
  checking: "Checking the model",
  uploading: "Handing it to the graphics processor",
  compiling: "Preparing the graphics processor",
};

/** The load under way, `{source, device, abort, done}`. */
let wanted;

/** Waits for the load under way, if any. */
export const loaded = () => wanted?.done;

/**
 * Loads a model. The one that is here stays, with its story, until the other is ready; `alone`: it goes first, so that
 * the other has its memory.
 */
export function start(source, device, { alone = false } = {}) {
  // The one that was asked for last counts.
  wanted?.abort.abort();
  const mine = (wanted = { source, device, abort: new AbortController() });
  mine.done = loading(mine, alone);
  return mine.done;
}

async function loading(mine, alone) {
  const { source, device, abort } = mine;
  messages.hide();
  $("bar").removeAttribute("value");
  $("loading-text").textContent = "Starting";
  const late = setTimeout(() => ($("cancel").hidden = false), 1500);
  $("cancel").onclick = () => abort.abort(new DOMException("Loading was cancelled.", "AbortError"));
  let session;
  try {
    if (alone) await putAway();
    $("loading").classList.toggle("aside", Boolean(app.session));
    $("loading").hidden = false;
    $("welcome").hidden ||= !app.session;
    session = await load(source, { device, signal: abort.signal, onProgress: (p) => wanted === mine && showProgress(p) });
    await idle();
    abort.signal.throwIfAborted();
    await take(session, mine);
    say("The storyteller is ready.");
    requestPersistence();
  } catch (error) {
    if (session && session !== app.session) session.dispose().catch(() => {});
    if (wanted === mine) {
      say(error.name === "AbortError" ? "Loading was cancelled." : "The model could not be loaded.");
      if (error.name === "AbortError") messages.show(messages.cancelled(retry(mine), Boolean(app.session)));
      else messages.showError(error, help(error, mine), Boolean(app.session));
    }
  } finally {
    clearTimeout(late);
    if (wanted === mine) {
      wanted = undefined;
      const focused = $("loading").contains(document.activeElement);
      $("cancel").hidden = true;
      $("loading").hidden = true;
      if (focused) messages.focus();
    }
    update();
    showStored();
  }
}

/** Puts a session that is ready in place of the one before. The same model goes on with the same story. */
async function take(session, { source, device }) {
  const old = app.session;
  const same = old?.info.fingerprint === session.info.fingerprint;
  app.busy = true;
  update();
  try {
    if (same && story.length > 0) {
      const state = await old.save().catch(() => undefined);
      await (state ? session.restore(state) : session.feed(story.ids));
    }
    await memory.attach(session);
    Object.assign(app, { session, source, device });
    if (!same) reset();
  } finally {
    app.busy = false;
  }
  old?.dispose().catch(() => {});
  session.onDevice((event) => app.session === session && deviceChanged(event));
  showModel();
  refresh();
  if (same) return;
  recallStories(pickUp);
  if (hovers() && document.activeElement === document.body) home();
}

/** Gives up the model that is here; its story is kept for the next time. */
async function putAway() {
  await idle();
  const old = app.session;
  app.session = undefined;
  await memory.detach();
  await old?.dispose();
  reset();
  $("welcome").hidden = true;
  update();
}

const retry = ({ source, device }) => () => start(source, device);

/** What helps against an error, of loading where `failed` is what was to be loaded. */
function help(error, failed) {
  const { source, device } = failed ?? app;
  const actions = {};
  if (messages.cpuMayHelp(error) && device !== "cpu") actions["Use the processor"] = () => start(source, "cpu");
  // The same files fail in the same way; what comes over a network, or when there is more memory, may not.
  if (failed && typeof source !== "string" && !messages.cpuMayHelp(error)) {
    actions["Choose a folder"] = () => $("folder").click();
  } else if (failed) actions["Try again"] = retry(failed);
  if (failed && app.session && error?.code === "out-of-memory") {
    actions["Close this model first"] = () => start(source, device, { alone: true });
  }
  if (!app.session && source !== DEMO) actions["Load the demo model"] = () => start(DEMO, device);
  return actions;
}
remedies.of = (error) => help(error);

let stage;
function showProgress(progress) {
  const { done, total, bytesPerSecond } = progress;
  // Numbers that change all the time are nothing to listen to.
  if (progress.stage !== stage) say(STAGES[progress.stage]);
  ({ stage } = progress);
  const bar = $("bar");
  bar.max = Math.max(total, 1);
  if (stage === "compiling") {
    bar.removeAttribute("value");
    $("loading-text").textContent = STAGES[stage];
    return;
  }
  bar.value = done;
  const speed = bytesPerSecond > 0 ? ` · ${bytes(bytesPerSecond)}/s` : "";
  $("loading-text").textContent = `${STAGES[stage]}: ${bytes(done)} of ${bytes(total)}${speed}`;
}

function showModel() {
  const { info } = app.session;
  const where = info.engine === "gpu" ? "graphics processor" : "processor";
  $("device").textContent = `${inWords(info.parameters)} parameters on this ${where}`;
  $("device").title = info.device;
  $("size").textContent = inWords(info.parameters);
  if (info.engine === "cpu" && info.note) messages.show(messages.onProcessor(info.note, retry(app)));
  if (!info.hasTokenizer) messages.show(messages.NO_TOKENIZER);
}

function deviceChanged({ type }) {
  if (type === "lost") {
    messages.show(messages.LOST);
    return;
  }
  messages.hide();
  showModel();
  memory.recovered(app.session).catch(() => {});
  say("The graphics processor is back; the story goes on.");
}

/** Asks for lasting storage where that needs no question to the reader. */
async function requestPersistence() {
  try {
    const { state } = await navigator.permissions.query({ name: "persistent-storage" });
    if (state === "granted" && !(await navigator.storage.persisted())) await navigator.storage.persist();
  } catch {
    // This browser has no such permission.
  }
}

async function showStored() {
  const models = await storage.list().catch(() => []);
  const list = models.filter((m) => m.bytes > 0);
  const name = (url) => decodeURIComponent(new URL(url).pathname.split("/").filter(Boolean).at(-1) ?? url);
  $("stored").replaceChildren();
  if (list.length === 0) return;
  $("stored").append("Kept in this browser's storage:", make("ul", {}, ...list.map((m, i) =>
    make("li", {}, `${m.url ? name(m.url) : m.key}, ${bytes(m.bytes)} `, make("button", {
      type: "button",
      className: "quiet",
      textContent: "Remove",
      "aria-label": `Remove ${m.url ? name(m.url) : m.key} from this browser's storage`,
      onclick: async () => {
        await storage.remove(m.key);
        await showStored();
        // The keyboard's focus goes to the next one.
        const left = [...$("stored").querySelectorAll("button")];
        (left[i] ?? left.at(-1) ?? $("files").querySelector("summary")).focus();
      },
    })))));
}

function reset() {
  keepAnother();
  story.clear();
  places.clear();
  app.before = undefined;
  $("story").hidden = true;
  $("resume").hidden = true;
  $("welcome").hidden = false;
  $("speed").textContent = "";
}
