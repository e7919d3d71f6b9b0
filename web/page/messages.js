// What went wrong, in plain words, and what to do about it.

import { $, make } from "./dom.js";

/** By error code: what it means and what may help. `cpu`: the CPU engine is worth a try. */
const WORDS = {
  "no-gpu": {
    title: "This browser offers no graphics processor to web pages.",
    text: "WebGPU is missing or switched off. Recent versions of Chrome, Edge, Safari and Firefox have it.",
    cpu: true,
  },
  limit: {
    title: "The graphics processor is too small for this model.",
    text: "It does not offer buffers of the size that the model needs. The processor may still run it, more slowly.",
    cpu: true,
  },
  "out-of-memory": {
    title: "There is not enough memory.",
    text: "Close other tabs or programs and try again, or choose a smaller model.",
    cpu: true,
  },
  "device-lost": {
    title: "The graphics processor went away and could not be opened again.",
    text: "This happens when its driver restarts or the computer sleeps. Reload the page, or go on with the processor.",
    cpu: true,
  },
  gpu: {
    title: "The graphics processor refused some work.",
    text: "A newer browser or graphics driver often helps; the processor can do the same, more slowly.",
    cpu: true,
  },
  io: {
    title: "The model could not be fetched.",
    text: "Check the connection and the address, then try again: what has arrived is kept.",
  },
  format: { title: "A file of the model is damaged or not what it should be." },
  config: { title: "This model's configuration is not one that this page can run." },
  tensor: { title: "The model's weights do not fit its configuration." },
  tokenizer: { title: "The model's tokenizer cannot be used." },
  session: {
    title: "This is not a story of this model.",
    text: "A saved story holds the memory of one model and can be opened with that model only.",
  },
  argument: { title: "That value is not possible." },
  unsupported: { title: "This is not supported." },
  crashed: {
    title: "The engine stopped.",
    text: "It ran out of memory, or hit a mistake of ours. Reloading the page starts it again.",
  },
};

/** Shows an error. `actions`: buttons, `{name: function}`. */
export function showError(error, actions = {}) {
  const { title, text } = WORDS[error?.code] ?? { title: "Something went wrong." };
  show({ title, text, detail: error?.message ?? String(error), actions });
}

/** Whether the CPU engine may help against an error. */
export const cpuMayHelp = (error) => WORDS[error?.code]?.cpu === true;

/** Why the processor took over, from the engine's note. */
export function onProcessor(note) {
  const title = "Running on the processor.";
  const slower = "The same model runs in WebAssembly instead, more slowly.";
  if (!navigator.gpu) {
    const safe = globalThis.isSecureContext ? "" : " It is offered on https and localhost only.";
    return { title, text: `This browser has no WebGPU, or it is switched off.${safe} ${slower} Recent versions of Chrome, Edge, Safari and Firefox have it.` };
  }
  if (/software adapter/.test(note)) return { title, text: `This browser's WebGPU has no graphics processor behind it, only a program that imitates one. ${slower}` };
  if (/memory/.test(note)) return { title, text: `The graphics processor has too little free memory for this model. ${slower} Closing other tabs may help.` };
  if (/needs .*the device has/.test(note)) return { title, text: `The graphics processor is too small for this model. ${slower}` };
  if (/no adapter/.test(note)) return { title, text: `This browser offers no graphics processor to web pages. ${slower}` };
  return { title, text: `The graphics processor could not be used. ${slower}` };
}

/** Shows a message in place of the last one. */
export function show({ title, text, detail, actions = {} }) {
  const box = $("message");
  box.replaceChildren(make("strong", { textContent: title }));
  if (text) box.append(make("span", { textContent: text }));
  if (detail) box.append(make("span", { className: "detail", textContent: detail }));
  const buttons = Object.entries({ ...actions, Dismiss: hide }).map(([name, act]) =>
    make("button", {
      type: "button",
      textContent: name,
      className: name === "Dismiss" ? "quiet" : "",
      onclick: () => {
        hide();
        act();
      },
    }),
  );
  box.append(make("div", { className: "row" }, ...buttons));
  box.hidden = false;
}

export function hide() {
  $("message").hidden = true;
}
