// @ts-check
/**
 * The device suites: the test files that run on the device which the variable TEST_DEVICE names. A file is one of them if
 * it reaches test/support/test-device.js, where that device is opened, by its imports; so no list can miss one. The long suites are
 * found the same way.
 */

import { existsSync, readFileSync } from "node:fs";
import { dirname, join, resolve, sep } from "node:path";
import { pathToFileURL } from "node:url";

const relativeImports = /^(?:import|export)\b[^"';]*?from "(\.[^"]+)"|^import "(\.[^"]+)"/gm;

/**
 * @param {readonly import("./files.mjs").TestFile[]} files
 * @returns {import("./files.mjs").TestFile[]}
 */
export function chooseDeviceSuites(files) {
  return chooseReaching(files, "test-device.js");
}

/**
 * The long suites: the files named *.long.test.ts, and those that try more with TEST_EFFORT=all, which test/support/effort.js reads.
 *
 * @param {readonly import("./files.mjs").TestFile[]} files
 * @returns {import("./files.mjs").TestFile[]}
 */
export function chooseLongSuites(files) {
  const thorough = new Set(chooseReaching(files, "effort.js"));
  return files.filter((file) => file.isLong || thorough.has(file));
}

/**
 * @param {readonly import("./files.mjs").TestFile[]} files
 * @param {string} support a file in test/support
 */
function chooseReaching(files, support) {
  /** @type {Map<string, boolean>} */
  const known = new Map();
  return files.filter(({ root, compiled }) =>
    reaches(compiled, join(root, "dist/test/support", support), join(root, "dist/test"), known),
  );
}

/**
 * Opens the device under test once and closes it, so that a missing one is told once and at the start; what it is.
 *
 * @param {string} root
 * @returns {Promise<string>}
 */
export async function describeTestDevice(root) {
  const { openTestDriver, testDevice } = await import(pathToFileURL(pathOfDevice(root)).href);
  const driver = openTestDriver();
  const { name } = driver.describe();
  driver.close();
  return `${testDevice}, ${name}`;
}

/** @param {string} root */
function pathOfDevice(root) {
  return join(root, "dist/test/support/test-device.js");
}

/**
 * Imports are followed through the tests' own files alone: the library never imports those.
 *
 * @param {string} file
 * @param {string} target
 * @param {string} inside
 * @param {Map<string, boolean>} known
 * @returns {boolean}
 */
function reaches(file, target, inside, known) {
  if (file === target) return true;
  const found = known.get(file);
  if (found !== undefined) return found;
  // Said before it is known, so that a circle of imports ends.
  known.set(file, false);
  const answer =
    existsSync(file) &&
    Array.from(readFileSync(file, "utf8").matchAll(relativeImports), ([, from, bare]) =>
      resolve(dirname(file), from ?? bare ?? ""),
    )
      .filter((path) => path.startsWith(inside + sep))
      .some((path) => reaches(path, target, inside, known));
  known.set(file, answer);
  return answer;
}
