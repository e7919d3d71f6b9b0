// What went wrong, in plain words, and what to do about it.

import { $, home, make, say } from "./dom.js";

const A_MODEL = "A model is a folder with config.json, model.safetensors and tokenizer.json.";

/**
 * By error code: what it means and what may help. `cases`: the same for errors whose message matches, tried in order.
 * `cpu`: the CPU engine is worth a try; `reload`: so is a reload of the page.
 */
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
    reload: true,
  },
  gpu: {
    title: "The graphics processor refused some work.",
    text: "A newer browser or graphics driver often helps; the processor can do the same, more slowly.",
    cpu: true,
  },
  io: {
    cases: [
      [/answered 40[4-9]|answered 410/, {
        title: "There is no model at this address.",
        text: `Check the address. ${A_MODEL}`,
      }],
      [/answered 40[0-3]/, {
        title: "The server does not hand this model out.",
        text: "It may want a login, which this page cannot give. Download the folder and open it here instead.",
      }],
      [/answered/, { title: "The server has trouble of its own.", text: "Try again in a while: what has arrived is kept." }],
      [/damaged/, { title: "The model arrived damaged.", text: "Try again: what was damaged is fetched anew." }],
    ],
    title: "The model could not be fetched.",
    text: "Check the connection and the address, then try again: what has arrived is kept. A server elsewhere must also allow other pages to read its files (CORS).",
  },
  address: { title: "This is no address of a model.", text: "An address begins with https://, or is a path on this server." },
  format: {
    cases: [
      [/not found/, { title: "This is not a whole model.", text: A_MODEL }],
      [/truncated|expected \d+ bytes/, {
        title: "A file of the model is damaged.",
        text: "A part of it is missing: copy or download it again.",
      }],
    ],
    title: "A file of the model is damaged or not what its name says.",
    text: "Copy or download it again. From an address, the server may have sent a page instead of the file.",
  },
  config: {
    title: "This model's configuration is not one that this page can run.",
    text: "It runs delta-rule models in fla's format, such as gated_deltanet, delta_net and kda.",
  },
  tensor: {
    title: "The model's weights do not fit its configuration.",
    text: "Check that config.json and the weights are of the same model.",
  },
  tokenizer: {
    title: "The model's tokenizer cannot be used.",
    text: "Copy or download tokenizer.json again. Without that file the model runs on token ids instead of words.",
  },
  session: {
    cases: [
      [/not a saved session/, {
        title: "This file is not a saved story.",
        text: "Stories are saved by “Save this story” here, or by the command-line program with --save.",
      }],
      [/another model/, {
        title: "This story is one of another model.",
        text: "A saved story holds the memory of the model that wrote it. Open that model first, then the story.",
      }],
      [/expected version/, {
        title: "This story was saved by another version of deltanet.",
        text: "Open it with the version that saved it.",
      }],
    ],
    title: "The file of this story is damaged.",
    text: "A part of it is missing or was changed, perhaps by a copy that broke off. Open another copy if there is one.",
  },
  file: { title: "A file could not be read.", text: "It may have been moved or changed since it was chosen: choose it again." },
  argument: { title: "That value is not possible.", text: "The line below says what would be." },
  unsupported: { title: "This model needs something that this page does not have." },
  crashed: {
    title: "The engine stopped.",
    text: "It ran out of memory, or hit a mistake of ours. Reloading the page starts it again; the story is kept.",
    reload: true,
  },
  unknown: {
    title: "Something went wrong.",
    text: "Reloading the page often helps; the story is kept.",
    reload: true,
  },
};

// The library tells these apart; their messages, too.
WORDS.missing = WORDS.format;
WORDS["session-format"] = WORDS.session;
WORDS.disposed = WORDS.crashed;

/** Errors of the browser itself, which have names and no codes. */
function codeOf(error) {
  if (error?.code in WORDS) return error.code;
  if (error?.name === "SyntaxError") return "format";
  if (["NotFoundError", "NotReadableError", "SecurityError"].includes(error?.name)) return "file";
  if (error?.name === "TypeError" && /\bURL\b/.test(error.message)) return "address";
  return "unknown";
}

