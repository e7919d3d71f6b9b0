// Files: stories saved here and by the native program, and models that readers bring.

import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "./browsers.mjs";
import { assert, assertEqual, demo, golden, native, serve, site, skip, test } from "./harness.mjs";
import { button, drop, greedy, ids, length, message, press, ready, set, tell, written } from "./reader.mjs";
import { readSafetensors } from "./safetensors.mjs";

const TINY = join(golden, "checkpoints", "fla-gated_deltanet-tiny");

/** A copy of the demo model's config.json with one field changed: a folder without weights. */
function spoilt(folder, change) {
  mkdirSync(folder, { recursive: true });
  const config = JSON.parse(readFileSync(join(demo, "config.json"), "utf8"));
  writeFileSync(join(folder, "config.json"), JSON.stringify({ ...config, ...change }));
  for (const name of ["model.safetensors", "tokenizer.json"]) {
    writeFileSync(join(folder, name), readFileSync(join(demo, name)));
  }
}

export async function stories(name) {
  const scratch = mkdtempSync(join(tmpdir(), "deltanet-stories-"));
  spoilt(join(scratch, "config"), { hidden_size: -3 });
  const server = await serve({ "/": site, "/golden/": golden, "/scratch/": scratch });
  const { page, problems, close } = await launch(name);
  const expected = readSafetensors(join(demo, "expected.safetensors"));
  const prompt = expected["0.prompt_len"].data[0];
  const want = [...expected["0.ids"].data].slice(0, prompt + 16);
  const quiet = () => assertEqual(problems.splice(0), [], "errors, warnings and requests elsewhere");
  try {
    const saved = join(scratch, "page.deltanet");
    await test(`${name}: a story is saved to a file and opened again`, async () => {
      assertEqual(await ready(page, `${server.url}?device=gpu`), "", "message");
      await greedy(page, 8);
      await tell(page, "Once upon a time");
      const story = await ids(page);
      const text = await page.evaluate(async () => {
        const made = URL.createObjectURL;
        const blob = new Promise((resolve) => {
          URL.createObjectURL = (b) => {
            resolve(b);
            return made.call(URL, b);
          };
        });
        document.getElementById("files").open = true;
        document.getElementById("save").click();
        const bytes = new Uint8Array(await (await blob).arrayBuffer());
        URL.createObjectURL = made;
        return btoa(Array.from(bytes, (b) => String.fromCharCode(b)).join(""));
      });
      writeFileSync(saved, Buffer.from(text, "base64"));
      assertEqual(story, want.slice(0, prompt + 8), "the story");
      await tell(page, "Another");
      await (await page.$("#open-file")).uploadFile(saved);
      await length(page, story.length);
      assertEqual(await ids(page), story, "the opened story");
      await greedy(page, want.length - story.length);
      await button(page, "Go on");
      await page.click("#go");
      await written(page);
      assertEqual(await ids(page), want, "how it goes on");
      quiet();
    });

    if (existsSync(native)) {
      await test(`${name}: stories go between the page and the native program`, async () => {
        const rest = execFileSync(native, ["--device", "cpu", "--resume", saved, "--temperature", "0", "--max-tokens", `${want.length - prompt - 8}`, "--json"], { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] });
        const tokens = rest.trim().split("\n").map((l) => JSON.parse(l).token).filter((t) => t !== undefined);
        assertEqual(tokens, want.slice(prompt + 8), "the native program goes on");
        const file = join(scratch, "native.deltanet");
        execFileSync(native, ["Once upon a time", "--device", "cpu", "--temperature", "0", "--max-tokens", "10", "--save", file], { stdio: "ignore" });
        await page.click("#fresh");
        await page.waitForFunction(() => document.getElementById("story").hidden);
        await button(page, "Tell the story");
        await (await page.$("#open-file")).uploadFile(file);
        await length(page, prompt + 10);
        await greedy(page, want.length - prompt - 10);
        await button(page, "Go on");
        await page.click("#go");
        await written(page);
        assertEqual(await ids(page), want, "the page goes on");
        quiet();
      });
    } else {
      skip(`${name}: stories go between the page and the native program`, `${native} has not been built`);
    }

    await test(`${name}: a file that is no story`, async () => {
      const file = join(scratch, "letter.txt");
      writeFileSync(file, "Dear reader");
      const before = await ids(page);
      await (await page.$("#open-file")).uploadFile(file);
      await page.waitForSelector("#message:not([hidden])");
      assert(/not a saved story/.test(await message(page)), await message(page));
      await press(page, "Dismiss");
      assertEqual(await ids(page), before, "the story");
      quiet();
    });

    await test(`${name}: a model by its address`, async () => {
      const shown = await ready(page, `${server.url}?device=gpu&model=golden/checkpoints/fla-gated_deltanet-tiny/`);
      assert(/no tokenizer/.test(shown), shown);
      // Without a tokenizer.json the browser itself notes a 404.
      problems.splice(0);
      const ids0 = [...readSafetensors(join(TINY, "expected.safetensors")).input_ids.data].slice(0, 5);
      await greedy(page, 8);
      await tell(page, ids0.join(" "));
      assertEqual((await ids(page)).slice(0, 5), ids0, "the prompt's tokens");
      assertEqual((await ids(page)).length, 13, "tokens");
      quiet();
    });

    await test(`${name}: a dropped folder`, async () => {
      await ready(page, `${server.url}?device=gpu`);
      await drop(page, name, TINY);
      await page.waitForFunction(() => /no tokenizer/.test(document.getElementById("message").textContent), { timeout: 60_000 });
      await button(page, "Tell the story");
      quiet();
    });

    await test(`${name}: the same errors as the native program`, async () => {
      await ready(page, `${server.url}?device=gpu&model=scratch/config/`);
      const detail = await page.$eval("#message .detail", (e) => e.textContent);
      assert(/^config\.json: hidden_size: expected/.test(detail), detail);
      if (!existsSync(native)) return;
      const { stderr } = spawnSync(native, ["x", "--device", "cpu", "--model", join(scratch, "config")], { encoding: "utf8" });
      // There a file has a folder.
      assertEqual(stderr.trim(), `error: ${join(scratch, "config", detail)}`, "the native program's words");
      problems.splice(0);
    });
    await test(`${name}: weights that end too early`, async () => {
      const cut = join(scratch, "cut");
      spoilt(cut, {});
      const weights = join(cut, "model.safetensors");
      writeFileSync(weights, readFileSync(weights).subarray(0, 20_000_000));
      await ready(page, `${server.url}?device=cpu&model=scratch/cut/`);
      assert(/damaged/.test(await message(page)), await message(page));
      const detail = await page.$eval("#message .detail", (e) => e.textContent);
      assert(/^model\.safetensors: truncated/.test(detail), detail);
      await press(page, "Load the demo model");
      await button(page, "Tell the story");
      problems.splice(0);
      return detail;
    });

    await test(`${name}: a folder that is no model`, async () => {
      const folder = join(scratch, "letters");
      mkdirSync(folder);
      writeFileSync(join(folder, "model.safetensors"), "Dear reader");
      assertEqual(await ready(page, `${server.url}?device=cpu`), "", "message");
      await drop(page, name, folder);
      await page.waitForSelector("#message:not([hidden])");
      assert(/config\.json: not found/.test(await message(page)), await message(page));
      await press(page, "Dismiss");
      await button(page, "Tell the story");
      quiet();
    });

    await test(`${name}: a dropped folder whose config cannot be run is not read any further`, async () => {
      const folder = join(scratch, "foreign");
      mkdirSync(folder);
      writeFileSync(join(folder, "config.json"), JSON.stringify({ model_type: "llama", hidden_size: 64 }));
      writeFileSync(join(folder, "model.safetensors"), new Uint8Array(name === "chromium" ? 300e6 : 3e6));
      // Other folders in it are nobody's business.
      mkdirSync(join(folder, "runs", "deep"), { recursive: true });
      writeFileSync(join(folder, "runs", "deep", "config.json"), "{}");
      await page.evaluate(() => {
        globalThis.most = 0;
        const bar = document.getElementById("bar");
        new MutationObserver(() => (globalThis.most = Math.max(globalThis.most, bar.value))).observe(bar, { attributes: true });
      });
      await drop(page, name, folder);
      await page.waitForSelector("#message:not([hidden])");
      assert(/model_type: expected .*got "?llama/.test(await message(page)), await message(page));
      const most = await page.evaluate(() => globalThis.most);
      assert(most < 1000, `${most} bytes were read`);
      await press(page, "Dismiss");
      await button(page, "Tell the story");
      quiet();
    });

    await test(`${name}: a reload in mid-story`, async () => {
      await set(page, "maxTokens", 2000);
      await page.type("#prompt", "Once upon a time");
      await page.keyboard.press("Enter");
      await length(page, prompt + 2, ">");
      assertEqual(await ready(page, `${server.url}?device=cpu`), "", "message");
      await greedy(page, 16);
      await tell(page, "Once upon a time");
      assertEqual(await ids(page), want, "tokens");
      quiet();
    });
  } finally {
    await close();
    server.close();
    rmSync(scratch, { recursive: true, force: true });
  }
}
