// All tests of the web build: `node run.mjs [words that names must contain]`. Needs web/dist (`cargo xtask web`).

import { existsSync } from "node:fs";
import { join } from "node:path";
import { refusals } from "./arguments.mjs";
import { find, names } from "./browsers.mjs";
import { calls } from "./calls.mjs";
import { drafts } from "./drafts.mjs";
import { fail, finish, site, skip } from "./harness.mjs";
import { keepings } from "./keeping.mjs";
import { keyboards } from "./keyboard.mjs";
import { node } from "./node.mjs";
import { packages } from "./package.mjs";
import { pages } from "./page.mjs";
import { stories } from "./stories.mjs";
import { trouble } from "./trouble.mjs";
import { visits } from "./visits.mjs";
import { watching } from "./watching.mjs";

if (!existsSync(join(site, "index.html"))) {
  console.error("web/dist: expected a built site, got nothing (run `cargo xtask web`)");
  process.exit(2);
}
// Words that name a browser leave the others alone.
const words = process.argv.slice(2);
const wanted = (name) => words.length === 0 || words.some((w) => w.startsWith(name) || !["node", ...names].some((n) => w.startsWith(n)));
if (wanted("node")) {
  await node();
  await calls();
  await watching();
  await keepings();
  await refusals();
}
for (const name of names) {
  if (!wanted(name)) continue;
  if (!find(name)) {
    // One that was asked for by name must be there.
    if (words.some((w) => w.startsWith(name))) fail(name, "not installed (`cargo xtask setup` says how to get it)");
    else skip(name, "not installed");
    continue;
  }
  for (const suite of [pages, packages, stories, visits, drafts, keyboards, trouble]) {
    try {
      await suite(name);
    } catch (error) {
      // Outside any test, a browser that does not start for one: the others may still tell something.
      fail(`${name}: ${suite.name}`, error);
    }
  }
}
finish();
