// Words that are in no story yet: typed, or being read, when a visit ends. In every installed browser.

import { join } from "node:path";
import { launch } from "./browsers.mjs";
import { assert, assertEqual, demo, serve, shoot, site, test } from "./harness.mjs";
import { able, button, greedy, ids, length, ready, tell } from "./reader.mjs";
import { readSafetensors } from "./safetensors.mjs";

export async function drafts(name) {
  const server = await serve({ "/": site });
  const { page, problems, close } = await launch(name);
  const expected = readSafetensors(join(demo, "expected.safetensors"));
  const prompt = expected["0.prompt_len"].data[0];
  const want = [...expected["0.ids"].data];
  const quiet = () => assertEqual(problems.splice(0), [], "errors, warnings and requests elsewhere");
  const cpu = `${server.url}?device=cpu`;

  try {
    await test(`${name}: words that are typed, or being read, outlive a visit`, async () => {
      const box = () => page.$eval("#prompt", (b) => b.value);
      const fill = (text) => page.$eval("#prompt", (b, t) => {
        b.value = t;
        b.dispatchEvent(new Event("input", { bubbles: true }));
      }, text);
      const offered = () => page.$eval("#resume", (b) => (b.hidden ? "" : b.textContent));
      const offer = (pattern) => page.waitForFunction((p) => new RegExp(p).test(document.getElementById("resume").textContent), {}, pattern);
      const empty = async () => {
        if (await able(page, "fresh")) await page.click("#fresh");
        await page.waitForFunction(() => document.getElementById("story").hidden);
        await button(page, "Tell the story");
      };
      await ready(page, cpu);
      await greedy(page, 4);
      await tell(page, "Another");
      await empty();

      // Without a story they are in the box again, before there is a model.
      await page.type("#prompt", "A draft");
      await page.goto(cpu, { waitUntil: "domcontentloaded" });
      await page.waitForFunction(() => document.getElementById("prompt").value === "A draft");
      await ready(page, cpu);
      assertEqual(await box(), "A draft", "the box");
      await button(page, "Tell the story");
      await fill("");
      await ready(page, cpu);
      assertEqual(await box(), "", "the box, emptied");

      // Words that are being read, of a story that has not begun.
      const long = "The fox ran over the hill and into the woods. ".repeat(200);
      const reading = async (text) => {
        await fill(text);
        await page.focus("#prompt");
        await page.keyboard.press("Enter");
        await page.waitForFunction(() => /^Reading /.test(document.getElementById("speed").textContent), { timeout: 20_000 });
      };
      await reading(long);
      await page.type("#prompt", "And more");
      await ready(page, cpu);
      assertEqual(await box(), `${long} And more`, "the box after a reload while the first words were read");
      await fill("");

      // With a story, they are offered with it.
      await greedy(page, 8);
      await tell(page, "Once upon a time");
      await page.type("#prompt", "Then the fox");
      await page.waitForFunction(async () => (await import("./library.js")).library.works);
      await new Promise((r) => setTimeout(r, 1000));
      await ready(page, cpu);
      assertEqual(await box(), "", "the box before its story is back");
      await offer("Then the fox");
      for (const [width, height] of [[1280, 800], [390, 844], [320, 568]]) {
        await page.setViewport({ width, height });
        await shoot(page, `${name}-draft-${width}`);
      }
      await page.setViewport({ width: 1280, height: 800 });
      await page.type("#prompt", "laughed.");
      await page.click("#resume");
      await length(page, prompt + 8);
      await button(page, "Add and go on");
      assertEqual([await ids(page), await box()], [want.slice(0, prompt + 8), "Then the fox laughed."], "the story and the box");

      // The same while they are read; what is stopped is in the box, and once only.
      await fill("");
      await reading(long);
      await ready(page, cpu);
      await offer("into the woods");
      await page.click("#resume");
      await length(page, prompt + 8);
      await button(page, "Add and go on");
      assertEqual(await box(), long, "the box");
      await reading(long);
      await page.keyboard.press("Escape");
      await button(page, "Add and go on");
      await ready(page, cpu);
      await offer("into the woods");
      await page.click("#resume");
      await button(page, "Add and go on");
      assertEqual(await box(), long, "the box");

      // What the story has is in the box no more, from its first word on.
      await fill("He saw a cat");
      await greedy(page, 600);
      await page.focus("#prompt");
      await page.keyboard.press("Enter");
      await length(page, prompt + 14, ">");
      await ready(page, cpu);
      await offer("tokens");
      assert(!/He saw a cat$/.test(await offered()), await offered());
      await page.click("#resume");
      await button(page, "Go on");
      assertEqual(await box(), "", "the box");
      assert((await page.$eval("#story", (s) => s.textContent)).includes("He saw a cat"), "the words are not in the story");
      await empty();
      await ready(page, cpu);
      assertEqual(await box(), "", "the box");
      assertEqual(await page.evaluate(() => localStorage.getItem("deltanet.drafts")), "{}", "drafts that are left");
      quiet();
    });
  } finally {
    await close();
    server.close();
  }
}
