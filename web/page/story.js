// The text: its tokens, and how they are shown.

import { $ } from "./dom.js";

/**
 * A token of the story: `{id, text, yours, logprob, element}`; once it is known, `gates` `[layers · heads · 2]` holds
 * write strength and decay.
 */
export class Story {
  tokens = [];
  /** Index of the token under the reader's cursor, or −1. */
  cursor = -1;
  #view = $("story");
  #pending = document.createElement("ins");
  /** Called with an index when the reader points at a word. */
  onPlace = () => {};

  constructor() {
    this.#view.onclick = ({ target }) => {
      const index = target.dataset?.i;
      if (index !== undefined && getSelection()?.isCollapsed !== false) this.place(Number(index));
    };
    this.#view.onkeydown = (event) => this.#key(event);
  }

  get length() {
    return this.tokens.length;
  }
  get text() {
    return this.tokens.map((t) => t.text).join("");
  }
  get ids() {
    return Uint32Array.from(this.tokens, (t) => t.id);
  }

  /** Adds tokens at the end, all at once: each call lays the page out. `yours`: of all of them, or of each. */
  add(ids, texts, { yours = false, logprobs } = {}) {
    const follow = this.#atEnd();
    const fragment = document.createDocumentFragment();
    for (let i = 0; i < ids.length; i++) {
      const element = document.createElement("span");
      // A word's shade begins at the word: the space before it stands outside.
      const [, space, word] = /^(\s*)([^]*)$/.exec(texts[i]);
      const lead = word && space ? document.createTextNode(space) : undefined;
      element.textContent = word || space;
      element.dataset.token = ids[i];
      element.dataset.i = this.tokens.length;
      const mine = Array.isArray(yours) ? Boolean(yours[i]) : yours;
      element.className = mine ? "yours" : word ? "" : "blank";
      this.tokens.push({ id: ids[i], text: texts[i], yours: mine, logprob: logprobs?.[i], element, lead });
      if (lead) fragment.append(lead);
      fragment.append(element);
    }
    this.#view.append(fragment);
    this.#view.hidden = false;
    if (follow) this.#toEnd();
  }

  /** Shows words that are being read and are no tokens yet, at the end; "" takes them away. */
  pend(text) {
    const follow = this.#atEnd();
    this.#pending.textContent = text;
    if (text) this.#view.append(this.#pending);
    else this.#pending.remove();
    this.#view.hidden = !text && this.length === 0;
    if (text && follow) this.#toEnd();
  }

  /** Text that no token completed. */
  addTail(text) {
    const last = this.tokens.at(-1);
    if (!text || !last) return;
    last.text += text;
    last.element.append(text);
  }

  /** Cuts the story to `length` tokens. */
  cut(length) {
    for (const { element, lead } of this.tokens.splice(length)) {
      element.remove();
      lead?.remove();
    }
    this.point(-1);
  }

  clear() {
    this.cut(0);
  }

  busy(on) {
    this.#view.classList.toggle("busy", on);
    this.#view.setAttribute("aria-busy", on);
  }

  /** Moves the cursor without asking for anything. */
  point(index) {
    this.tokens[this.cursor]?.element.classList.remove("cursor");
    this.cursor = index;
    this.tokens[index]?.element.classList.add("cursor");
  }

  place(index) {
    this.point(index);
    this.onPlace(index);
  }

  /** Marks the words at which bookmarks stand: each after `length` tokens. */
  mark(lengths) {
    const ends = new Set(lengths.map((n) => n - 1));
    this.tokens.forEach((t, i) => t.element.classList.toggle("mark", ends.has(i)));
  }

  #key(event) {
    const last = this.tokens.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const from = this.cursor < 0 ? last + 1 : this.cursor;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (to !== undefined) {
      this.point(Math.min(Math.max(to, 0), last));
      this.tokens[this.cursor].element.scrollIntoView({ block: "nearest" });
    } else if ((event.key === "Enter" || event.key === " ") && this.cursor >= 0) {
      this.onPlace(this.cursor);
    } else {
      return;
    }
    event.preventDefault();
  }

  /** Puts the reader, and the keyboard's focus, at the end. */
  focusEnd() {
    this.#view.focus({ preventScroll: true });
    this.#toEnd();
    if (this.#end() < 0) this.tokens.at(-1)?.element.scrollIntoView({ block: "center" });
  }

  /** Where the text ends in the window. */
  #end() {
    return this.#view.lastElementChild?.getBoundingClientRect().bottom ?? 0;
  }

  /** Whether the end is in view: then it stays in view. */
  #atEnd() {
    const page = document.scrollingElement;
    const composer = $("composer").getBoundingClientRect();
    return page.scrollHeight - page.clientHeight - page.scrollTop < 80 || this.#end() < composer.top + 60;
  }

  #toEnd() {
    const hidden = this.#end() + 8 - $("composer").getBoundingClientRect().top;
    if (hidden > 0) scrollBy(0, hidden);
  }
}
