// What a reader does with the page, and what they see.

export const PROMPTS = [
  "Once upon a time",
  "The old wizard opened the door and",
  "\"Where are you going?\" asked the fox.",
  "In the middle of the forest there lived",
];

/** Waits until the page's main button says one of these words. */
export const button = (page, ...words) =>
  page.waitForFunction((w) => !document.getElementById("go").disabled && w.includes(document.getElementById("go").textContent), { timeout: 240_000 }, words);

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
  if (await page.$eval("#fresh", (b) => !b.disabled)) {
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
