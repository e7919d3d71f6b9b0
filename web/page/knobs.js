// How words are chosen: the controls and their values.

import { $, kept, make, number } from "./dom.js";

const MOST_SEED = 2 ** 32 - 1;
const KNOBS = [
  {
    name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.05, value: 0.6,
    hint: "0 always takes the likeliest word; higher is bolder.",
  },
  { name: "topP", label: "Top-p", min: 0.05, max: 1, step: 0.01, value: 1, hint: "Keeps the likeliest words up to this share." },
  { name: "topK", label: "Top-k", min: 0, max: 200, step: 1, value: 0, hint: "Keeps this many of the likeliest; 0 keeps all." },
  { name: "minP", label: "Min-p", min: 0, max: 0.5, step: 0.01, value: 0.05, hint: "Drops words this much less likely than the best." },
  {
    name: "repetitionPenalty", label: "Repetition penalty", min: 1, max: 2, step: 0.01, value: 1,
    hint: "Above 1, words already used become less likely.",
  },
  { name: "maxTokens", label: "Length", min: 16, max: 1024, step: 16, value: 256, hint: "Tokens to write at a time." },
];

/** Builds the controls; returns what reads them. */
export function knobs() {
  const values = { ...kept.get("knobs") };
  const inputs = new Map();
  for (const { name, label, hint, value, ...range } of KNOBS) {
    const start = Number.isFinite(values[name]) ? values[name] : value;
    const input = make("input", { type: "range", id: `knob-${name}`, ...range });
    input.value = start;
    const output = make("output", { htmlFor: input.id, textContent: input.value });
    input.setAttribute("aria-describedby", `hint-${name}`);
    input.oninput = () => {
      output.textContent = input.value;
      values[name] = Number(input.value);
      kept.set("knobs", values);
    };
    inputs.set(name, input);
    $("knobs").append(
      make("div", { className: "knob" },
        make("label", { htmlFor: input.id, textContent: label }), output, input,
        make("span", { className: "small", id: `hint-${name}`, textContent: hint })),
    );
  }
  const seed = make("input", { type: "number", id: "knob-seed", min: 0, max: MOST_SEED, step: 1, value: newSeed() });
  seed.setAttribute("aria-describedby", "seed-text");
  const fixed = make("input", { type: "checkbox", id: "knob-fixed" });
  const word = make("span", { className: "small wrong", id: "seed-text", role: "status" });
  $("knobs").append(
    make("div", { className: "knob" },
      make("label", { htmlFor: seed.id, textContent: "Seed" }), seed, word,
      make("label", { className: "small check" }, fixed, "Keep it: the same words give the same story")),
  );
  const possible = () => Math.min(MOST_SEED, Math.max(0, Math.round(Number(seed.value) || 0)));
  // Who types a seed means it. One that is not possible is made so where everybody sees it.
  seed.oninput = () => {
    fixed.checked = seed.value !== "";
    const right = seed.value !== "" && Number(seed.value) === possible();
    seed.setAttribute("aria-invalid", !right);
    word.textContent = right ? "" : `A whole number from 0 to ${number(MOST_SEED)}.`;
  };
  seed.onchange = () => {
    const typed = seed.validity.badInput ? "that" : seed.value;
    seed.value = seed.value === "" ? newSeed() : possible();
    seed.setAttribute("aria-invalid", false);
    if (typed === "") word.textContent = "A new one for each part.";
    else if (typed !== seed.value) {
      word.textContent = `A seed is a whole number from 0 to ${number(MOST_SEED)}: ${typed} became ${seed.value}.`;
    }
  };
  const read = () => ({
    ...Object.fromEntries([...inputs].map(([name, input]) => [name, Number(input.value)])),
    seed: possible(),
  });
  return {
    read,
    /** For the next part: with a new seed, unless it is to be kept; `other`: with a new one in any case. */
    next(other = false) {
      if (other || !fixed.checked) {
        seed.value = newSeed();
        word.textContent = "";
      }
      return read();
    },
    set(name, value) {
      if (name === "seed") {
        seed.value = value;
        seed.oninput();
        seed.onchange();
        return;
      }
      inputs.get(name).value = value;
      inputs.get(name).oninput();
    },
  };
}

const newSeed = () => Math.floor(Math.random() * 1_000_000);
