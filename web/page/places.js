// Bookmarks: places in this story and in others that branched from it, and the stories of earlier visits.

import { $, home, make, number } from "./dom.js";
import { library, newId, plain } from "./library.js";

const same = (a, b) => a.length === b.length && a.every((t, i) => t.id === b[i].id);

export class Places {
  /** `{id, tokens, bytes}`: what stood there, and the saved session if it was kept. */
  list = [];
  onGo = () => {};
  #story;
  /** The list as it was shown last. */
  #shown = [];
  #busy = false;

  constructor(story) {
    this.#story = story;
  }

  /** Of the model with this fingerprint. */
  add(place, model) {
    place.id = newId();
    // (One with words that are in no story yet is another place.)
    this.list.filter((p) => same(p.tokens, place.tokens) && !p.draft).forEach((p) => this.remove(p));
    this.list = [place, ...this.list];
    library.put({ id: place.id, model, open: false, tokens: plain(place.tokens) });
    this.show();
  }

  remove(place) {
    this.list = this.list.filter((p) => p !== place);
    library.remove(place.id);
    // Nor is it offered any more.
    if ($("resume").dataset.id === place.id) $("resume").hidden = true;
  }

  /** Adds the stories of earlier visits, those of the same text once. */
  recall(records) {
    for (const place of records) {
      const known = this.list.find((p) => same(p.tokens, place.tokens));
      if (!known || place.draft) this.list = [...this.list, place];
    }
    this.show();
  }

  clear() {
    this.list = [];
    this.show();
  }

  /** None can be returned to while the session is used. */
  busy(on) {
    this.#busy = on;
    for (const button of $("bookmarks").querySelectorAll(".go")) button.setAttribute("aria-disabled", on);
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
    // The keyboard's focus stays in its row and column; where the row is gone, in the next one.
    const focused = document.activeElement;
    const row = [...$("bookmarks").children].indexOf(focused.parentElement);
    const column = [...focused.parentElement?.children ?? []].indexOf(focused);
    const place = this.#shown[row];
    this.#shown = this.list;
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
            this.remove(place);
            this.show();
          },
        }));
    }));
    this.busy(this.#busy);
    if (row >= 0) {
      const at = this.list.indexOf(place);
      const next = $("bookmarks").children[at < 0 ? Math.min(row, this.list.length - 1) : at];
      if (next) next.children[column].focus({ preventScroll: true });
      else home();
    }
    const here = this.#story.ids;
    const inside = this.list.filter(({ tokens }) => tokens.length <= here.length && tokens.every((t, i) => t.id === here[i]));
    this.#story.mark(inside.map((p) => p.tokens.length));
  }
}
