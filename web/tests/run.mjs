// All tests of the web build: `node run.mjs [words that names must contain]`. Needs web/dist (`cargo xtask web`).

import { existsSync } from "node:fs";
import { join } from "node:path";
import { find, names } from "./browsers.mjs";
import { finish, site, skip } from "./harness.mjs";
import { node } from "./node.mjs";
import { packages, pages } from "./page.mjs";

if (!existsSync(join(site, "index.html"))) {
  console.error("web/dist: expected a built site, got nothing (run `cargo xtask web`)");
  process.exit(2);
}
await node();
for (const name of names) {
  if (!find(name)) {
    skip(name, "not installed");
    continue;
  }
  await pages(name);
  await packages(name);
}
finish();
