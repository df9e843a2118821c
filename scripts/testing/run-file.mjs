// @ts-check
/** Runs one test file in a process of its own and turns what it left behind into a result. */

import { tally } from "./tally.mjs";
import { runTestProcess } from "./test-process.mjs";

/**
 * @typedef {object} FileResult
 * @property {string} source
 * @property {number} durationMs
 * @property {import("./tally.mjs").Tally["passed"]} passed
 * @property {import("./tally.mjs").Tally["failed"]} failed with the file itself where it crashed or hung
 * @property {import("./tally.mjs").Tally["skipped"]} skipped
 * @property {string[]} notes
 * @property {string} output what the file printed, on both streams
 */

/**
 * @param {import("./files.mjs").TestFile} file
 * @param {number} timeoutMs
 * @returns {Promise<FileResult>}
 */
export async function runFile({ root, source, compiled, isLong }, timeoutMs) {
  const startedAt = performance.now();
  const { ending, output, records } = await runTestProcess([compiled], { root, isLong, timeoutMs });
  const durationMs = performance.now() - startedAt;
  return resultOf(source, tally(records), { ending, timeoutMs, durationMs, output });
}

/**
 * The tests' own results, and the file itself as a failure where it crashed, hung or quit.
 *
 * @param {string} source
 * @param {import("./tally.mjs").Tally} counted
 * @param {{ ending: import("./test-process.mjs").Ending, timeoutMs: number, durationMs: number, output: string }} run
 * @returns {FileResult}
 */
export function resultOf(source, counted, { ending, timeoutMs, durationMs, output }) {
  const { passed, skipped, notes } = counted;
  const trouble = fileTrouble(ending, counted, timeoutMs);
  const failed = trouble ? [...counted.failed, { name: "(the file)", text: trouble }] : counted.failed;
  return { source, durationMs, passed, failed, skipped, notes, output };
}

/**
 * What went wrong with the file as a whole, beside its tests' own failures.
 *
 * @param {import("./test-process.mjs").Ending} ending
 * @param {import("./tally.mjs").Tally} counted
 * @param {number} timeoutMs
 * @returns {string | undefined}
 */
function fileTrouble({ exitCode, signal, isTimedOut }, counted, timeoutMs) {
  const { passed, failed, skipped, running, isComplete } = counted;
  const during = running.length > 0 ? ` It was running: ${running.join(", ")}.` : "";
  if (isTimedOut) return `The file did not end within ${timeoutMs / 1000} s and was killed.${during}`;
  if (signal) return `The file was killed by ${signal}.${during}`;
  if (exitCode === 0 && passed.length + failed.length + skipped.length === 0) {
    return `The file ended without having reported a test.${during}`;
  }
  if (exitCode === 0 && isComplete) return undefined;
  // node sets exit code 1 for failed tests, so that alone is no crash of the file.
  if (exitCode === 1 && isComplete && failed.length > 0) return undefined;
  const early = isComplete ? "" : " before its tests had ended";
  return `The file exited with code ${exitCode}${early}.${during}`;
}
