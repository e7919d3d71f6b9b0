// Loading a model: progress, what went wrong, what is kept.

import { load, storage } from "./js/index.js";
import { $, bytes, inWords, make, say } from "./dom.js";
import * as messages from "./messages.js";
import { DEMO, app, failed, memory, places, remedies, story, update } from "./app.js";

const STAGES = {
  downloading: "Fetching the model",
  reading: "Reading the model",
  checking: "Checking the model",
  uploading: "Handing it to the graphics processor",
  compiling: "Preparing the graphics processor",
};

export async function start(source, device) {
  Object.assign(app, { source, device });
  messages.hide();
  const abort = new AbortController();
  $("loading").hidden = false;
  $("welcome").hidden = true;
  $("go").disabled = true;
  $("bar").removeAttribute("value");
  $("loading-text").textContent = "Starting";
  const late = setTimeout(() => ($("cancel").hidden = false), 1500);
  $("cancel").onclick = () => abort.abort(new DOMException("Loading was cancelled.", "AbortError"));
  try {
    app.run?.stop();
    const old = app.session;
    app.session = undefined;
    await memory.detach();
    await old?.dispose();
    reset();
    app.session = await load(source, { device, signal: abort.signal, onProgress: showProgress });
    app.session.onDevice(deviceChanged);
    showModel();
    await memory.attach(app.session);
    memory.grow(0);
    $("welcome").hidden = false;
    if (matchMedia("(hover: hover)").matches) $("prompt").focus({ preventScroll: true });
    say("The storyteller is ready.");
    requestPersistence();
  } catch (error) {
    if (error.name === "AbortError") messages.show({ title: "Loading was cancelled.", actions: { "Load it": retry } });
    else failed(error);
  } finally {
    clearTimeout(late);
    $("cancel").hidden = true;
    $("loading").hidden = true;
    update();
    showStored();
  }
}

const retry = () => start(app.source, app.device);

remedies.of = (error) => {
  const actions = {};
  if (messages.cpuMayHelp(error) && app.device !== "cpu") {
    actions["Use the processor"] = () => start(app.source, "cpu");
  }
  if (!app.session) actions["Try again"] = retry;
  if (!app.session && app.source !== DEMO) actions["Load the demo model"] = () => start(DEMO, app.device);
  return actions;
};

function showProgress({ stage, done, total, bytesPerSecond }) {
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
  if (info.engine === "cpu" && info.note) messages.show({ ...messages.onProcessor(info.note), detail: info.note });
  if (!info.hasTokenizer) {
    messages.show({
      title: "This model has no tokenizer.",
      text: "Without tokenizer.json there are no words: type token ids with spaces between them, and it answers with ids.",
    });
  }
}

function deviceChanged({ type }) {
  if (type === "lost") {
    messages.show({ title: "The graphics processor went away.", text: "Opening it again; the story goes on from its last word." });
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
  $("stored").append("Kept in this browser's storage:", make("ul", {}, ...list.map((m) =>
    make("li", {}, `${m.url ? name(m.url) : m.key}, ${bytes(m.bytes)} `, make("button", {
      type: "button",
      className: "quiet",
      textContent: "Remove",
      "aria-label": `Remove ${m.url ? name(m.url) : m.key} from this browser's storage`,
      onclick: async () => {
        await storage.remove(m.key);
        showStored();
      },
    })))));
}

function reset() {
  story.clear();
  places.clear();
  app.before = undefined;
  $("story").hidden = true;
  $("speed").textContent = "";
}
