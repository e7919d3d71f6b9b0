// What is not lost: the story when another model cannot be loaded, and what earlier visits left.

import { copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { launch } from "./browsers.mjs";
import { assert, assertEqual, demo, golden, serve, shoot, site, test } from "./harness.mjs";
import { able, button, drop, greedy, ids, length, message, press, ready, set, tell, written } from "./reader.mjs";
import { readSafetensors } from "./safetensors.mjs";

const TINY = join(golden, "checkpoints", "fla-gated_deltanet-tiny");
const DEMO = "models/stories-17m/files.json";

export async function visits(name) {
  const scratch = mkdtempSync(join(tmpdir(), "deltanet-visits-"));
  const server = await serve({ "/": site, "/golden/": golden, "/scratch/": scratch });
  const { page, problems, close } = await launch(name);
  const expected = readSafetensors(join(demo, "expected.safetensors"));
  const prompt = expected["0.prompt_len"].data[0];
  const want = [...expected["0.ids"].data];
  const quiet = () => assertEqual(problems.splice(0), [], "errors, warnings and requests elsewhere");
  const cpu = `${server.url}?device=cpu`;
  const goOn = async () => {
    await button(page, "Go on");
    await page.click("#go");
    await written(page);
  };
  const shown = () => page.waitForSelector("#message:not([hidden])");
  const loaded = () => page.waitForFunction(() => document.getElementById("loading").hidden);
  const start = (source, device = "cpu") =>
    page.evaluate(async (s, d) => void (await import("./loading.js")).start(s, d), source, device);
  const bookmarks = () => page.$$eval("#bookmarks li", (all) => all.length);
  const header = () => page.$eval("#device", (e) => e.textContent);

  try {
    await test(`${name}: a model that cannot be loaded leaves the story that is here`, async () => {
      assertEqual(await ready(page, cpu), "", "message");
      await greedy(page, 4);
      await tell(page, "Another");
      await tell(page, "Once upon a time");
      const before = { header: await header(), bookmarks: await bookmarks() };
      assertEqual(before.bookmarks, 1, "bookmarks");
      const wrong = {
        "no config.json": { "model.safetensors": "Dear reader" },
        "weights that are none": { "config.json": readFileSync(join(TINY, "config.json")), "model.safetensors": "Dear reader" },
        "another model's weights": { "config.json": readFileSync(join(demo, "config.json")), "model.safetensors": readFileSync(join(TINY, "model.safetensors")) },
      };
      let tokens = prompt + 4;
      for (const [what, files] of Object.entries(wrong)) {
        const folder = join(scratch, what);
        mkdirSync(folder);
        for (const [file, content] of Object.entries(files)) writeFileSync(join(folder, file), content);
        await drop(page, name, folder);
        await shown();
        await loaded();
        assert(/go on as before/.test(await message(page)), await message(page));
        assertEqual({ header: await header(), bookmarks: await bookmarks() }, before, what);
        assertEqual(await ids(page), want.slice(0, tokens), `the story after ${what}`);
        await goOn();
        tokens += 4;
        assertEqual(await ids(page), want.slice(0, tokens), `how it goes on after ${what}`);
      }
      quiet();
      // One that is not there, asked for while the story is being written.
      await greedy(page, want.length - tokens);
      await page.click("#go");
      await start("nowhere/");
      await shown();
      assert(/no model at this address.* go on as before/s.test(await message(page)), await message(page));
      await written(page);
      assertEqual(await ids(page), want, "the whole story");
      await shoot(page, `${name}-error-in-a-story`);
      // The browser itself reports the 404.
      problems.splice(0);
    });

    await test(`${name}: the same model on another device goes on with the story`, async () => {
      await greedy(page, 8);
      await tell(page, "Once upon a time");
      await start(DEMO, "gpu");
      await page.waitForFunction(() => /graphics processor/.test(document.getElementById("device").textContent));
      await loaded();
      await goOn();
      assertEqual(await ids(page), want.slice(0, prompt + 16), "tokens");
      problems.splice(0);
    });

    await test(`${name}: a reload in mid-story, and what earlier visits left`, async () => {
      await ready(page, cpu);
      await greedy(page, want.length - prompt);
      await tell(page, "Once upon a time");
      await page.click("#fresh");
      await button(page, "Tell the story");
      await greedy(page, 2000);
      await page.type("#prompt", "Once upon a time");
      await page.keyboard.press("Enter");
      await length(page, prompt + 2, ">");
      await new Promise((r) => setTimeout(r, 2500));
      const seen = (await ids(page)).length;
      assertEqual(await ready(page, cpu), "", "message");
      await page.waitForSelector("#resume:not([hidden])");
      await shoot(page, `${name}-pick-up`);
      const earlier = await bookmarks();
      await page.click("#resume");
      await length(page, prompt + 2, ">");
      await button(page, "Go on");
      const got = await ids(page);
      assert(got.length >= seen - 60, `${seen} tokens were seen, ${got.length} were kept`);
      assertEqual(got.slice(0, want.length), want.slice(0, got.length), "what was kept");
      await page.waitForFunction((n) => document.querySelectorAll("#bookmarks li").length === n - 1, {}, earlier);
      await greedy(page, 8);
      await goOn();
      const longer = await ids(page);
      assertEqual(longer.length, got.length + 8, "length");

      // At rest the memory is kept too, and the story is offered once.
      await new Promise((r) => setTimeout(r, 1000));
      await ready(page, cpu);
      await page.waitForSelector("#resume:not([hidden])");
      assertEqual(await bookmarks(), earlier, "stories");
      await page.click("#resume");
      await length(page, longer.length);
      assertEqual(await ids(page), longer, "the story");

      // What is removed is gone.
      await button(page, "Go on");
      await page.waitForFunction((n) => document.querySelectorAll("#bookmarks li").length === n - 1, {}, earlier);
      for (let n = earlier - 1; n > 0; n--) {
        await page.click("#bookmarks li:last-child button:last-child");
        await page.waitForFunction((n) => document.querySelectorAll("#bookmarks li").length === n - 1, {}, n);
      }
      await new Promise((r) => setTimeout(r, 1000));
      await ready(page, cpu);
      await page.waitForSelector("#resume:not([hidden])");
      assertEqual(await bookmarks(), 1, "stories left");
      await page.click("#bookmarks li button:last-child");
      await page.waitForSelector("#resume[hidden]");
      quiet();
      return `${got.length} of ${seen} tokens and more were kept in mid-story`;
    });

    await test(`${name}: a bookmark does not take the place of words that are nowhere else`, async () => {
      await greedy(page, 8);
      await tell(page, "Once upon a time");
      await page.click("#story span:nth-child(6)");
      await page.waitForSelector("#place:not([hidden])");
      await page.click("#bookmark");
      await page.waitForFunction(() => document.querySelectorAll("#bookmarks li").length === 1);
      await page.click("#bookmarks li:first-child .go");
      await length(page, 6);
      assertEqual(await bookmarks(), 2, "bookmarks");
      quiet();
    });

    await test(`${name}: messages say what is the matter`, async () => {
      const story = join(scratch, "cut.deltanet");
      const bytes = await page.evaluate(async () => [...(await (await import("./app.js")).app.session.save())]);
      writeFileSync(story, Buffer.from(bytes).subarray(0, bytes.length - 1000));
      const open = async (pattern) => {
        const before = await ids(page);
        await (await page.$("#open-file")).uploadFile(story);
        await shown();
        assert(pattern.test(await message(page)), await message(page));
        await press(page, "Dismiss");
        assertEqual(await ids(page), before, "the story");
        await button(page, "Go on");
      };
      await open(/story is damaged/);
      const other = Buffer.from(bytes);
      other[20] ^= 1;
      writeFileSync(story, other);
      await open(/one of another model/);
      // Spaces are no words.
      const before = await ids(page);
      await set(page, "maxTokens", 1);
      await page.type("#prompt", "   ");
      await page.keyboard.press("Enter");
      await written(page);
      assertEqual((await ids(page)).length, before.length + 1, "tokens after a prompt of spaces");
      // A story that is dropped while one is being written: that one ends, and is kept.
      writeFileSync(story, Buffer.from(bytes));
      const kept = await bookmarks();
      // (One that is not kept yet.)
      await set(page, "temperature", 2);
      await set(page, "maxTokens", 2000);
      await page.click("#go");
      await length(page, before.length + 4, ">");
      await (await page.$("#open-file")).uploadFile(story);
      await length(page, 6);
      await button(page, "Go on");
      assertEqual(await bookmarks(), kept + 1, "bookmarks");
      assertEqual(await page.evaluate(() => document.activeElement.id), "story", "the focus");
      quiet();

      assertEqual(await ready(page, `${cpu}&model=`), "", "without a model's address");
      assert(/There is no device “tpu”/.test(await ready(page, `${server.url}?device=tpu`)), await message(page));
      await button(page, "Tell the story");
      assert(/no address of a model/.test(await ready(page, `${cpu}&model=http://`)), await message(page));
      assert(!(await able(page, "go")), "a story can be told without a model");
      await ready(page, `${cpu}&model=golden/checkpoints/fla-gated_deltanet-tiny/`);
      await page.type("#prompt", "1 2 cat");
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => /expected token ids/.test(document.getElementById("message").textContent));
      // They are in the box again, and would outlive the visit.
      await page.$eval("#prompt", (box) => {
        box.value = "";
        box.dispatchEvent(new Event("input", { bubbles: true }));
      });
      // Without a tokenizer.json the browser itself notes a 404.
      problems.splice(0);
    });

    await test(`${name}: a model for which there is no room beside the one that is here`, async () => {
      await ready(page, cpu);
      await greedy(page, 8);
      await tell(page, "Once upon a time");
      // Five gigabytes of nothing: more than a module's memory has.
      const huge = join(scratch, "huge");
      mkdirSync(huge);
      copyFileSync(join(TINY, "config.json"), join(huge, "config.json"));
      writeFileSync(join(huge, "model.safetensors"), "");
      truncateSync(join(huge, "model.safetensors"), 5e9);
      await start("scratch/huge/");
      await shown();
      assert(/not enough memory.* go on as before/is.test(await message(page)), await message(page));
      assertEqual(await ids(page), want.slice(0, prompt + 8), "the story");
      await goOn();
      await press(page, "Close this model first");
      await page.waitForFunction(() => {
        const { hidden, textContent } = document.getElementById("message");
        return !hidden && /not enough memory/.test(textContent) && !/go on as before/.test(textContent);
      });
      await loaded();
      assert(!(await able(page, "go")), "a story can be told without a model");
      // The story is not lost.
      await press(page, "Load the demo model");
      await page.waitForSelector("#resume:not([hidden])");
      await page.click("#resume");
      await length(page, prompt + 16);
      await goOn();
      assertEqual(await ids(page), want.slice(0, prompt + 24), "the story");
      problems.splice(0);
    });

    await test(`${name}: loading is cancelled, and the story goes on`, async () => {
      await ready(page, cpu);
      await page.evaluate(async () => (await import("./js/index.js")).storage.remove());
      await greedy(page, 4);
      await tell(page, "Once upon a time");
      server.state.rate = 2_000_000;
      await start(DEMO);
      await page.waitForSelector("#cancel:not([hidden])");
      await page.focus("#cancel");
      await page.keyboard.press("Enter");
      await loaded();
      server.state.rate = 0;
      assert(/cancelled.*go on as before/.test(await message(page)), await message(page));
      assertEqual(await page.evaluate(() => document.activeElement.textContent), "Load it", "the focus");
      await goOn();
      assertEqual(await ids(page), want.slice(0, prompt + 8), "tokens");
      problems.splice(0);
    });

    await test(`${name}: a way back can be stopped, and a long story is back at once`, async () => {
      await ready(page, cpu);
      await greedy(page, 16);
      await page.$eval("#prompt", (box) => {
        box.value = "The fox ran over the hill and into the woods. ".repeat(100);
        box.dispatchEvent(new Event("input", { bubbles: true }));
      });
      await page.focus("#prompt");
      await page.keyboard.press("Enter");
      await written(page);
      const all = await ids(page);
      const back = async () => {
        await page.$eval(`#story span[data-i="${all.length - 9}"]`, (word) => word.click());
        await page.click("#rewind");
      };
      await back();
      await page.waitForFunction(() => /^Reading /.test(document.getElementById("speed").textContent), { timeout: 20_000 });
      await button(page, "Stop");
      const pressed = performance.now();
      await page.keyboard.press("Escape");
      await button(page, "Go on");
      const stopped = performance.now() - pressed;
      assert(stopped < 4000, `Escape took ${stopped.toFixed(0)} ms`);
      assertEqual(await ids(page), all, "the story after Escape");
      // So is the memory: what follows is what follows when the same words are written again.
      await greedy(page, 8);
      await goOn();
      const last = await ids(page);
      await back();
      await length(page, all.length - 8);
      await button(page, "Go on");
      await greedy(page, 16);
      await goOn();
      assertEqual(await ids(page), last, "the end, written again");

      await new Promise((r) => setTimeout(r, 1000));
      await ready(page, cpu);
      await page.waitForSelector("#resume:not([hidden])");
      const clicked = performance.now();
      await page.click("#resume");
      await length(page, last.length);
      await button(page, "Go on");
      const took = performance.now() - clicked;
      assertEqual(await ids(page), last, "the story");
      assert(took < 3000, `${last.length} tokens were back after ${took.toFixed(0)} ms`);
      quiet();
      return `${stopped.toFixed(0)} ms to stop, ${last.length} tokens back in ${took.toFixed(0)} ms`;
    });

    if (name === "chromium") {
      await test(`${name}: where nothing can be kept, the browser asks before a story is lost`, async () => {
        await page.evaluateOnNewDocument(() => {
          IDBFactory.prototype.open = () => {
            throw new DOMException("no", "SecurityError");
          };
        });
        await ready(page, cpu);
        const asked = [];
        page.on("dialog", (dialog) => {
          asked.push(dialog.type());
          dialog.accept();
        });
        await ready(page, cpu);
        assertEqual(asked, [], "questions without a story");
        await greedy(page, 4);
        await tell(page, "Once upon a time");
        await ready(page, cpu);
        assertEqual(asked, ["beforeunload"], "questions");
        quiet();
      });
    }
  } finally {
    await close();
    server.close();
    rmSync(scratch, { recursive: true, force: true });
  }
}
