// Starts the browsers that are installed, with WebGPU on a software adapter.
//
// Chromium runs on SwiftShader and Firefox on lavapipe: two implementations of WebGPU (Dawn, wgpu) on two drivers.

import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import puppeteer from "puppeteer-core";

/** A name of this machine that browsers do not trust as they trust 127.0.0.1: there pages get no WebGPU. */
export const UNTRUSTED = "deltanet.test";

const CHROMIUM_FLAGS = [
  "--no-sandbox",
  // Containers give /dev/shm little room.
  "--disable-dev-shm-usage",
  `--host-resolver-rules=MAP ${UNTRUSTED} 127.0.0.1`,
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

// Without the Vulkan and ANGLE flags compute works, but a canvas in a Worker cannot be drawn on.
const CHROMIUM_WEBGPU = ["--enable-unsafe-webgpu", "--enable-features=Vulkan", "--use-vulkan=swiftshader", "--use-angle=swiftshader"];

const FIREFOX_PREFS = {
  "dom.webgpu.enabled": true,
  "dom.webgpu.workers.enabled": true,
  "gfx.webgpu.ignore-blocklist": true,
};

const PROGRAMS = {
  chromium: ["chromium", "chromium-browser", "google-chrome", "chrome"],
  firefox: ["firefox-esr", "firefox"],
};
const MAC = {
  chromium: "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  firefox: "/Applications/Firefox.app/Contents/MacOS/firefox",
};

/** The names of the browsers that tests run in. */
export const names = Object.keys(PROGRAMS);

/** Path of an installed browser, or undefined. */
export function find(name) {
  const folders = (process.env.PATH ?? "").split(delimiter);
  const suffix = process.platform === "win32" ? ".exe" : "";
  const found = PROGRAMS[name].flatMap((p) => folders.map((f) => join(f, p + suffix))).find((p) => existsSync(p));
  return found ?? (existsSync(MAC[name]) ? MAC[name] : undefined);
}

/** lavapipe's driver file on Linux. */
export function lavapipe() {
  for (const folder of ["/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d"]) {
    const file = existsSync(folder) && readdirSync(folder).find((f) => f.startsWith("lvp_icd"));
    if (file) return join(folder, file);
  }
  return undefined;
}

/**
 * Starts a browser with a fresh profile and opens a page that remembers what went wrong in it.
 *
 * @param {"chromium" | "firefox"} name
 * @param {{width?: number, height?: number, webgpu?: boolean}} [options] `webgpu: false`: Firefox without
 *   WebGPU, Chromium with one that has no adapter
 * @returns {Promise<{browser: import("puppeteer-core").Browser, page: import("puppeteer-core").Page,
 *   problems: string[], close: () => Promise<void>}>} `problems`: console errors and warnings, uncaught exceptions and
 *   requests to any other origin than the page's own.
 */
export async function launch(name, { width = 1280, height = 800, webgpu = true } = {}) {
  const executablePath = find(name);
  if (!executablePath) throw new Error(`${name} is not installed`);
  const profile = mkdtempSync(join(tmpdir(), `deltanet-${name}-`));
  const common = { executablePath, headless: true, userDataDir: profile, timeout: 120_000, protocolTimeout: 300_000, dumpio: Boolean(process.env.DUMPIO) };
  const icd = lavapipe();
  const browser = await puppeteer.launch(
    name === "firefox"
      ? {
          ...common,
          browser: "firefox",
          extraPrefsFirefox: { ...FIREFOX_PREFS, "dom.webgpu.enabled": webgpu },
          env: icd ? { ...process.env, VK_DRIVER_FILES: icd, VK_ICD_FILENAMES: icd } : process.env,
        }
      : { ...common, args: webgpu ? [...CHROMIUM_FLAGS, ...CHROMIUM_WEBGPU] : CHROMIUM_FLAGS },
  );
  const page = await browser.newPage();
  // A busy machine is no error.
  page.setDefaultTimeout(120_000);
  await page.setViewport({ width, height });
  const problems = [];
  page.on("console", (m) => {
    if (["error", "warn", "warning"].includes(m.type())) problems.push(`console ${m.type()}: ${m.text()}`);
  });
  page.on("pageerror", (e) => problems.push(`uncaught: ${e.message}`));
  page.on("request", (r) => {
    const url = new URL(r.url());
    const local = ["blob:", "data:", "about:"].includes(url.protocol) || ["127.0.0.1", UNTRUSTED].includes(url.hostname);
    if (!local) problems.push(`external request: ${r.url()}`);
  });
  const close = async () => {
    await browser.close();
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  };
  return { browser, page, problems, close };
}
