// @ts-check
/**
 * `npm run build`: checks the types and writes dist/. The declarations are tsc's; esbuild makes the JavaScript (scripts/bundle.mjs) and the
 * inspector's page (scripts/build-page.mjs). If no file has changed since the last build, it does nothing: `npm start` and `npm test` both
 * begin with it. `npm run build -- --force` builds in any case.
 */

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { packageRoot } from "./testing/files.mjs";

const root = packageRoot(process.cwd());
const mark = join(root, "dist/.built");

/** All that a build reads. The second lock file changes when packages are installed. */
const inputs = [
  ...["src", "test", "bench", "examples", "scripts"],
  ...["tsconfig.json", "package.json", "package-lock.json", "node_modules/.package-lock.json"],
];
/** One file of each step. */
const outputs = ["src/index.d.ts", "lib/index.js", "modules/all.cjs", "page/index.html"];

const tsc = "node_modules/typescript-native/bin/tsc";
const steps = [
  [tsc, "-p", "tsconfig.json"],
  [tsc, "-p", "src/inspect/page"],
  ["scripts/build-page.mjs"],
  ["scripts/bundle.mjs"],
];

const state = stateOfInputs();
if (process.argv.includes("--force") || !isBuilt()) {
  rmSync(mark, { force: true });
  const codes = await Promise.all(steps.map(run));
  const failure = codes.find((code) => code !== 0);
  if (failure === undefined) writeFileSync(mark, state);
  else process.exitCode = failure;
}

function isBuilt() {
  if (!existsSync(mark) || readFileSync(mark, "utf8") !== state) return false;
  return outputs.every((path) => existsSync(join(root, "dist", path)));
}

/** Changes with every file that is added, removed or written. */
function stateOfInputs() {
  const hash = createHash("sha256").update(process.version);
  for (const input of inputs) {
    for (const path of filesAt(input)) {
      const { size, mtimeMs } = statSync(join(root, path));
      hash.update(`${path}\n${size} ${mtimeMs}\n`);
    }
  }
  return hash.digest("hex");
}

/**
 * The file at a path, or all files below it.
 *
 * @param {string} path
 */
function filesAt(path) {
  const place = join(root, path);
  if (!existsSync(place)) return [];
  if (statSync(place).isFile()) return [path];
  return readdirSync(place, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .sort();
}

/**
 * @param {readonly string[]} args
 * @returns {Promise<number>} the exit code
 */
function run(args) {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, args, { cwd: root, stdio: "inherit" });
    child.on("error", reject).on("close", (code) => resolve(code ?? 1));
  });
}
