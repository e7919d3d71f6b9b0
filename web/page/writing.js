// Writing: the reader's words, the model's, and going back.

import { $, home, make, number, say } from "./dom.js";
import { keepDraft, keepGrowing, keepRead, keepStory, keepWords, putBack } from "./keeping.js";
import { library } from "./library.js";
import * as messages from "./messages.js";
import { OPENINGS, app, failed, guarded, label, memory, places, refresh, settings, story, update } from "./app.js";

/** Writes on: first the reader's words, if any, then the model's. */
export async function write(prompt, options = settings.next()) {
  if (app.run || app.busy || !app.session) return;
  messages.hide();
  closePlace();
  const focused = $("welcome").contains(document.activeElement);
  $("welcome").hidden = true;
  if (focused) home();
  // The button says what can be done from here on, before anything has to wait.
  const reading = new AbortController();
  app.run = { stop: () => reading.abort() };
  update();
  try {
    await read(prompt, reading.signal);
    if (!reading.signal.aborted) await generate(options);
  } catch (error) {
    if (!reading.signal.aborted) failed(error);
    else say("Stopped. Your words are in the box again.");
  } finally {
    app.run = undefined;
    refresh();
  }
}

/** Reads the reader's words, if any. What is stopped, or fails, is theirs again, and all is as it was. */
async function read(prompt, signal) {
  const before = app.before;
  if (prompt) story.pend(prompt);
  keepWords(prompt);
  try {
    app.before = { length: story.length, bytes: story.length > 0 ? await app.session.save() : undefined, prompt };
    if (!prompt) return;
    const words = app.session.info.hasTokenizer ? prompt : numbers(prompt);
    const { tokens, texts } = await app.session.feed(words, { signal, onProgress: showReading() });
    story.pend("");
    story.add(tokens, label(tokens, texts), { yours: true });
    update();
    keepRead();
  } catch (error) {
    app.before = before;
    story.pend("");
    $("welcome").hidden = story.length > 0;
    keepWords();
    putBack(prompt);
    throw error;
  } finally {
    $("speed").textContent = "";
  }
}

/** Says how far a prompt is read, once that takes a while. */
function showReading(words = "Reading your words.") {
  const start = performance.now();
  let told = false;
  return ({ read, total }) => {
    if (performance.now() - start < 250) return;
    $("speed").textContent = `Reading ${number(read)} of ${number(total)} tokens`;
    if (!told) {
      say(words);
      update();
    }
    told = true;
  };
}

/** Token ids that were typed, for a model without words. */
function numbers(prompt) {
  const { vocab } = app.session.info;
  return (prompt.match(/[^\s,]+/g) ?? [prompt]).map((word) => {
    const id = Number(word);
    if (Number.isInteger(id) && id >= 0 && id < vocab) return id;
    throw Object.assign(new Error(`your words: expected token ids from 0 to ${vocab - 1}, got ${word}`), { code: "argument" });
  });
}

async function generate(options) {
  app.run = app.session.generate(undefined, options);
  const started = performance.now();
  let [count, told] = [0, 0];
  for await (const { tokens, texts, logprobs } of app.run.batches()) {
    story.add(tokens, label(tokens, texts), { logprobs });
    count += tokens.length;
    const now = performance.now();
    if (now - told > 100) {
      told = now;
      showSpeed(count, now - started);
      memory.grow(story.length);
      memory.follow();
      keepGrowing();
    }
  }
  const { finish, tail } = await app.run.done;
  story.addTail(tail);
  showSpeed(count, performance.now() - started);
  say(finish === "end of text" ? "The story has ended." : `${count} ${count === 1 ? "token was" : "tokens were"} written.`);
}

function showSpeed(count, milliseconds) {
  const rate = (1000 * count) / milliseconds;
  if (milliseconds > 0) $("speed").textContent = `${number(rate, rate < 10 ? 1 : 0)} tokens/s`;
}

/** Returns to the first `length` tokens, by the nearest state that is kept. What is stopped, or fails, goes nowhere. */
async function rewind(length, tokens = story.ids) {
  const { session } = app;
  const now = story.length > 0 ? await session.save() : undefined;
  const reading = new AbortController();
  app.run = { stop: () => reading.abort() };
  try {
    await back(session, length, tokens, reading.signal);
  } catch (error) {
    await (now ? session.restore(now) : session.reset());
    throw error;
  } finally {
    app.run = undefined;
    $("speed").textContent = "";
  }
}

async function back(session, length, tokens, signal) {
  const target = tokens.slice(0, length);
  const state = places.nearest(target, app.before && { ...app.before, tokens: story.ids.slice(0, app.before.length) });
  // A state that cannot be used follows from its tokens again.
  const fits = state && await session.restore(state.bytes).catch(() => false);
  if (!fits) await session.reset();
  const rest = target.slice(fits ? state.length : 0);
  if (rest.length > 0) await session.feed(rest, { signal, onProgress: showReading("Going back.") });
}

async function again() {
  if (app.run || !app.before) return;
  const { length, prompt } = app.before;
  const before = story.ids;
  const there = await guarded(async () => {
    await rewind(length);
    story.cut(length);
  });
  if (!there) return;
  // The same seed would give the same words.
  await write(prompt, settings.next(true));
  const now = story.ids;
  if (now.length === before.length && now.every((id, i) => id === before[i])) messages.show(messages.SAME_AGAIN);
}

