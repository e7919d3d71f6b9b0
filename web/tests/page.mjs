// The page, driven as a reader would: typing, pressing, reading. In every installed browser.

import { join } from "node:path";
import { launch } from "./browsers.mjs";
import { assert, assertClose, assertEqual, demo, serve, shoot, site, test } from "./harness.mjs";
import { readSafetensors } from "./safetensors.mjs";

const PROMPTS = [
  "Once upon a time",
  "The old wizard opened the door and",
  "\"Where are you going?\" asked the fox.",
  "In the middle of the forest there lived",
];

/** Waits until the page's main button says one of these words. */
const button = (page, ...words) =>
  page.waitForFunction((w) => !document.getElementById("go").disabled && w.includes(document.getElementById("go").textContent), { timeout: 240_000 }, words);

/** Token ids of the story, in order. */
const ids = (page) => page.$$eval("#story span", (spans) => spans.map((s) => Number(s.dataset.token)));

/** Moves a slider as the keyboard would set it. */
const set = (page, name, value) =>
  page.$eval(`#knob-${name}`, (input, v) => {
    input.value = v;
    input.dispatchEvent(new Event("input", { bubbles: true }));
  }, value);

async function ready(page, url) {
  await page.goto(url, { waitUntil: "load" });
  await page.waitForFunction(() => document.getElementById("loading").hidden, { timeout: 240_000 });
  const message = await page.$eval("#message", (m) => (m.hidden ? "" : m.textContent));
  return message;
}

/** Starts over, types, presses Enter, and waits for the end. */
async function tell(page, prompt) {
  if (await page.$eval("#fresh", (b) => !b.disabled)) {
    await page.click("#fresh");
    await page.waitForFunction(() => document.getElementById("story").hidden);
  }
  await page.type("#prompt", prompt);
  await page.keyboard.press("Enter");
  await button(page, "Stop");
  await button(page, "Go on");
}

