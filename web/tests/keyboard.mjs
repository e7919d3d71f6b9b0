// The page without a pointer: where the focus goes; the seed; and buttons that stay where they are on a phone.

import { launch } from "./browsers.mjs";
import { assert, assertEqual, serve, shoot, site, test } from "./harness.mjs";
import { button, ids, length, message, ready, set, tell, written } from "./reader.mjs";

export async function keyboards(name) {
  const server = await serve({ "/": site });
  const { page, problems, close } = await launch(name);
  const quiet = () => assertEqual(problems.splice(0), [], "errors, warnings and requests elsewhere");
  const cpu = `${server.url}?device=cpu`;
  const focus = () => page.evaluate(() => {
    const { id, className, title, textContent, tagName } = document.activeElement;
    return id || className || title || textContent || tagName;
  });
  /** On touch screens a box for words would bring a keyboard up. Browsers without a screen may have neither. */
  const home = () => page.evaluate(() => (matchMedia("(hover: hover)").matches ? "prompt" : "go"));
  const press = async (selector, key = "Enter") => {
    await page.focus(selector);
    await page.keyboard.press(key);
  };
  const hidden = (selector) => page.waitForFunction((s) => document.querySelector(s).hidden, {}, selector);
  const rest = () => button(page, "Go on");

  try {
    await test(`${name}: the focus stays at hand`, async () => {
      await ready(page, `${cpu}&maxTokens=16`);
      await press("#openings button");
      await written(page);
      assertEqual(await focus(), await home(), "after an opening");
      await press("#again");
      await written(page);
      assertEqual(await focus(), "again", "after Again");

      // What can be done at a word.
      const place = async () => {
        await page.focus("#story");
        for (const key of ["Home", "ArrowRight", "ArrowRight", "Enter"]) await page.keyboard.press(key);
        await page.waitForSelector("#place:not([hidden])");
        assertEqual(await focus(), "rewind", "at a word");
      };
      const at = () => page.evaluate(() => [...document.querySelectorAll("#story span")].findIndex((s) => s.matches(".cursor")));
      await place();
      await page.keyboard.press("Escape");
      assertEqual(await focus(), "story", "after Escape from a word");
      assertEqual(await at(), 2, "the word");
      await place();
      await page.keyboard.down("Shift");
      await page.keyboard.press("Tab");
      await page.keyboard.up("Shift");
      await hidden("#place");
      assertEqual([await focus(), await at()], ["story", 2], "after Tab backwards");
      await place();
      await page.keyboard.press("Tab");
      assertEqual(await focus(), "bookmark", "after Tab");
      await page.keyboard.press("Tab");
      await hidden("#place");
      assertEqual([await focus(), await at()], ["prompt", -1], "after Tab out of the word");
      for (const steps of [1, 3]) {
        await page.focus("#story");
        await page.keyboard.press("Home");
        for (let i = 0; i < steps; i++) await page.keyboard.press("ArrowRight");
        for (const key of ["Enter", "Tab", "Enter"]) await page.keyboard.press(key);
        await rest();
        assertEqual(await focus(), "story", "after Bookmark");
      }

      // Bookmarks.
      await press("#bookmarks li:last-child .go");
      await length(page, 2);
      await rest();
      const row = () => page.evaluate(() => [...document.querySelectorAll("#bookmarks button")].indexOf(document.activeElement));
      assertEqual(await row(), 4, "after a return to a bookmark (in the third row: what was left is kept above)");
      await press("#bookmarks li:first-child button:last-child");
      await page.waitForFunction(() => document.querySelectorAll("#bookmarks li").length === 2);
      assertEqual(await row(), 1, "after the first of three bookmarks went");
      await page.keyboard.press("Enter");
      await page.keyboard.press("Enter");
      await hidden("#places");
      assertEqual(await focus(), await home(), "after the last bookmark went");

      // The memory.
      await press("#heads button:first-child");
      await page.waitForSelector("#back:not([hidden])");
      assertEqual(await focus(), "back", "a head");
      await page.keyboard.press("Escape");
      await hidden("#back");
      assertEqual(await focus(), "Layer 1, head 1", "after Escape from a head");

      await press("#fresh");
      await hidden("#story");
      await button(page, "Tell the story");
      assertEqual(await focus(), "prompt", "after New story");
      quiet();
    });

    await test(`${name}: the focus after messages and what is removed`, async () => {
      await page.evaluate(async () => (await import("./loading.js")).start([new File(["x"], "letter.txt")], "cpu"));
      await press("#message button:last-child");
      await hidden("#message");
      assertEqual(await focus(), await home(), "after Dismiss");
      await page.$eval("#files", (e) => (e.open = true));
      await page.waitForSelector("#stored button");
      await press("#stored button");
      await page.waitForFunction(() => !document.querySelector("#stored button"));
      assertEqual(await focus(), "Stories and models", "after the last model went");
      quiet();
    });

    await test(`${name}: the seed that is typed is the seed`, async () => {
      await ready(page, `${cpu}&maxTokens=16&temperature=1`);
      await page.$eval("#settings", (e) => (e.open = true));
      const seed = () => page.$eval("#knob-seed", (e) => e.value);
      const fixed = () => page.$eval("#knob-fixed", (e) => e.checked);
      const type = async (value) => {
        await page.focus("#knob-seed");
        await page.$eval("#knob-seed", (e) => e.select());
        await page.keyboard.type(value);
      };
      assertEqual(await fixed(), false, "Keep it");
      await type("42");
      await tell(page, "Once");
      assertEqual([await seed(), await fixed()], ["42", true], "the seed");
      const first = await ids(page);
      await tell(page, "Once");
      assertEqual(await ids(page), first, "the same seed");
      await page.click("#again");
      await written(page);
      assert(JSON.stringify(await ids(page)) !== JSON.stringify(first), "Again wrote the same words");
      assertEqual(await fixed(), true, "Keep it");
      for (const [typed, taken] of [["-5", "0"], ["4294967296", "4294967295"], ["4294967295", "4294967295"]]) {
        await type(typed);
        const wrong = await page.$eval("#knob-seed", (e) => e.getAttribute("aria-invalid"));
        assertEqual(wrong, String(typed !== taken), `whether ${typed} is wrong`);
        await page.focus("#prompt");
        assertEqual(await seed(), taken, typed);
        const word = await page.$eval("#seed-text", (e) => e.textContent);
        assertEqual(word.includes(`${typed} became ${taken}`), typed !== taken, `the word about ${typed}: ${word}`);
      }
      // Where chance has no say, the page says so.
      await set(page, "temperature", 0);
      await tell(page, "Once");
      await page.click("#again");
      await page.waitForSelector("#message:not([hidden])");
      assert(/same words again/.test(await message(page)), await message(page));
      quiet();
    });

    await test(`${name}: where the browser copies nothing, the text can be`, async () => {
      await ready(page, `${cpu}&maxTokens=16`);
      await tell(page, "Once");
      const story = await page.$eval("#story", (s) => s.textContent);
      const refuse = (how) => page.evaluate((h) => {
        const clipboard = h === "none" ? undefined : { writeText: async () => {
          throw new DOMException("denied", "NotAllowedError");
        } };
        Object.defineProperty(navigator, "clipboard", { value: clipboard, configurable: true });
      }, how);
      for (const how of ["denied", "none"]) {
        await refuse(how);
        await page.click("#copy");
        await page.waitForSelector("#message:not([hidden]) textarea");
        assert(/does not let the page copy/.test(await message(page)), await message(page));
        const selected = await page.evaluate(() => {
          const { value, selectionStart, selectionEnd } = document.activeElement;
          return value.slice(selectionStart, selectionEnd);
        });
        assertEqual(selected, story, "what is selected");
        if (how === "denied") {
          for (const [width, height] of [[1280, 800], [390, 844], [320, 568]]) {
            await page.setViewport({ width, height });
            await shoot(page, `${name}-copy-${width}`);
            assert(!(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)), `the page is wider than ${width} pixels`);
          }
          await page.setViewport({ width: 1280, height: 800 });
        }
        await page.keyboard.down("Control");
        await page.keyboard.press("c");
        await page.keyboard.up("Control");
        await hidden("#message");
        assertEqual(await page.$eval("#status", (s) => s.textContent), "Copied.", "what is said");
      }
      // With the browser's leave nothing is asked.
      await page.evaluate(() => Object.defineProperty(navigator, "clipboard", {
        value: { writeText: async (text) => void (globalThis.copied = text) },
      }));
      await page.click("#copy");
      await page.waitForFunction((t) => globalThis.copied === t && document.getElementById("copy").textContent === "Copied", {}, story);
      quiet();
    });

    await test(`${name}: on a phone the buttons stay where they are`, async () => {
      // (With a scrollbar that takes room, in browsers that have one.)
      for (const [width, height, what] of [[390, 844, "phone"], [361, 640, "small"], [320, 568, "narrow"]]) {
        await page.setViewport({ width, height, deviceScaleFactor: 2 });
        await ready(page, `${cpu}&maxTokens=96`);
        const top = () => page.$eval("#go", (e) => Math.round(e.getBoundingClientRect().top));
        const welcome = await top();
        await page.click("#go");
        const tops = [];
        for (const tokens of [8, 32, 64, 90]) {
          await length(page, tokens, ">");
          tops.push(await top());
        }
        assertEqual(tops, tops.map(() => welcome), "the button's place");
        assert(welcome > 0.8 * height, `the button is ${welcome} pixels down`);
        await rest();
        const rows = () => page.$$eval(".actions button", (all) => new Set(all.map((b) => b.getBoundingClientRect().top)).size);
        assertEqual(await rows(), 1, `rows of buttons at ${width} pixels`);
        // The longest that the first one says.
        await page.type("#prompt", "And");
        await button(page, "Add and go on");
        assertEqual(await rows(), 1, `rows of buttons at ${width} pixels, with words to add`);
        const cut = await page.$$eval(".actions button", (all) => all.filter((b) => b.scrollWidth > b.clientWidth).map((b) => b.textContent));
        assertEqual(cut, [], `names that are cut off at ${width} pixels`);
        assert(!(await page.evaluate(() => document.documentElement.scrollWidth > innerWidth)), `the page is wider than ${width} pixels`);
        await shoot(page, `${name}-${what}-story`);
      }
      quiet();
    });
  } finally {
    await close();
    server.close();
  }
}
