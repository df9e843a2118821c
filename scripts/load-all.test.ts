/** V8's compiled code of a bundle is kept and used, and a process that can't use it loads the bundle as usual. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { copyFileSync, readdirSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import test from "node:test";
import { makeFolder } from "../test/support/folders.js";
import { repositoryRoot } from "../test/support/repository.js";

const folder = makeFolder();
copyFileSync(join(repositoryRoot, "scripts/load-all.mjs"), join(folder, "load-all.mjs"));
writeFileSync(
  join(folder, "all.cjs"),
  `const { basename } = require("node:path");
  exports.name = () => basename(__filename);
  exports.seven = require("./other.cjs");`,
);
writeFileSync(join(folder, "other.cjs"), "module.exports = 7;\n");
writeFileSync(
  join(folder, "program.mjs"),
  `import { writeCodeCache, loadAll, usesCodeCache } from "./load-all.mjs";
  const { name, seven } = loadAll();
  console.log(name(), seven, usesCodeCache() ? "kept" : "compiled");
  if (process.argv[2] === "keep") writeCodeCache();`,
);

function load({ flags = [] as string[], args = [] as string[] } = {}): string {
  const { stdout, stderr } = spawnSync(process.execPath, [...flags, join(folder, "program.mjs"), ...args], {
    encoding: "utf8",
    env: { PATH: process.env["PATH"] },
  });
  return `${stdout.trim()}${stderr}`;
}

test("a process uses the code that one with the same flags has kept", () => {
  assert.equal(load({ args: ["keep"] }), "all.cjs 7 compiled");
  assert.equal(load(), "all.cjs 7 kept");
});

test("other flags, source maps and a damaged file mean that the bundle is compiled", () => {
  assert.equal(load({ flags: ["--no-opt"] }), "all.cjs 7 compiled");
  assert.equal(load({ flags: ["--enable-source-maps"] }), "all.cjs 7 compiled");
  const [code = ""] = readdirSync(folder).filter((name) => name.endsWith(".code"));
  truncateSync(join(folder, code), 100);
  assert.equal(load(), "all.cjs 7 compiled");
});
