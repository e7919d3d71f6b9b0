// The memory: pictures of the state, what each word did to it, and its size against a transformer's.

import { $, bytes, draw, make, number } from "./dom.js";

/** Words read at a time for the text's shades. */
const PART = 256;
/** Pixels between heads. */
const GAP = 4;

export class Memory {
  /** The head looked at, `{layer, head}`, or null for all. */
  chosen = null;
  #session;
  #view;
  #eye;
  #eyeAt = [];
  #story;
  #work = Promise.resolve();
  /** A reading is asked for that has not begun. */
  #waiting = false;
  #shade = "plain";

  constructor(story) {
    this.#story = story;
    $("back").onclick = () => this.choose(null);
    for (const radio of document.querySelectorAll("#shade input")) {
      radio.onchange = () => this.shade(radio.value);
    }
  }

  /** Shows another model's session. */
  async attach(session) {
    // Now, while the session is idle: once it writes, a fork would wait for the end. If there is no room for one, the
    // model before stays.
    const eye = await session.fork();
    await eye.reset();
    await this.detach();
    this.#eye = eye;
    this.#eyeAt = [];
    this.#session = session;
    this.chosen = null;
    $("back").hidden = true;
    $("heads").hidden = false;
    this.#buildHeads();
    await this.recovered(session);
  }

  /** The device may be another one now. */
  async recovered(session) {
    if (!this.#view || this.engine !== session.info.engine) {
      // A canvas that one engine has drawn on is of no use to the other.
      await this.#view?.detach();
      const canvas = make("canvas", { id: "state", "aria-hidden": "true" });
      $("state").replaceWith(canvas);
      this.#view = await session.view(canvas);
      this.engine = session.info.engine;
    }
    await this.look();
  }

  /** Before the model goes. */
  async detach() {
    const eye = this.#eye;
    this.#session = this.#eye = undefined;
    await eye?.dispose().catch(() => {});
  }