/** Shows an error. `actions`: buttons, `{name: function}`; `stays`: of loading, where another model goes on. */
export function showError(error, actions = {}, stays = false) {
  const detail = error?.message ?? String(error);
  const words = WORDS[codeOf(error)];
  const { title, text } = words.cases?.find(([pattern]) => pattern.test(detail))?.[1] ?? words;
  if (words.reload) actions = { ...actions, Reload: () => location.reload() };
  const texts = [text, stays && "The model that is here, and its story, go on as before."];
  show({ title, text: texts.filter(Boolean).join(" "), detail, actions });
}

/** Whether the CPU engine may help against an error. */
export const cpuMayHelp = (error) => WORDS[codeOf(error)].cpu === true;

export const COPY = {
  title: "This browser does not let the page copy.",
  text: "Here is the story, selected: copy it with the browser's own command, such as Ctrl+C.",
};
export const LOST = { title: "The graphics processor went away.", text: "Opening it again; the story goes on from its last word." };
export const NO_MODEL = { title: "There is no model to open the story with.", text: "Load the model that wrote it, then open the story." };
export const NO_TOKENIZER = {
  title: "This model has no tokenizer.",
  text: "Without tokenizer.json there are no words: type token ids with spaces between them, and it answers with ids.",
};
export const SAME_AGAIN = {
  title: "The same words again.",
  text: "With these settings the likeliest word always wins, whatever the seed. A higher temperature gives chance a say.",
};
export const cancelled = (retry, stays) => ({
  title: "Loading was cancelled.",
  text: stays ? "The model that is here, and its story, go on as before." : "",
  actions: { "Load it": retry },
});
export const noDevice = (name, engine) => ({
  title: `There is no device “${name}”.`,
  text: `The address may ask for gpu, cpu or auto. The page chose by itself: the ${engine === "gpu" ? "graphics " : ""}processor.`,
});

/** Why the processor took over, from the engine's note. */
export function onProcessor(note, retry) {
  const slower = "The same model runs in WebAssembly instead, more slowly.";
  const safe = globalThis.isSecureContext ? "" : " It is offered on https and localhost only.";
  const full = /memory/.test(note);
  const why =
    !navigator.gpu ? `This browser has no WebGPU, or it is switched off.${safe} ${slower} Recent versions of Chrome, Edge, Safari and Firefox have it.`
    : /software adapter/.test(note) ? `This browser's WebGPU has no graphics processor behind it, only a program that imitates one. ${slower}`
    : full ? `The graphics processor has too little free memory for this model. ${slower} Closing other tabs may help.`
    : /needs .*the device has/.test(note) ? `The graphics processor is too small for this model. ${slower}`
    : /no adapter/.test(note) ? `This browser offers no graphics processor to web pages. ${slower}`
    : `The graphics processor could not be used. ${slower}`;
  return { title: "Running on the processor.", text: why, detail: note, actions: full ? { "Try again": retry } : {} };
}

/** Shows a message in place of the last one. */
export function show({ title, text, detail, actions = {} }) {
  const box = $("message");
  box.replaceChildren(make("strong", { textContent: title }));
  if (text) box.append(make("span", { textContent: text }));
  if (detail) box.append(make("span", { className: "detail", textContent: detail }));
  const buttons = Object.entries({ ...actions, Dismiss: () => {} }).map(([name, act]) =>
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

/** The same with a text that readers can select; it is selected. */
export function showText(message, text) {
  show(message);
  const field = make("textarea", { className: "text", readOnly: true, rows: 4, value: text, "aria-label": message.title });
  // Copied, it has done what it is for. (The browser reads it after this.)
  field.oncopy = () => setTimeout(() => {
    hide();
    say("Copied.");
  });
  $("message").lastElementChild.before(field);
  field.focus();
  field.select();
}

export function hide() {
  const focused = $("message").contains(document.activeElement);
  $("message").hidden = true;
  if (focused) home();
}

/** Puts the keyboard's focus on what the message offers. */
export function focus() {
  const button = $("message").hidden ? null : $("message").querySelector("button");
  if (button) button.focus();
  else home();
}
