// Files: saved stories, and models from folders that are opened or dropped.

import { $, make } from "./dom.js";
import { app, guarded, label, story } from "./app.js";
import { start } from "./loading.js";
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
const openStory = (file) => guarded(async () => {
  // Dropped where there is no model yet, or while it writes.
  if (!app.session || app.run) return;
  if (story.length > 0) await keepPlace(story.length);
  const tokens = await app.session.restore(file);
  const texts = app.session.info.hasTokenizer ? await app.session.pieces(tokens) : [];
  story.clear();
  app.before = undefined;
  $("welcome").hidden = true;
  story.add(tokens, label(tokens, texts), { yours: true });
});
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
  const files = (await Promise.all(entries.map(filesOf))).flat();
  if (files.length === 1 && !/\.(json|safetensors)$/.test(files[0].name)) openStory(files[0].data);
  else if (files.length > 0) start(files, app.device);
});

/** The files of what was dropped, `{name, data}` with paths for names. */
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
  return (await Promise.all(found.map(filesOf))).flat();
}
