// No WebGPU, a GPU that is too small, full, or goes away; storage that is full: what the page does then.

import { join } from "node:path";
import { UNTRUSTED, launch } from "./browsers.mjs";
import { assert, assertEqual, demo, serve, shoot, site, skip, test, tests } from "./harness.mjs";
import { button, greedy, ids, length, message, ready, tell, written } from "./reader.mjs";
import { readSafetensors } from "./safetensors.mjs";

/** Changes what the Worker of a page that loads nothing by itself sees of WebGPU; undefined where tests cannot. */
async function worker(page) {
  await page.evaluate(async () => (await import("/js/index.js")).open("cpu"));
  for (let i = 0; i < 50 && page.workers().length === 0; i++) await new Promise((r) => setTimeout(r, 100));
  const [found] = page.workers();
  try {
    await found?.evaluate(() => 1);
    return found;
  } catch {
    return undefined;
  }
}

export async function trouble(name) {
  const expected = readSafetensors(join(demo, "expected.safetensors"));
  const prompt = expected["0.prompt_len"].data[0];
  const all = [...expected["0.ids"].data];
  const want = all.slice(0, prompt + 14);
  const server = await serve({ "/": site, "/tests/": tests });

  /** Tells a story, takes the GPU away in its midst, and waits for its end; what the page heard of it. */
  const interrupted = async (page) => {
    await page.evaluate(async () => {
      globalThis.deaf?.();
      globalThis.heard = [];
      globalThis.deaf = (await import("./app.js")).app.session.onDevice(({ type }) => heard.push(type));
    });
    await page.type("#prompt", "Once upon a time");
    await page.keyboard.press("Enter");
    await length(page, prompt + 4, ">");
    await page.evaluate(async () => (await import("./js/index.js")).debug.loseDevice());
    await written(page);
    // What browsers say about a lost device is theirs to say.
    problems.splice(0);
    return page.evaluate(() => heard);
  };

  const without = await launch(name, { webgpu: false });
  try {
    await test(`${name}: without WebGPU the processor tells the same story`, async () => {
      const shown = await ready(without.page, server.url);
      assert(name === "firefox" ? /no WebGPU/.test(shown) : /offers no graphics processor/.test(shown), shown);
      await shoot(without.page, `${name}-without-webgpu`);
      await greedy(without.page, 14);
      await tell(without.page, "Once upon a time");
      assertEqual(await ids(without.page), want, "tokens");
      assertEqual(without.problems.splice(0), [], "errors, warnings and requests elsewhere");
    });

    if (name === "chromium") {
      await test(`${name}: an address that browsers do not trust`, async () => {
        const shown = await ready(without.page, server.url.replace("127.0.0.1", UNTRUSTED));
        assert(/no WebGPU.* https and localhost only/.test(shown), shown);
        await greedy(without.page, 14);
        await tell(without.page, "Once upon a time");
        assertEqual(await ids(without.page), want, "tokens");
        assertEqual(without.problems.splice(0), [], "errors, warnings and requests elsewhere");
      });
    }
  } finally {
    await without.close();
  }

  const { page, problems, close } = await launch(name);
  const quiet = () => assertEqual(problems.splice(0), [], "errors, warnings and requests elsewhere");
  try {
    await test(`${name}: a GPU that is only imitated is left alone, and the page says so`, async () => {
      const shown = await ready(page, server.url);
      assert(/Running on the processor/.test(shown) && /imitates/.test(shown), shown);
      await greedy(page, 8);
      await tell(page, "Once upon a time");
      assertEqual(await ids(page), want.slice(0, prompt + 8), "tokens");
      quiet();
    });

    await test(`${name}: the GPU goes away in mid-story`, async () => {
      await ready(page, `${server.url}?device=gpu`);
      // More than the steps that are under way at once.
      await greedy(page, all.length - prompt);
      assertEqual(await interrupted(page), ["lost", "recovered"], "events");
      assertEqual(await ids(page), all, "tokens");
      assertEqual(await message(page), "", "message");
    });

    await test(`${name}: the GPU goes away for good, and the processor goes on`, async () => {
      await ready(page, `${server.url}?device=gpu`);
      try {
        await page.workers()[0].evaluate(() => {
          navigator.gpu.requestAdapter = async () => null;
        });
      } catch {
        return skip(`${name}: the GPU goes away for good`, "this browser's Workers cannot be reached");
      }
      await greedy(page, all.length - prompt);
      assertEqual(await interrupted(page), ["lost", "recovered"], "events");
      assertEqual(await ids(page), all, "tokens");
      assert(/Running on the processor/.test(await message(page)), await message(page));
    });

    for (const [what, word, change] of [
      ["too small", /^the GPU: .* needs /, () => {
        for (const limit of ["maxStorageBufferBindingSize", "maxBufferSize"]) {
          Object.defineProperty(GPUSupportedLimits.prototype, limit, { get: () => 1 << 20 });
        }
      }],
      ["full", /memory/, () => {
        const make = GPUDevice.prototype.createBuffer;
        GPUDevice.prototype.createBuffer = function (descriptor) {
          if (descriptor.size > 100_000) {
            const error = new GPUOutOfMemoryError("no room");
            queueMicrotask(() => this.dispatchEvent(new GPUUncapturedErrorEvent("uncapturederror", { error })));
          }
          return make.call(this, descriptor);
        };
      }],
    ]) {
      await test(`${name}: with a GPU that is ${what} the processor takes over`, async () => {
        await page.goto(`${server.url}tests/blank.html`);
        const thread = await worker(page);
        if (!thread) return skip(`${name}: a GPU that is ${what}`, "this browser's Workers cannot be reached");
        await thread.evaluate(() => void Object.defineProperty(GPUAdapterInfo.prototype, "isFallbackAdapter", { get: () => false }));
        await thread.evaluate(change);
        const info = await page.evaluate(async () => {
          const session = await (await import("/js/index.js")).load("/models/stories-17m/files.json");
          const { engine, note } = session.info;
          await session.dispose();
          return { engine, note };
        });
        assertEqual(info.engine, "cpu", "engine");
        assert(word.test(info.note), info.note);
        problems.splice(0);
        return info.note;
      });
    }

    if (name === "chromium") {
      await test(`${name}: storage that is too small`, async () => {
        await page.evaluate(async () => (await import("/js/index.js")).storage.remove());
        const cdp = await page.createCDPSession();
        const origin = new URL(server.url).origin;
        await cdp.send("Storage.overrideQuotaForOrigin", { origin, quotaSize: 10_000_000 });
        assertEqual(await ready(page, `${server.url}?device=cpu`), "", "message");
        const kept = await page.evaluate(async () => (await import("./js/index.js")).storage.list());
        const bytes = kept.reduce((n, m) => n + m.bytes, 0);
        assert(bytes < 10_000_000, `${bytes} bytes are kept`);
        await button(page, "Tell the story");
        await cdp.send("Storage.overrideQuotaForOrigin", { origin });
        quiet();
        return `${bytes} bytes are kept`;
      });
    }
  } finally {
    await close();
    server.close();
  }
}
