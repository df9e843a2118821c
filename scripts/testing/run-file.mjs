// @ts-check
/** Runs one test file in a process of its own and turns what it left behind into a result. */

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { tally } from "./tally.mjs";

/**
 * @typedef {object} FileResult
 * @property {string} source
 * @property {number} durationMs
 * @property {import("./tally.mjs").Tally["passed"]} passed
 * @property {import("./tally.mjs").Tally["failed"]} failed with the file itself where it crashed or hung
 * @property {import("./tally.mjs").Tally["skipped"]} skipped
 * @property {string[]} notes
 * @property {string} output what the file printed, on both streams
 *
 * @typedef {object} Ending
 * @property {number | null} exitCode
 * @property {NodeJS.Signals | null} signal
 * @property {boolean} isTimedOut
 */

const reporter = fileURLToPath(new URL("./event-log.mjs", import.meta.url));

/** Where the test processes write their events. */
const logs = mkdtempSync(join(tmpdir(), "holdfast-test-"));

/** The process groups that are alive now, by the id of their first process. @type {Set<number>} */
const alive = new Set();

// However the run ends, also by Ctrl-C or by a fault of its own, it leaves neither processes nor files.
process.on("exit", () => {
  for (const group of alive) endGroup(group);
  rmSync(logs, { recursive: true, force: true });
});

/**
 * @param {import("./files.mjs").TestFile} file
 * @param {number} timeoutMs
 * @returns {Promise<FileResult>}
 */
export async function runFile(file, timeoutMs) {
  const log = join(logs, `${file.source.replaceAll("/", "-")}.jsonl`);
  const startedAt = performance.now();
  const { ending, output } = await runProcess(file, log, timeoutMs);
  const durationMs = performance.now() - startedAt;
  const counted = tally(readRecords(log));
  const trouble = fileTrouble(ending, counted, timeoutMs);
  const failed = trouble ? [...counted.failed, { name: "(the file)", text: trouble }] : counted.failed;
  return { ...counted, source: file.source, durationMs, failed, output };
}

/**
 * @param {import("./files.mjs").TestFile} file
 * @param {string} log
 * @param {number} timeoutMs
 * @returns {Promise<{ ending: Ending, output: string }>}
 */
function runProcess(file, log, timeoutMs) {
  return new Promise((resolve, reject) => {
    const flags = [
      "--enable-source-maps",
      `--test-reporter=${reporter}`,
      `--test-reporter-destination=${log}`,
    ];
    const child = spawn(process.execPath, [...flags, file.compiled], {
      cwd: file.root,
      // A rejected plan fails its test; a user's step would be slower, and a test might not see that.
      // Buffers that a long run fills again and again are small, so that short runs fill them too; a long test has the real ones.
      env: {
        ...process.env,
        HOLDFAST_ON_REJECTED_PLAN: "error",
        TEST_HOLDFAST_SIZES: file.isLong ? undefined : "8",
      },
      // A group of its own, so that ending it ends whatever it started too.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const group = child.pid;
    if (group !== undefined) alive.add(group);

    let output = "";
    let isTimedOut = false;
    const timer = setTimeout(() => {
      isTimedOut = true;
      if (group !== undefined) endGroup(group);
    }, timeoutMs);
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (chunk) => {
        output += chunk;
      });
    }

    child.on("error", reject);
    // A process left behind would keep the pipes open, and "close" would wait for it.
    child.on("exit", () => {
      if (group !== undefined) endGroup(group);
    });
    child.on("close", (exitCode, signal) => {
      clearTimeout(timer);
      if (group !== undefined) alive.delete(group);
      resolve({ ending: { exitCode, signal, isTimedOut }, output });
    });
  });
}

/** @param {number} group */
function endGroup(group) {
  try {
    process.kill(-group, "SIGKILL");
  } catch (error) {
    // ESRCH: nothing of it is left, which is what was wanted.
    if (!(error instanceof Error && "code" in error && error.code === "ESRCH")) throw error;
  }
}

/**
 * @param {string} log
 * @returns {import("./event-log.mjs").TestRecord[]}
 */
function readRecords(log) {
  let text = "";
  try {
    text = readFileSync(log, "utf8");
  } catch {
    // A file that ends before its first test leaves no log; that is told as a file without a test, or a crash.
  }
  // What stands behind the last line break is a record cut short by the process's end.
  const lines = text.split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line));
}

/**
 * What went wrong with the file as a whole, beside its tests' own failures.
 *
 * @param {Ending} ending
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