  #buildHeads() {
    const { layers, heads } = this.#session.grid;
    const grid = $("heads");
    grid.style.gridTemplateColumns = `repeat(${layers}, 1fr)`;
    grid.style.gridTemplateRows = `repeat(${heads}, 1fr)`;
    const buttons = [];
    for (let head = 0; head < heads; head++) {
      for (let layer = 0; layer < layers; layer++) {
        const name = `Layer ${layer + 1}, head ${head + 1}`;
        buttons.push(make("button", { type: "button", title: name, "aria-label": name, onclick: () => this.choose({ layer, head }) }));
      }
    }
    grid.replaceChildren(...buttons);
    // One stop for the Tab key; arrows move inside.
    buttons.forEach((b, i) => {
      b.tabIndex = i === 0 ? 0 : -1;
      b.onfocus = () => buttons.forEach((other) => (other.tabIndex = other === b ? 0 : -1));
    });
    grid.onkeydown = (event) => {
      const at = buttons.indexOf(event.target);
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -layers, ArrowDown: layers }[event.key];
      const to = buttons[at + step];
      if (at < 0 || !to) return;
      to.focus();
      event.preventDefault();
    };
  }

  #headOf({ layer, head }) {
    return $("heads").children[head * this.#session.grid.layers + layer];
  }

  choose(place) {
    const [before, focused] = [this.chosen, document.activeElement === $("back")];
    this.chosen = place;
    $("back").hidden = !place;
    $("heads").hidden = Boolean(place);
    if (place) $("back").focus();
    else if (focused) this.#headOf(before).focus();
    this.#paintText();
    return this.look();
  }

  /** Draws the state as the page is now. */
  async look() {
    if (!this.#session) return;
    const { layers, heads, keyDim, valueDim } = this.#session.grid;
    const dark = document.documentElement.dataset.theme === "dark";
    const width = $("stage").clientWidth * devicePixelRatio;
    let size;
    if (this.chosen) {
      const scale = Math.max(1, Math.round(Math.min(width, 800) / valueDim));
      size = { width: valueDim * scale, height: keyDim * scale, ...this.chosen };
    } else {
      // Whole pixels an element where there is room, else every second one.
      const scale = Math.max(0.5, Math.floor((2 * width) / (layers * valueDim)) / 2);
      const across = Math.max(8, Math.round(valueDim * scale)) + GAP;
      const down = Math.max(8, Math.round(keyDim * scale)) + GAP;
      size = { width: layers * across - GAP, height: heads * down - GAP };
    }
    const what = this.chosen
      ? `Layer ${this.chosen.layer + 1}, head ${this.chosen.head + 1}: ${keyDim} keys down, ${valueDim} values across.`
      : `${layers} layers across, ${heads} heads down, each ${keyDim} × ${valueDim} numbers: warm above zero, cool below. Choose one to look closer.`;
    $("caption").textContent = what;
    await this.#view?.show({ session: this.#session, dark, gap: GAP, ...size }).catch(() => {});
  }

  /** Shades the text by write strength or forgetting. */
  shade(how) {
    this.#shade = how;
    for (const radio of document.querySelectorAll("#shade input")) radio.checked = radio.value === how;
    $("story").dataset.shade = how;
    $("shade-text").hidden = how === "plain";
    this.follow();
  }

  /** Finds out what the words that came since did to the memory: a second reader reads them again. */
  follow() {
    if (this.#shade === "plain" || !this.#eye || this.#waiting) return;
    this.#waiting = true;
    this.#work = this.#work.then(() => {
      this.#waiting = false;
      return this.#read();
    }).catch(() => {});
  }

  async #read() {
    const [story, eye] = [this.#story, this.#eye];
    if (!eye) return;
    const todo = story.tokens.slice();
    let same = 0;
    while (same < this.#eyeAt.length && todo[same]?.id === this.#eyeAt[same]) same++;
    if (same < this.#eyeAt.length) {
      await eye.reset();
      this.#eyeAt = [];
    }
    const { layers, heads } = this.#session.grid;
    const piece = 2 * layers * heads;
    for (;;) {
      this.#paintText();
      const from = this.#eyeAt.length;
      const ids = todo.slice(from, from + PART).map((t) => t.id);
      // Whoever has turned to the plain text, or gone back in the story, waits for nothing.
      if (ids.length === 0 || this.#shade === "plain" || story.tokens[from] !== todo[from]) return;
      const gates = await eye.gates(ids);
      // Another model came meanwhile.
      if (eye !== this.#eye) return;
      ids.forEach((_, i) => (todo[from + i].gates = gates.subarray(i * piece, (i + 1) * piece)));
      this.#eyeAt.push(...ids);
    }
  }

  /** Write strength and forgetting of a token: of the head looked at, or over all. */
  of(token) {
    if (!token?.gates) return undefined;
    const { heads } = this.#session.grid;
    let [beta, decay, n] = [0, 0, 0];
    const add = (i) => {
      if (Number.isNaN(token.gates[2 * i])) return;
      beta += token.gates[2 * i];
      decay += token.gates[2 * i + 1];
      n += 1;
    };
    if (this.chosen) add(this.chosen.layer * heads + this.chosen.head);
    else for (let i = 0; i < token.gates.length / 2; i++) add(i);
    return { written: beta / n, forgotten: 1 - decay / n };
  }

  #paintText() {
    const how = this.#shade;
    if (how === "plain") return;
    const values = this.#story.tokens.map((t) => this.of(t)?.[how]);
    const known = values.filter((v) => v !== undefined).sort((a, b) => a - b);
    if (known.length === 0) return;
    const at = (q) => known[Math.min(known.length - 1, Math.floor(q * known.length))];
    const [low, high] = [at(0.05), Math.max(at(0.97), at(0.05) + 1e-3)];
    this.#story.tokens.forEach((token, i) => {
      if (values[i] === undefined) return;
      const s = Math.min(1, Math.max(0, (values[i] - low) / (high - low)));
      token.element.style.setProperty("--s", s.toFixed(3));
    });
    const where = this.chosen ? `layer ${this.chosen.layer + 1}, head ${this.chosen.head + 1}` : "all heads";
    const range = `from ${(100 * low).toFixed(0)} % to ${(100 * high).toFixed(0)} %`;
    $("shade-text").textContent =
      how === "written"
        ? `How strongly each word was written into the memory (β), ${range}, over ${where}.`
        : `How much of the memory each word let fade (1 − decay), ${range}, over ${where}.`;
  }

  /** The plot: this memory against the key-value cache of a transformer of the same shape. */
  grow(tokens) {
    const info = this.#session?.info;
    if (!info) return;
    // Keys and values of every layer, 16 bits each.
    const cache = 2 * 2 * info.layers * info.hidden;
    const ours = (n) => info.stateBytes + n * info.cacheBytesPerToken;
    const most = Math.max(400, Math.ceil((tokens * 1.25) / 200) * 200);
    const top = Math.max(cache * most, ours(most)) * 1.05;
    const [left, right, up, down] = [6, 374, 12, 118];
    const x = (n) => left + ((right - left) * n) / most;
    const y = (b) => down - ((down - up) * b) / top;
    const line = (f, className) => draw("path", { class: className, d: `M${x(0)} ${y(f(0))}L${x(most)} ${y(f(most))}` });
    const theirs = (n) => cache * n;
    const mid = 0.62 * most;
    const parts = [
      draw("path", { class: "axis", d: `M${left} ${down}H${right}` }),
      draw("text", { x: left, y: down + 14 }, "0"),
      draw("text", { x: right, y: down + 14, "text-anchor": "end" }, `${number(most)} tokens`),
      line(theirs, "theirs"),
      line(ours, "ours"),
      draw("text", { class: "t", x: x(mid) - 8, y: y(theirs(mid)) - 6, "text-anchor": "end" }, "a transformer's cache"),
      draw("text", { class: "o", x: right, y: y(ours(most)) - 7, "text-anchor": "end" }, "this memory"),
    ];
    if (tokens > 0) {
      // Below the words.
      parts.unshift(draw("path", { class: "now", d: `M${x(tokens)} ${up}V${down}` }));
      parts.push(
        draw("circle", { class: "t", cx: x(tokens), cy: y(theirs(tokens)), r: 3.5 }),
        draw("circle", { class: "o", cx: x(tokens), cy: y(ours(tokens)), r: 3.5 }),
      );
    }
    $("plot").replaceChildren(...parts);
    const now = tokens > 0 ? `After ${number(tokens)} tokens` : "At the start";
    $("plot-text").textContent =
      `${now}: ${bytes(ours(tokens))} here, ${bytes(theirs(tokens))} in the 16-bit key-value cache of a transformer of the same shape.`;
  }
}
