// Files: saved stories, and models from folders that are opened or dropped.

import { $, make, number, say } from "./dom.js";
import { app, failed, guarded, idle, label, story } from "./app.js";
import { loaded, start } from "./loading.js";
import * as messages from "./messages.js";
import { keepPlace } from "./writing.js";

$("save").onclick = () => guarded(async () => {
  const blob = new Blob([await app.session.save()], { type: "application/octet-stream" });
  const link = make("a", { href: URL.createObjectURL(blob), download: "story.deltanet" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
});
$("open").onclick = () => $("open-file").click();
$("open-file").onchange = ({ target }) => {
  const [file] = target.files;
  target.value = "";
  if (file) openStory(file);
};
async function openStory(file) {
  // It may be dropped while a model is loading, or while a story is being written: that one ends here, and is kept.
  await loaded();
  await idle();
  if (!app.session) return messages.show(messages.NO_MODEL);
  messages.hide();
  await guarded(async () => {
    if (story.length > 0) await keepPlace(story.length);
    const tokens = await app.session.restore(file);
    const texts = app.session.info.hasTokenizer ? await app.session.pieces(tokens) : [];
    story.clear();
    app.before = undefined;
    $("welcome").hidden = true;
    story.add(tokens, label(tokens, texts), { yours: true });
    story.focusEnd();
    say(`The story is open: ${number(tokens.length)} tokens.`);
  });
}
$("folder").onclick = () => $("folder-files").click();
$("folder-files").onchange = ({ target }) => {
  const files = [...target.files];
  target.value = "";
  if (files.length > 0) start(files, app.device);
};

let dragging = 0;
const dragged = (on) => {
  dragging = Math.max(0, dragging + (on ? 1 : -1));
  $("drop").hidden = dragging === 0;
};
addEventListener("dragenter", (event) => {
  if (event.dataTransfer?.types.includes("Files")) dragged(true);
});
addEventListener("dragleave", (event) => {
  if (event.dataTransfer?.types.includes("Files")) dragged(false);
});
addEventListener("dragover", (event) => event.preventDefault());
addEventListener("drop", async (event) => {
  event.preventDefault();
  dragging = 0;
  $("drop").hidden = true;
  // Folders must be asked for at once: a moment later the event holds nothing any more.
  const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.() ?? item.getAsFile?.()).filter(Boolean);
  try {
    const files = (await Promise.all(entries.map(filesOf))).flat();
    if (entries.length === 1 && files[0]?.name.split("/").length <= 2 && !/\.(json|safetensors)$/.test(files[0].name)) openStory(files[0].data);
    else if (entries.length > 0) start(files, app.device);
  } catch (error) {
    failed(error);
  }
});

/** The files of what was dropped, `{name, data}` with paths for names; below a folder with a config.json there is no other model. */
async function filesOf(entry) {
  if (entry instanceof File) return [{ name: entry.name, data: entry }];
  if (entry.isFile) return [{ name: entry.fullPath, data: await new Promise((resolve, reject) => entry.file(resolve, reject)) }];
  const reader = entry.createReader();
  const found = [];
  for (;;) {
    const some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
    if (some.length === 0) break;
    found.push(...some);
  }
  const files = found.filter((e) => e.isFile);
  const model = files.some((e) => e.name === "config.json");
  return (await Promise.all((model ? files : found).map(filesOf))).flat();
}
