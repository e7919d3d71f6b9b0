// How words are chosen: the controls and their values.

import { $, kept, make } from "./dom.js";

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
  const seed = make("input", { type: "number", id: "knob-seed", min: 0, max: 4294967295, step: 1, value: newSeed() });
  const fixed = make("input", { type: "checkbox", id: "knob-fixed" });
  $("knobs").append(
    make("div", { className: "knob" },
      make("label", { htmlFor: seed.id, textContent: "Seed" }), seed,
      make("label", { className: "small check" }, fixed, "Keep it: the same words give the same story")),
  );
  const read = () => ({
    ...Object.fromEntries([...inputs].map(([name, input]) => [name, Number(input.value)])),
    seed: Math.max(0, Math.floor(Number(seed.value) || 0)),
  });
  return {
    read,
    /** The seed for the next part. */
    next() {
      if (!fixed.checked) seed.value = newSeed();
      return read();
    },
    set(name, value) {
      if (name === "seed") {
        seed.value = value;
        fixed.checked = true;
        return;
      }
      inputs.get(name).value = value;
      inputs.get(name).oninput();
    },
  };
}

const newSeed = () => Math.floor(Math.random() * 1_000_000);
