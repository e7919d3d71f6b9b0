// The page: loads a model, then waits for words.

import { app, asked, failed, query, settings } from "./app.js";
import "./files.js";
import { recallDraft } from "./keeping.js";
import { start } from "./loading.js";
import * as messages from "./messages.js";
import { write } from "./writing.js";

// Values of the address, for links that show something in particular.
for (const [name, value] of query) {
  if (!["temperature", "topP", "topK", "minP", "repetitionPenalty", "maxTokens", "seed"].includes(name)) continue;
  if (value.trim() && Number.isFinite(Number(value))) settings.set(name, Number(value));
}
recallDraft(query.get("prompt"));
await start(app.source, app.device);
if (app.session && app.device !== asked) messages.show(messages.noDevice(asked, app.session.info.engine));
if (app.session && query.has("bench")) {
  const { bench } = await import("./bench.js");
  await bench(app.session, app.source, query.get("bench").split(",").filter(Boolean)).catch(failed);
} else if (app.session && query.get("prompt")?.trim()) {
  write(query.get("prompt"));
}
