// Small helpers for the page.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "dataset") Object.assign(element.dataset, value);
    else if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. */
export function draw(tag, attributes = {}, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** `12.4 MB`. */
export function bytes(n) {
  if (n >= 1e9) return `${(n / 1e9).toFixed(2)} GB`;
  if (n >= 1e6) return `${(n / 1e6).toFixed(n >= 1e8 ? 0 : 1)} MB`;
  return `${Math.round(n / 1e3)} kB`;
}

/** `16,989,152`. */
export const number = (n, digits = 0) =>
  n.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: digits });

/** `17 million`. */
export function inWords(n) {
  if (n >= 1e9) return `${number(n / 1e9, 1)} billion`;
  if (n >= 1e6) return `${number(n / 1e6, n < 1e7 ? 1 : 0)} million`;
  return number(n);
}

/** Tells people who listen instead of looking. */
export function say(text) {
  $("status").textContent = text;
}

/** A button that can do nothing now keeps the keyboard's focus; a press of it goes nowhere. */
export function able(id, on) {
  $(id).setAttribute("aria-disabled", !on);
}
addEventListener("click", (event) => {
  if (!event.target.closest?.('[aria-disabled="true"]')) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, true);

/** Whether there is a pointer that hovers: on touch screens a focused box for words brings a keyboard up. */
export const hovers = () => matchMedia("(hover: hover)").matches;

/** Where the focus goes when what had it is gone. */
export function home() {
  $(hovers() ? "prompt" : "go").focus({ preventScroll: true });
}

/** Settings that outlive the visit; a browser that keeps nothing is fine too. */
export const kept = {
  get(name) {
    try {
      return JSON.parse(localStorage.getItem(`deltanet.${name}`) ?? "null");
    } catch {
      return null;
    }
  },
  /** Whether it is kept. */
  set(name, value) {
    try {
      localStorage.setItem(`deltanet.${name}`, JSON.stringify(value));
      return true;
    } catch {
      return false;
    }
  },
};
