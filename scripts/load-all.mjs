// @ts-check
/**
 * Loads all.cjs, the bundle of all modules, for dist/modules/all.js. Most of the time goes into V8's parser. So the test runner lets V8
 * keep its compiled code in a file next to the bundle. V8 accepts that file only with the version and the flags that it was made with:
 * there is a file for each, and a process without one compiles the bundle as usual.
 */

import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { cachedDataVersionTag } from "node:v8";
import { Script } from "node:vm";

const url = new URL("./all.cjs", import.meta.url).href;
const path = fileURLToPath(url);
// Here, because a program may change V8's flags later.
const codeFile = `${path}.${cachedDataVersionTag()}.code`;

/** @type {Script | undefined} */
let script;

/** @returns {any} what the bundle exports */
export function loadAll() {
  const require = createRequire(url);
  // Node applies source maps to modules only.
  if (process.sourceMapsEnabled) return require("./all.cjs");
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(path, "utf8")}\n})`;
  const cachedData = readCode();
  script = new Script(source, { filename: url, ...(cachedData ? { cachedData } : {}) });
  const module = { exports: {} };
  script.runInThisContext()(module.exports, require, module, path, dirname(path));
  return module.exports;
}

/** True if this process loaded the bundle with kept code. */
export function usesKeptCode() {
  return script?.cachedDataRejected === false;
}

/** Keeps the code of the functions that this process has compiled until now. V8's flags must be those of its start. */
export function keepCode() {
  if (!script) return;
  const part = `${codeFile}.${process.pid}`;
  writeFileSync(part, script.createCachedData());
  renameSync(part, codeFile);
}

function readCode() {
  try {
    return readFileSync(codeFile);
  } catch {
    return undefined;
  }
}