$("composer").onsubmit = (event) => {
  event.preventDefault();
  if (app.run) {
    app.run.stop();
    return;
  }
  if (app.busy || !app.session) return;
  const box = $("prompt");
  // Spaces alone are no words.
  const typed = box.value.trim() ? box.value : "";
  const prompt = typed || (story.length === 0 ? box.placeholder : "");
  box.value = "";
  write(prompt);
};
$("prompt").oninput = () => {
  update();
  keepDraft();
};
$("prompt").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    if (!app.run) $("composer").requestSubmit();
  }
};
$("again").onclick = again;
$("copy").onclick = async () => {
  try {
    await navigator.clipboard.writeText(story.text);
    say("Copied.");
    $("copy").textContent = "Copied";
    setTimeout(() => ($("copy").textContent = "Copy"), 1500);
  } catch {
    messages.showText(messages.COPY, story.text);
  }
};
$("fresh").onclick = () => guarded(async () => {
  if (story.length > 0) await keepPlace(story.length);
  await app.session.reset();
  story.clear();
  app.before = undefined;
  $("story").hidden = true;
  $("welcome").hidden = false;
  $("resume").hidden = true;
  $("speed").textContent = "";
  say("A new story.");
  $("prompt").focus();
});
for (const text of OPENINGS) {
  $("openings").append(make("button", { type: "button", textContent: text, onclick: () => write(text) }));
}

story.onPlace = (index) => {
  const token = story.tokens[index];
  const facts = [`Token ${index + 1} of ${story.length}`];
  if (token.logprob !== undefined) facts.push(`probability ${(100 * Math.exp(token.logprob)).toFixed(1)} %`);
  const gates = memory.of(token);
  if (gates) facts.push(`written ${(100 * gates.written).toFixed(0)} %, forgotten ${(100 * gates.forgotten).toFixed(0)} %`);
  $("place-facts").textContent = facts.join("\n");
  const box = $("place");
  box.hidden = false;
  const rect = token.element.getBoundingClientRect();
  const left = Math.min(Math.max(rect.left, 8), document.documentElement.clientWidth - box.offsetWidth - 8);
  box.style.left = `${left + scrollX}px`;
  // Below the word, or above it where the composer would cover it.
  const below = rect.bottom + 6 + box.offsetHeight <= $("composer").getBoundingClientRect().top;
  box.style.top = `${scrollY + (below ? rect.bottom + 6 : rect.top - 6 - box.offsetHeight)}px`;
  update();
  $("rewind").focus({ preventScroll: true });
};

/** Closes what can be done at a word; the focus is at `focused`, or on its way there. */
function closePlace(focused = document.activeElement) {
  if ($("place").hidden) return;
  const inside = $("place").contains(focused);
  $("place").hidden = true;
  // The arrow keys go on from the word; who leaves the story leaves the word.
  if (inside) $("story").focus({ preventScroll: true });
  else if (focused !== $("story")) story.point(-1);
}
$("story").onblur = () => {
  if ($("place").hidden) story.point(-1);
};
$("place").addEventListener("focusout", ({ relatedTarget }) => {
  if (relatedTarget && !$("place").contains(relatedTarget)) closePlace(relatedTarget);
});

/** Bookmarks the first `length` tokens; at the end of the story the state is kept too. */
export async function keepPlace(length) {
  const bytes = length === story.length ? await app.session.save() : undefined;
  places.add({ tokens: story.tokens.slice(0, length), bytes }, app.session.info.fingerprint);
}

$("bookmark").onclick = () => {
  const length = story.cursor + 1;
  closePlace();
  guarded(() => keepPlace(length));
};
$("rewind").onclick = () => {
  const length = story.cursor + 1;
  closePlace();
  guarded(async () => {
    if (length < story.length) await keepPlace(story.length);
    await rewind(length);
    story.cut(length);
    if (app.before?.length > length) app.before = undefined;
    places.show();
    home();
    say(`Back at token ${number(length)}.`);
  });
};

/** Puts a bookmark, or a story of an earlier visit, in place of the story that is here, which is kept. */
export async function returnTo(place) {
  const ids = Uint32Array.from(place.tokens, (t) => t.id);
  const whole = ids.length >= story.length && story.ids.every((id, i) => id === ids[i]);
  if (story.length > 0 && !whole) await keepPlace(story.length);
  await rewind(ids.length, ids);
  story.clear();
  app.before = undefined;
  $("welcome").hidden = true;
  const of = (field) => place.tokens.map((t) => t[field]);
  story.add(of("id"), of("text"), { yours: of("yours"), logprobs: of("logprob") });
  if (place.draft) {
    // First here, then no longer there.
    putBack(place.draft);
    library.keepDraft(place.id);
    place.draft = "";
  }
  places.show();
  say(`Back at token ${number(ids.length)}.`);
}
places.onGo = (place) => guarded(() => app.run || returnTo(place));

/** Goes on with a story of an earlier visit: it is the story on the page then, and no bookmark. */
export async function pickUp(place) {
  if (!(await guarded(() => returnTo(place)))) return;
  home();
  // First the one, then not the other: a visit may end at any time.
  await keepStory();
  places.remove(place);
  places.show();
}

document.addEventListener("pointerdown", ({ target }) => {
  if (!$("place").contains(target) && !$("story").contains(target)) closePlace();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (!$("place").hidden) closePlace();
  else if (app.run) app.run.stop();
  else if (memory.chosen) memory.choose(null);
});
