// @ts-check
/** Which test files there are: those compiled into dist/ whose sources still stand in the tree. */

import { existsSync, readdirSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";

/**
 * @typedef {object} TestFile
 * @property {string} root the package's folder
 * @property {string} source the TypeScript file, relative to the root: how the report names it
 * @property {string} compiled the absolute path of what is run
 * @property {boolean} isLong whether its name ends in .long.test.ts: too slow for every run of the suite
 */

/**
 * The nearest folder at or above `start` that has a package.json.
 *
 * @param {string} start
 * @returns {string}
 */
export function packageRoot(start) {
  for (let folder = start; ; folder = dirname(folder)) {
    if (existsSync(join(folder, "package.json"))) return folder;
    if (dirname(folder) === folder) throw new Error(`No package.json at or above ${start}.`);
  }
}

/**
 * The test files whose source path contains one of the filters; all of them when there is no filter.
 *
 * @param {string} root
 * @param {readonly string[]} filters
 * @returns {TestFile[]}
 */
export function findTestFiles(root, filters) {
  const built = join(root, "dist");
  if (!existsSync(built)) return [];
  const entries = readdirSync(built, { recursive: true, withFileTypes: true });
  return (
    entries
      .filter((entry) => entry.isFile() && entry.name.endsWith(".test.js"))
      .map((entry) => {
        const compiled = join(entry.parentPath, entry.name);
        const source = relative(built, compiled).replace(/\.js$/, ".ts").split(sep).join("/");
        return { root, source, compiled, isLong: source.endsWith(".long.test.ts") };
      })
      // tsc never deletes: a test that was renamed or removed leaves its compiled file behind.
      .filter((file) => existsSync(join(root, file.source)))
      .filter((file) => filters.length === 0 || filters.some((filter) => file.source.includes(filter)))
      .sort((a, b) => (a.source < b.source ? -1 : 1))
  );
}
