// Tests one after another, counted; what they need to find; comparisons.

import { once } from "node:events";
import { appendFileSync, createReadStream, existsSync, mkdirSync, statSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, extname, join, normalize, sep } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
export const tests = here;
export const root = join(here, "..", "..");
/** The built site; DELTANET_SITE names another folder. */
export const site = process.env.DELTANET_SITE ?? join(root, "web", "dist");
export const golden = join(root, "tests", "golden");
/** The native program, if it has been built. */
export const native = join(root, "target", "release", process.platform === "win32" ? "deltanet.exe" : "deltanet");
export const demo = join(root, "models", "stories-17m");
/** Screenshots go here; git ignores the folder. */
export const artefacts = join(root, "tests", "artefacts", "web");

const counts = { passed: 0, failed: 0, skipped: 0 };
const only = process.argv.slice(2);

/** Runs one test, unless words on the command line leave it out. Whether it passed. */
export async function test(name, body) {
  if (only.length > 0 && !only.some((word) => name.includes(word))) return true;
  const start = performance.now();
  try {
    const note = await body();
    if (note === SKIPPED) return true;
    counts.passed += 1;
    console.log(`ok    ${name} (${((performance.now() - start) / 1000).toFixed(1)} s)${note ? `: ${note}` : ""}`);
    return true;
  } catch (error) {
    fail(name, error);
    return false;
  }
}

/** Counts and prints what went wrong. */
export function fail(name, error) {
  counts.failed += 1;
  const where = String(error.stack ?? "").split("\n").filter((line) => line.includes(here) && !line.includes("node_modules"));
  console.log([`FAIL  ${name}: ${error.message ?? error}`, ...where].join("\n"));
}

/** What a test returns that has called `skip`. */
const SKIPPED = Symbol("skipped");

/** Notes what could not run. */
export function skip(name, reason) {
  counts.skipped += 1;
  console.log(`skip  ${name}: ${reason}`);
  // Where `cargo xtask test` collects what tests leave out.
  if (process.env.DELTANET_SKIP_FILE) appendFileSync(process.env.DELTANET_SKIP_FILE, `${name}: ${reason}\n`);
  return SKIPPED;
}

/** Prints the counts in the words of `cargo test`, and ends with the status. */
export function finish() {
  const { passed, failed, skipped } = counts;
  const ok = failed === 0 && passed > 0;
  console.log(`\ntest result: ${ok ? "ok" : "FAILED"}. ${passed} passed; ${failed} failed; ${skipped} left out`);
  process.exit(ok ? 0 : 1);
}

export function assert(condition, message) {
  if (!condition) throw new Error(message);
}

export function assertEqual(got, want, what) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(want)];
  assert(a === b, `${what}: expected ${b}, got ${a}`);
}

/** Largest difference relative to the largest magnitude of `want`. */
export function assertClose(got, want, tolerance, what) {
  assert(got.length === want.length, `${what}: expected ${want.length} elements, got ${got.length}`);
  let [worst, at, most] = [0, 0, 0];
  for (let i = 0; i < want.length; i++) {
    most = Math.max(most, Math.abs(want[i]));
    const difference = Math.abs(got[i] - want[i]);
    if (!(difference <= worst)) [worst, at] = [difference, i];
    // Nothing is worse, and no comparison would find it again.
    if (Number.isNaN(worst)) break;
  }
  const relative = worst / most;
  assert(relative <= tolerance, `${what}: ${relative.toExponential(2)} > ${tolerance} at ${at}: expected ${want[at]}, got ${got[at]}`);
  return relative;
}

const TYPES = {
  ".html": "text/html; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".json": "application/json",
  ".wasm": "application/wasm",
};

/**
 * Serves folders by prefix, longest first, and keeps a log of what was asked for. `state.trouble(path)` may return a
 * number of bytes after which the connection breaks; `state.rate` is in bytes a second, 0 for all that goes.
 */
export async function serve(folders) {
  const log = [];
  const state = { trouble: () => undefined, rate: 0 };
  const server = createServer(async (request, response) => {
    const path = decodeURIComponent(new URL(request.url, "http://x").pathname);
    const prefix = Object.keys(folders).sort((a, b) => b.length - a.length).find((p) => path.startsWith(p));
    const base = folders[prefix];
    let file = base && normalize(join(base, path.slice(prefix.length)));
    const inside = file && (file === base || file.startsWith(base.endsWith(sep) ? base : base + sep));
    if (inside && existsSync(file) && statSync(file).isDirectory()) file = join(file, "index.html");
    log.push(`${request.method} ${path}${request.headers.range ? ` ${request.headers.range}` : ""}`);
    if (!inside || !existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    const { size, mtimeMs } = statSync(file);
    const from = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
    const headers = {
      "Content-Type": TYPES[extname(file)] ?? "application/octet-stream",
      "Content-Length": size - from,
      "Accept-Ranges": "bytes",
      "Cache-Control": "no-cache",
      ETag: `"${size.toString(16)}-${Math.floor(mtimeMs).toString(16)}"`,
    };
    if (from > 0) headers["Content-Range"] = `bytes ${from}-${size - 1}/${size}`;
    response.writeHead(from > 0 ? 206 : 200, headers);
    if (request.method === "HEAD") {
      response.end();
      return;
    }
    const most = state.trouble(path) ?? Infinity;
    let sent = 0;
    try {
      for await (const chunk of createReadStream(file, { start: from })) {
        if (state.rate) await new Promise((done) => setTimeout(done, (1000 * chunk.length) / state.rate));
        sent += chunk.length;
        if (sent >= most || response.destroyed) throw new Error("broken");
        if (!response.write(chunk)) await once(response, "drain", { signal: AbortSignal.timeout(60_000) });
      }
      response.end();
    } catch {
      response.destroy();
    }
  });
  await new Promise((ready) => server.listen(0, "127.0.0.1", ready));
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, log, state, close };
}

/** Saves a screenshot of a page. */
export async function shoot(page, name) {
  mkdirSync(artefacts, { recursive: true });
  await page.screenshot({ path: join(artefacts, `${name}.png`) });
}
