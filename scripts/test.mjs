// @ts-check
/**
 * `npm test`: runs the compiled tests, two files at a time, and prints a report whose last line is
 * `N passed, N failed, N skipped`.
 *
 *   npm test                     every test
 *   npm test -- arena budget     the files whose path contains "arena" or "budget"
 *   npm test -- --timeout 60     each file may take 60 seconds instead of 1200, or of 3600 with --suites long
 *   npm test -- --at-once 8      eight files at a time
 *   npm test -- --suites device  the files that run on the device that TEST_DEVICE names: cpu, emulator or cuda
 *   npm run test:long            --suites long: the files named *.long.test.ts, which the other suites leave out, and those that
 *                                try more with TEST_EFFORT=all; the result is kept in bench/results/
 *   npm test -- --help           prints this
 *   npm test -- --write-durations  keeps how long files take in scripts/testing/durations.json, for the order of the next runs
 *
 * Files share a process in groups, except for those that need their own; the longest jobs start first. Files whose tests mostly wait run
 * next to the others, in one more process, except with --at-once 1. Processes are started here rather than by `run()` of node:test.
 * `run()` only asks a hung file to end, which a busy one never hears; it takes a file that calls process.exit(0) halfway for a passed
 * one; and its time limit is for a file in Node 20 and for a test in Node 24.
 */

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { writeCodeCaches } from "./testing/code-cache.mjs";
import { findTestFiles, packageRoot } from "./testing/files.mjs";
import { planJobs, writeDurations } from "./testing/jobs.mjs";
import { fileLine, keepLongResult, summary } from "./testing/report.mjs";
import { runGroup } from "./testing/run-group.mjs";
import { chooseDeviceSuites, chooseLongSuites, describeTestDevice } from "./testing/suites.mjs";
import { findFlags } from "./testing/test-process.mjs";

const { values: options, positionals: filters } = parseArgs({
  options: {
    timeout: { type: "string" },
    "at-once": { type: "string", default: "2" },
    suites: { type: "string", default: "all" },
    "write-durations": { type: "boolean", default: false },
    help: { type: "boolean", short: "h", default: false },
  },
  allowPositionals: true,
});
if (options.help) {
  const [, usage = ""] =
    /\/\*\*([\s\S]*?)\*\//.exec(readFileSync(fileURLToPath(import.meta.url), "utf8")) ?? [];
  console.log(usage.replaceAll(/^ \* ?/gm, "").trim());
  process.exit(0);
}
const { suites } = options;
if (suites !== "all" && suites !== "device" && suites !== "long")
  throw new Error(`--suites takes all, device or long; this is "${suites}".`);
const isLong = suites === "long";
const timeoutS = options.timeout ?? (isLong ? "3600" : "1200");
const timeoutMs = Number(timeoutS) * 1000;
if (!(timeoutMs > 0)) throw new Error(`--timeout takes a number of seconds; this is "${timeoutS}".`);
const filesAtOnce = Number(options["at-once"]);
if (!(Number.isInteger(filesAtOnce) && filesAtOnce > 0))
  throw new Error(`--at-once takes a number of files; this is "${options["at-once"]}".`);

// An orderly exit is what ends the test processes: they lead process groups of their own, which Ctrl-C in the
// terminal doesn't reach.
process.on("SIGINT", () => process.exit(130));
process.on("SIGTERM", () => process.exit(143));

const startedAt = performance.now();
const root = packageRoot(process.cwd());
const found = findTestFiles(root, filters);
const short = found.filter((file) => !file.isLong);
const files = isLong ? chooseLongSuites(found) : suites === "device" ? chooseDeviceSuites(short) : short;
// Tests that try a sample otherwise try everything.
if (isLong) process.env.TEST_EFFORT = "all";
// Source maps take 3 % of a whole run. A run of few files is where people look for the line of a failure.
if (filters.length > 0) process.env.NODE_OPTIONS = `${process.env.NODE_OPTIONS ?? ""} --enable-source-maps`;
if (suites === "device") console.log(`On ${await describeTestDevice(root)}.`);
if (files.length === 0) console.log(`No test file matches: ${filters.join(" ") || "dist/**/*.test.js"}`);
// For a run of few files it takes longer than it saves, and with source maps the kept code is not used.
if (filters.length === 0) await writeCodeCaches(root, findFlags());

/** @type {import("./testing/run-file.mjs").FileResult[]} */
const results = [];
// A GPU's memory is shared by processes, not by the tests of one process: there each file has its own.
const canShare = suites === "all" && (process.env.TEST_DEVICE ?? "cpu") === "cpu";
const { busy, waiting } = planJobs(files, { canShare });

/**
 * Runs jobs one after the other. Workers that share an iterator share its jobs.
 *
 * @param {Iterable<import("./testing/jobs.mjs").Job>} jobs
 */
async function work(jobs) {
  for (const job of jobs) {
    for (const result of await runGroup(job.files, timeoutMs)) {
      results.push(result);
      console.log(fileLine(result));
    }
  }
}
if (filesAtOnce === 1) await work([...waiting, ...busy]);
else {
  const shared = busy.values();
  await Promise.all([work(waiting), ...Array.from({ length: filesAtOnce }, () => work(shared))]);
}

if (options["write-durations"]) writeDurations(root, results);
const { text, isGood } = summary(results, performance.now() - startedAt);
if (isLong && filters.length === 0) keepLongResult(root, results, text);
console.log(text);
// Not process.exit(): it would cut off what a pipe has not taken yet.
process.exitCode = isGood ? 0 : 1;
