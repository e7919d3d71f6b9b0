// What a reader does with the page, and what they see.

import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";

export const PROMPTS = [
  "Once upon a time",
  "The old wizard opened the door and",
  "\"Where are you going?\" asked the fox.",
  "In the middle of the forest there lived",
];

/** Waits until the page's main button says one of these words. */
export const button = (page, ...words) =>
  page.waitForFunction((w) => {
    const go = document.getElementById("go");
    return !go.disabled && go.getAttribute("aria-disabled") !== "true" && w.includes(go.textContent);
  }, { timeout: 240_000 }, words);

/** Whether a button can be pressed. */
export const able = (page, id) => page.$eval(`#${id}`, (b) => !b.disabled && b.getAttribute("aria-disabled") !== "true");

/** Token ids of the story, in order. */
export const ids = (page) => page.$$eval("#story span", (spans) => spans.map((s) => Number(s.dataset.token)));

/** Waits for a story of so many tokens. */
export const length = (page, n, compare = "=") =>
  page.waitForFunction((n, c) => {
    const count = document.querySelectorAll("#story span").length;
    return c === "=" ? count === n : count >= n;
  }, { timeout: 120_000 }, n, compare);

/** Moves a slider as the keyboard would set it; `free` takes its bounds away. */
export const set = (page, name, value) =>
  page.$eval(`#knob-${name}`, (input, v) => {
    input.min = Math.min(input.min, v);
    input.max = Math.max(input.max, v);
    input.step = "any";
    input.value = v;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, value);

/** Always the likeliest token, and so many of them. */
export const greedy = async (page, tokens) => {
  await set(page, "temperature", 0);
  await set(page, "repetitionPenalty", 1);
  await set(page, "maxTokens", tokens);
};

/** The message that the page shows, or "". */
export const message = (page) => page.$eval("#message", (m) => (m.hidden ? "" : m.textContent));

/** Opens an address and waits for the model; returns the message then. */
export async function ready(page, url) {
  await page.goto(url, { waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("loading").hidden, { timeout: 240_000 });
  return message(page);
}

/** Starts over, types, presses Enter, and waits for the end. */
export async function tell(page, prompt) {
  if (await able(page, "fresh")) {
    await page.click("#fresh");
    await page.waitForFunction(() => document.getElementById("story").hidden);
  }
  await page.type("#prompt", prompt);
  await page.keyboard.press("Enter");
  await written(page);
}

/** Waits until what was begun is written. */
export async function written(page) {
  await button(page, "Stop", "Go on");
  await button(page, "Go on", "Add and go on");
}

/** Presses a button of the message by its name. */
export const press = (page, name) =>
  page.evaluate((n) => [...document.querySelectorAll("#message button")].find((b) => b.textContent === n).click(), name);

/** Files of a folder onto a page: dragged by the browser where it can be told to, else by a made-up event. */
export async function drop(page, name, folder) {
  if (name === "chromium") {
    const cdp = await page.createCDPSession();
    const data = { items: [], files: [folder], dragOperationsMask: 1 };
    for (const type of ["dragEnter", "dragOver", "drop"]) {
      await cdp.send("Input.dispatchDragEvent", { type, x: 300, y: 300, data });
    }
    return;
  }
  const files = readdirSync(folder).filter((f) => /^(config|tokenizer)\.json$|\.safetensors$/.test(f) && !f.startsWith("expected"));
  await page.evaluate((all) => {
    const dataTransfer = new DataTransfer();
    for (const [file, text] of all) {
      dataTransfer.items.add(new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], file));
    }
    for (const type of ["dragenter", "drop"]) document.body.dispatchEvent(new DragEvent(type, { dataTransfer, bubbles: true, cancelable: true }));
  }, files.map((f) => [f, readFileSync(join(folder, f)).toString("base64")]));
}
