// Bookmarks: places in this story and in others that branched from it.

import { $, make, number } from "./dom.js";

export class Places {
  /** `{tokens, bytes}`: what stood there, and the saved session if it was kept. */
  list = [];
  onGo = () => {};
  #story;

  constructor(story) {
    this.#story = story;
  }

  add(place) {
    const same = (p) => p.tokens.length === place.tokens.length && p.tokens.every((t, i) => t.id === place.tokens[i].id);
    this.list = [place, ...this.list.filter((p) => !same(p))];
    this.show();
  }

  clear() {
    this.list = [];
    this.show();
  }

  /** The longest kept state that `target` begins with: `{length, bytes}`. */
  nearest(target, other) {
    const states = this.list.map(({ tokens, bytes }) => ({ bytes, tokens: tokens.map((t) => t.id) }));
    if (other) states.push(other);
    const fits = ({ tokens, bytes }) => bytes && tokens.length <= target.length && tokens.every((t, i) => t === target[i]);
    const best = states.filter(fits).sort((a, b) => b.tokens.length - a.tokens.length)[0];
    return best && { length: best.tokens.length, bytes: best.bytes };
  }

  show() {
    $("places").hidden = this.list.length === 0;
    $("bookmarks").replaceChildren(...this.list.map((place) => {
      const text = place.tokens.map((t) => t.text).join("").replace(/\s+/g, " ").trim();
      const end = text.length > 48 ? `…${text.slice(-48)}` : text;
      const count = make("span", { className: "count", textContent: number(place.tokens.length) });
      return make("li", {},
        make("button", { type: "button", className: "go", title: text.slice(-300), onclick: () => this.onGo(place) }, count, end),
        make("button", {
          type: "button",
          className: "quiet",
          textContent: "×",
          "aria-label": `Remove the bookmark ${end}`,
          onclick: () => {
            this.list = this.list.filter((p) => p !== place);
            this.show();
          },
        }));
    }));
    const here = this.#story.ids;
    const inside = this.list.filter(({ tokens }) => tokens.length <= here.length && tokens.every((t, i) => t.id === here[i]));
    this.#story.mark(inside.map((p) => p.tokens.length));
  }
}