export async function pages(name) {
  const server = await serve({ "/": site, "/some/deep/folder/": site });
  const { page, problems, close } = await launch(name);
  const expected = readSafetensors(join(demo, "expected.safetensors"));
  const quiet = () => {
    assertEqual(problems.splice(0), [], "errors, warnings and requests elsewhere");
  };
  try {
    const gpu = `${server.url}?device=gpu`;
    if (!(await test(`${name}: first visit`, async () => {
      server.state.rate = 20_000_000;
      await page.goto(gpu, { waitUntil: "domcontentloaded" });
      await page.waitForFunction(() => document.getElementById("bar").value > 8e6);
      await shoot(page, `${name}-loading`);
      server.state.rate = 0;
      await page.waitForFunction(() => document.getElementById("loading").hidden);
      assertEqual(await page.$eval("#message", (m) => (m.hidden ? "" : m.textContent)), "", "message");
      await shoot(page, `${name}-start`);
      quiet();
    }))) return;

    for (const [i, prompt] of PROMPTS.entries()) {
      await test(`${name}: prompt ${i} gives the expected tokens`, async () => {
        const want = [...expected[`${i}.ids`].data];
        const length = expected[`${i}.prompt_len`].data[0];
        await set(page, "temperature", 0);
        await set(page, "repetitionPenalty", 1);
        await page.$eval("#knob-maxTokens", (input, n) => {
          input.min = input.step = 1;
          input.value = n;
          input.dispatchEvent(new Event("input", { bubbles: true }));
        }, want.length - length);
        await tell(page, prompt);
        assertEqual(await ids(page), want, "tokens");
        quiet();
      });
    }

    await test(`${name}: the memory, shaded text and a head`, async () => {
      await page.click("#shade label:nth-of-type(2)");
      await page.waitForFunction(() => document.querySelector("#story span:last-child").style.getPropertyValue("--s") !== "", { timeout: 60_000 });
      await shoot(page, `${name}-state`);
      await page.click("#heads button:nth-child(5)");
      await page.waitForSelector("#back:not([hidden])");
      await new Promise((r) => setTimeout(r, 300));
      await shoot(page, `${name}-head`);
      await page.click("#back");
      await page.click("#shade label:nth-of-type(1)");
      quiet();
    });

    await test(`${name}: stop, go on, again, rewind, bookmarks`, async () => {
      await page.$eval("#knob-maxTokens", (input) => {
        input.max = 2000;
        input.value = 600;
        input.dispatchEvent(new Event("input", { bubbles: true }));
      });
      await page.click("#fresh");
      await page.type("#prompt", PROMPTS[0]);
      await page.keyboard.press("Enter");
      await page.waitForFunction(() => document.querySelectorAll("#story span").length > 24, { timeout: 60_000 });
      await shoot(page, `${name}-generating`);
      await page.click("#go");
      await button(page, "Go on");
      const first = await ids(page);
      await page.$eval("#knob-maxTokens", (input) => {
        input.value = 16;
        input.dispatchEvent(new Event("input", { bubbles: true }));
      });
      await page.click("#go");
      await button(page, "Stop");
      await button(page, "Go on");
      const second = await ids(page);
      assertEqual(second.slice(0, first.length), first, "the story before");
      assertEqual(second.length, first.length + 16, "length");
      await page.click("#again");
      await button(page, "Stop");
      await button(page, "Go on");
      assertEqual(await ids(page), second, "greedy again");
      await page.click("#story span:nth-child(12)");
      await page.waitForSelector("#place:not([hidden])");
      await shoot(page, `${name}-word`);
      await page.click("#rewind");
      await page.waitForFunction(() => document.querySelectorAll("#story span").length === 12);
      await button(page, "Go on");
      await page.click("#go");
      await button(page, "Stop");
      await button(page, "Go on");
      assertEqual(await ids(page), second.slice(0, 28), "the same way again");
      await page.click("#bookmarks .go");
      await page.waitForFunction((n) => document.querySelectorAll("#story span").length === n, {}, second.length);
      assertEqual(await ids(page), second, "the bookmark");
      quiet();
    });

    await test(`${name}: second visit starts from storage`, async () => {
      server.log.length = 0;
      const start = performance.now();
      await page.goto(`${gpu}&prompt=Once+upon+a+time&maxTokens=16`);
      await page.waitForFunction(() => document.querySelector("#story span:not(.yours)"), { polling: 10, timeout: 120_000 });
      const seconds = (performance.now() - start) / 1000;
      assert(!server.log.some((l) => l.includes("model.safetensors")), "the weights were fetched again");
      await button(page, "Go on");
      quiet();
      return `first token after ${seconds.toFixed(2)} s`;
    });

    await test(`${name}: any folder, phone width, dark`, async () => {
      await page.setViewport({ width: 390, height: 844, deviceScaleFactor: 2 });
      await ready(page, `${server.url}some/deep/folder/?device=gpu&prompt=${encodeURIComponent(PROMPTS[3])}&maxTokens=48`);
      await button(page, "Go on");
      await shoot(page, `${name}-phone`);
      const wide = await page.evaluate(() => document.documentElement.scrollWidth > innerWidth);
      assert(!wide, "the page is wider than the phone");
      await page.click("#theme");
      await page.setViewport({ width: 1280, height: 800 });
      await new Promise((r) => setTimeout(r, 500));
      await shoot(page, `${name}-dark`);
      await page.click("#theme");
      quiet();
    });

    await test(`${name}: every control has a name`, async () => {
      const nameless = await page.$$eval("button, input, textarea, select, summary, [tabindex]", (all) =>
        all.filter((e) => {
          const label = e.labels?.length ? [...e.labels].map((l) => l.textContent).join("") : "";
          return !(e.getAttribute("aria-label") ?? e.getAttribute("title") ?? `${label}${e.textContent}`).trim();
        }).map((e) => e.outerHTML));
      assertEqual(nameless, [], "controls without a name");
    });

    await test(`${name}: the keyboard alone`, async () => {
      await ready(page, `${gpu}&maxTokens=16`);
      await page.focus("#prompt");
      await page.keyboard.type("A cat");
      await page.keyboard.press("Enter");
      await button(page, "Stop");
      await button(page, "Go on");
      await page.focus("#story");
      for (const key of ["End", "ArrowLeft", "ArrowLeft", "Enter"]) await page.keyboard.press(key);
      await page.waitForSelector("#place:not([hidden])");
      const length = (await ids(page)).length;
      await page.keyboard.press("Enter");
      await page.waitForFunction((n) => document.querySelectorAll("#story span").length === n, {}, length - 2);
      quiet();
    });

    await test(`${name}: a model that is not there`, async () => {
      const message = await ready(page, `${server.url}?device=gpu&model=nowhere/`);
      assert(message.includes("could not be fetched"), message);
      await shoot(page, `${name}-error`);
      // The browser itself reports the 404.
      problems.splice(0);
      await page.evaluate(() => [...document.querySelectorAll("#message button")].find((b) => b.textContent === "Load the demo model").click());
      await page.waitForFunction(() => document.getElementById("message").hidden && document.getElementById("loading").hidden, { timeout: 120_000 });
      await button(page, "Tell the story");
      quiet();
    });

    await test(`${name}: a download that breaks goes on where it broke`, async () => {
      await page.evaluate(async () => (await import("./js/index.js")).storage.remove());
      let breaks = 2;
      server.state.trouble = (path) => (path.endsWith("model.safetensors") && breaks-- > 0 ? 8_000_000 : undefined);
      server.log.length = 0;
      assertEqual(await ready(page, gpu), "", "message");
      const asked = server.log.filter((l) => l.includes("model.safetensors"));
      assert(asked.length === 3 && asked.slice(1).every((l) => /bytes=\d{7,}-$/.test(l)), asked.join("; "));
      problems.splice(0);
    });
  } finally {
    await close();
    server.close();
  }
}

