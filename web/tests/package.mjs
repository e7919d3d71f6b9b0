// The JavaScript package inside a page of its own: numbers, operators, lifetimes. In every installed browser.

import { join } from "node:path";
import { launch } from "./browsers.mjs";
import { cases, compare, pack, UNPACK } from "./goldens.mjs";
import { assert, assertClose, assertEqual, demo, golden, serve, site, test, tests } from "./harness.mjs";
import { readSafetensors } from "./safetensors.mjs";

export async function packages(name) {
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

    await test(`${name}: ${cases().length} golden cases of the operators`, async () => {
      let worst = 0;
      for (const c of cases()) {
        const got = await page.evaluate(async (rule, text, unpack) => {
          const { operators } = await import("/js/index.js");
          const call = { ...eval(unpack)(text), device: "gpu" };
          const plain = ({ o, finalState, finalSums }) => ({ o: [...o], finalState: [...finalState], finalSums: [...finalSums] });
          return { recurrent: plain(await operators.recurrent(rule, call)), chunk: plain(await operators.chunk(rule, call)) };
        }, c.rule, pack(c.call), UNPACK);
        for (const form of ["recurrent", "chunk"]) worst = Math.max(worst, compare(c, form, got[form]));
      }
      return `each within its tolerance, the worst ${worst.toExponential(1)}`;
    });

    await test(`${name}: the GPU's picture is that of its pixels`, async () => {
      // Firefox on a software driver may crash when the GPU draws on a canvas itself.
      const direct = name === "chromium";
      const { shades, said } = await page.evaluate(async (direct) => {
        const { load } = await import("/js/index.js");
        const session = await load("/golden/checkpoints/fla-gated_deltanet-tiny/", { device: "gpu", store: false });
        await session.feed([1, 2, 3]);
        const [shades, said] = [[], []];
        for (const way of direct ? [true, false] : [false]) {
          const canvas = document.createElement("canvas");
          document.body.append(canvas);
          const view = await session.view(canvas, { direct: way });
          await view.show({ session, width: 64, height: 128 });
          await new Promise((r) => setTimeout(r, 500));
          const copy = Object.assign(document.createElement("canvas"), { width: 64, height: 128 }).getContext("2d");
          copy.drawImage(canvas, 0, 0);
          shades.push([...copy.getImageData(0, 0, 64, 128).data]);
          const words = (options) => view.show({ width: 64, height: 128, ...options }).then(() => "shown", (e) => `${e.code}: ${e.message}`);
          said.push(await words({ hieght: 9 }), await words({ layer: 0 }), await words({ layer: 0, head: 0 }));
          await view.detach();
        }
        await session.dispose();
        return { shades, said };
      }, direct);
      assertEqual(said.slice(0, 3), [
        "argument: options: expected height, or another of session, width, layer, head, dark, gain, gap, got \"hieght\"",
        "argument: head: expected a number beside layer, got nothing",
        "shown",
      ], "what is said of options");
      for (const shade of shades) assert(new Set(shade).size > 20, `${new Set(shade).size} shades`);
      const off = direct ? Math.max(...shades[0].map((x, i) => Math.abs(x - shades[1][i]))) : 0;
      assert(off <= 2, `pixels differ by ${off}`);
      problems.splice(0);
    });

    await test(`${name}: a picture of a session that ends, and on a device that is lost`, async () => {
      const result = await page.evaluate(async () => {
        const { debug, load } = await import("/js/index.js");
        const options = { device: "gpu", store: false };
        const first = await load("/golden/checkpoints/fla-gated_deltanet-tiny/", options);
        const place = async (session) => {
          const canvas = document.createElement("canvas");
          document.body.append(canvas);
          return [canvas, await session.view(canvas, { direct: false })];
        };
        const [, early] = await place(first);
        const shown = early.show({ session: first, width: 640, height: 640 });
        const left = await Promise.all([first.dispose(), first.dispose(), shown]);

        const session = await load("/golden/checkpoints/fla-gated_deltanet-tiny/", options);
        await session.feed([1, 2, 3]);
        const events = [];
        session.onDevice(({ type }) => events.push(type));
        const [canvas, view] = await place(session);
        await debug.loseDevice();
        await view.show({ session, width: 64, height: 128 });
        await new Promise((r) => setTimeout(r, 500));
        const copy = Object.assign(document.createElement("canvas"), { width: 64, height: 128 }).getContext("2d");
        copy.drawImage(canvas, 0, 0);
        const shades = new Set(copy.getImageData(0, 0, 64, 128).data).size;
        await view.detach();
        return { left: left.slice(0, 2), events, shades, end: await session.dispose() };
      });
      assertEqual(result.left, [0, 0], "bytes left");
      assertEqual(result.events, ["lost", "recovered"], "events");
      assert(result.shades > 20, `${result.shades} shades`);
      assertEqual(result.end, 0, "bytes left in the end");
      problems.splice(0);
    });

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
          if (got.length === 5) await debug.loseDevice();
        }
        const left = await session.dispose();
        return { got, events, left };
      }, 14);
      assertEqual(result.events, ["lost", "recovered"], "events");
      assertEqual(result.got, want.slice(length, length + 14), "tokens");
      assertEqual(result.left, 0, "bytes left");
      problems.splice(0);
    });

    for (const device of ["cpu", "gpu"]) {
      await test(`${name}: a prompt that is aborted, or loses its device, while it is read (${device})`, async () => {
        const result = await page.evaluate(async (device) => {
          const { debug, load } = await import("/js/index.js");
          const session = await load("/models/stories-17m/files.json", { device });
          const long = Uint32Array.from({ length: 200 }, (_, i) => 10 + ((i * 7919) % 3000));
          const worst = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
          await session.feed("Once upon a time");
          const [tokens, logits] = [await session.tokens(), await session.logits()];
          // What comes back when something happens after the first piece.
          const disturbed = (happens, signal) => {
            let once = true;
            const onProgress = ({ read }) => {
              if (read > 0 && once) happens();
              if (read > 0) once = false;
            };
            return session.feed(long, { onProgress, signal });
          };
          const abort = new AbortController();
          const aborted = await disturbed(() => abort.abort(), abort.signal).then(() => "fed", (e) => e.name);
          const length = (await session.tokens()).length - tokens.length;
          const off = worst(await session.logits(), logits);
          let busy;
          for await (const _ of session.generate(undefined, { maxTokens: 2 })) busy = await session.save().catch((e) => e.code);
          await session.reset();
          await session.feed(long);
          const whole = await session.logits();
          await session.reset();
          if (device === "gpu") await disturbed(() => debug.loseDevice());
          else await session.feed(long);
          const lost = worst(await session.logits(), whole);
          return { aborted, length, off, busy, lost, left: await session.dispose() };
        }, device);
        problems.splice(0);
        assertEqual({ ...result, lost: result.lost < 1e-3 }, { aborted: "AbortError", length: 0, off: 0, busy: "busy", lost: true, left: 0 }, "what happened");
      });
    }

    await test(`${name}: a hundred rounds leave nothing behind`, async () => {
      const result = await page.evaluate(async () => {
        const { debug, load, open } = await import("/js/index.js");
        await open("gpu");
        // The module's memory, and this thread's where the browser tells.
        const used = async () => (await debug.moduleBytes()) + (performance.memory?.usedJSHeapSize ?? 0);
        const rounds = [];
        let before;
        for (let i = 0; i < 105; i++) {
          if (i === 5) before = await used();
          const session = await load("/golden/checkpoints/fla-gated_deltanet-tiny/", { device: "gpu", store: false });
          for await (const _ of session.generate([1, 2, 3], { maxTokens: 4 }).batches());
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
