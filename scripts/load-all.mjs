// @ts-check
/**
 * Loads all.cjs, the bundle of all modules, for dist/modules/all.js. Parsing takes most of that time, so the test runner writes V8's code cache
 * to a file next to the bundle. V8 rejects the cache of another version or of other flags, so the file's name has a tag of both. Without a
 * matching file the bundle is compiled as usual.
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
  // Node applies source maps to modules that it loads itself, not to a vm.Script.
  if (process.sourceMapsEnabled) return require("./all.cjs");
  const source = `(function (exports, require, module, __filename, __dirname) {${readFileSync(path, "utf8")}\n})`;
  const cachedData = readCode();
  script = new Script(source, { filename: url, ...(cachedData ? { cachedData } : {}) });
  const module = { exports: {} };
  script.runInThisContext()(module.exports, require, module, path, dirname(path));
  return module.exports;
}

/** True if this process loaded the bundle with a code cache. */
export function usesCodeCache() {
  return script?.cachedDataRejected === false;
}

/** Writes the code cache of the functions that this process has compiled until now. V8's flags must be those of its start. */
export function writeCodeCache() {
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