/** The JavaScript package inside a page: numbers, operators, lifetimes. */
export async function packages(name) {
  const { cases, compare, pack, UNPACK } = await import("./goldens.mjs");
  const { golden, tests } = await import("./harness.mjs");
  const server = await serve({ "/": site, "/golden/": golden, "/tests/": tests });
  const { page, problems, close } = await launch(name);
  const expected = readSafetensors(join(demo, "expected.safetensors"));
  try {
    await page.goto(`${server.url}js/example.html`);
    await test(`${name}: the example of ten lines`, async () => {
      await page.waitForFunction(() => document.getElementById("story").textContent.length > 60, { timeout: 120_000 });
    });
    await page.goto(`${server.url}tests/blank.html`);
    problems.splice(0);

    await test(`${name}: logits`, async () => {
      let worst = 0;
      for (let i = 0; i < 4; i++) {
        const want = [...expected[`${i}.ids`].data];
        const length = expected[`${i}.prompt_len`].data[0];
        const [prompt, last] = await page.evaluate(async (all, n) => {
          const { load } = await import("/js/index.js");
          globalThis.session ??= await load("/models/stories-17m/files.json", { device: "gpu" });
          await session.reset();
          await session.feed(all.slice(0, n));
          const first = [...(await session.logits())];
          await session.feed(all.slice(n));
          return [first, [...(await session.logits())]];
        }, want, length);
        worst = Math.max(worst, assertClose(prompt, expected[`${i}.logits_prompt`].data, 2e-5, `${i} logits_prompt`));
        worst = Math.max(worst, assertClose(last, expected[`${i}.logits_last`].data, 2e-5, `${i} logits_last`));
      }
      await page.evaluate(() => session.dispose());
      return `within ${worst.toExponential(1)}`;
    });

    for (const c of cases()) {
      await test(`${name}: ${c.name}`, async () => {
        let worst = 0;
        for (const form of ["recurrent", "chunk"]) {
          const got = await page.evaluate(async (f, rule, text, unpack) => {
            const { operators } = await import("/js/index.js");
            const result = await operators[f](rule, { ...eval(unpack)(text), device: "gpu" });
            return { o: [...result.o], finalState: [...result.finalState] };
          }, form, c.rule, pack(c.call), UNPACK);
          worst = Math.max(worst, compare(c, form, got));
        }
        return `within ${worst.toExponential(1)}`;
      });
    }

    await test(`${name}: a lost device in mid-story`, async () => {
      const want = [...expected["0.ids"].data];
      const length = expected["0.prompt_len"].data[0];
      const result = await page.evaluate(async (n) => {
        const { debug, load } = await import("/js/index.js");
        const session = await load("/models/stories-17m/files.json", { device: "gpu" });
        const events = [];
        session.onDevice(({ type }) => events.push(type));
        const got = [];
        for await (const { token } of session.generate("Once upon a time", { temperature: 0, maxTokens: n })) {
          got.push(token);
          if (got.length === 20) await debug.loseDevice();
        }
        const left = await session.dispose();
        return { got, events, left };
      }, want.length - length);
      assertEqual(result.events, ["lost", "recovered"], "events");
      assertEqual(result.got, want.slice(length), "tokens");
      assertEqual(result.left, 0, "bytes left");
      problems.splice(0);
    });

    await test(`${name}: a hundred rounds leave nothing behind`, async () => {
      const result = await page.evaluate(async () => {
        const { load, open } = await import("/js/index.js");
        await open("gpu");
        const used = async () => {
          if (performance.measureUserAgentSpecificMemory && crossOriginIsolated) {
            return (await performance.measureUserAgentSpecificMemory()).bytes;
          }
          return performance.memory?.usedJSHeapSize ?? 0;
        };
        const rounds = [];
        let before;
        for (let i = 0; i < 105; i++) {
          if (i === 5) before = await used();
          const session = await load("/golden/checkpoints/fla-gated_deltanet-tiny/", { device: "gpu", store: false });
          for await (const _ of session.generate([1, 2, 3], { maxTokens: 8 }).batches());
          rounds.push(await session.dispose());
        }
        return { rounds, growth: (await used()) - before };
      });
      assert(result.rounds.every((n) => n === 0), `live bytes: ${result.rounds}`);
      assert(result.growth < 100 * 0.2e6, `the page grew by ${result.growth} bytes`);
      problems.splice(0);
      return `${(result.growth / 1e5).toFixed(1)} kB a round`;
    });
  } finally {
    await close();
    server.close();
  }
}

