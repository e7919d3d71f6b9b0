// How close a browser comes to the native program on the same driver, interleaved: `node bench.mjs [rounds] [browser]`.
// A benchmark, not a test. Firefox and the native program both run on lavapipe.

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { launch, lavapipe } from "./browsers.mjs";
import { root, serve, site } from "./harness.mjs";

const rounds = Number(process.argv[2] ?? 3);
const browser = process.argv[3] ?? "firefox";
const icd = browser === "firefox" ? lavapipe() : "/usr/lib/chromium/vk_swiftshader_icd.json";
const env = { ...process.env, VK_DRIVER_FILES: icd, VK_ICD_FILENAMES: icd };
const words = ["bench", "--only", "model", "--device", "gpu", "--sessions", "1", "--prefill", "512", "--seconds", "5", "--json"];

const rates = new Map();
const add = (where, rows) => {
  for (const { name: full, rate } of rows) {
    // The native program puts the model's name first.
    const name = full.replace(/^[^:]*: /, "");
    const row = rates.get(name) ?? { native: [], page: [] };
    row[where].push(rate);
    rates.set(name, row);
  }
};
const server = await serve({ "/": site });
for (let i = 0; i < rounds; i++) {
  const out = execFileSync(join(root, "target", "release", "deltanet"), words, { env, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
  add("native", JSON.parse(out).rows);
  const { page, close } = await launch(browser);
  await page.goto(`${server.url}?device=gpu&bench=model`);
  await page.waitForSelector("#welcome[data-bench]", { timeout: 300_000 });
  add("page", JSON.parse(await page.$eval("#welcome", (e) => e.dataset.bench)).rows);
  await close();
}
server.close();
const median = (all) => all.sort((a, b) => a - b)[Math.floor(all.length / 2)];
console.log(`${"tokens/s, median of " + rounds}`.padEnd(32), "native".padStart(10), browser.padStart(10), "ratio".padStart(8));
for (const [name, { native, page }] of rates) {
  if (native.length === 0 || page.length === 0) continue;
  const [a, b] = [median(native), median(page)];
  console.log(name.padEnd(32), a.toFixed(0).padStart(10), b.toFixed(0).padStart(10), `${((100 * b) / a).toFixed(0)} %`.padStart(8));
}
