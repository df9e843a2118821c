// @ts-check
/** A process that runs compiled tests and leaves a log of events, in a process group that ends with it. */

import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/**
 * @typedef {object} Ending
 * @property {number | null} exitCode
 * @property {NodeJS.Signals | null} signal
 * @property {boolean} isTimedOut
 *
 * @typedef {object} ProcessOptions
 * @property {string} root the working directory
 * @property {boolean} isLong whether the tests use the buffer sizes of a real run
 * @property {number} timeoutMs for the whole process, or from one call of `restartTimer` to the next
 * @property {(chunk: string, restartTimer: () => void) => void} [onOutput] called for each piece of standard output
 *
 * @typedef {object} ProcessResult
 * @property {Ending} ending
 * @property {string} stdout
 * @property {string} stderr
 * @property {string} output both streams, in the order in which they came
 * @property {import("./event-log.mjs").TestRecord[]} records
 */

const reporter = fileURLToPath(new URL("./event-log.mjs", import.meta.url));

/**
 * A test process is short: most code that V8 optimizes would hardly run. This is six times its usual patience, a sixth less processor
 * time for tests of the compiler. The collector's threads would take more from the other processes than they give to this one. It
 * collects less often if the space of young objects starts with 16 MiB, which is V8's maximum. Not every version of node has the flags.
 */
const wantedFlags = ["--interrupt-budget=400000", "--single-threaded-gc", "--min-semi-space-size=16"];
/** @type {string[] | undefined} */
let flagsForShortRuns;

/** V8's flags for test processes. */
export function findFlags() {
  flagsForShortRuns ??= acceptedFlags();
  return flagsForShortRuns;
}

function acceptedFlags() {
  /** @param {readonly string[]} flags */
  const has = (flags) =>
    spawnSync(process.execPath, [...flags, "--version"], { stdio: "ignore" }).status === 0;
  return has(wantedFlags) ? wantedFlags : wantedFlags.filter((flag) => has([flag]));
}

/** Where the test processes write their events. */
const logs = mkdtempSync(join(tmpdir(), "holdfast-test-"));
let logCount = 0;

/** The process groups that are alive now, by the id of their first process. @type {Set<number>} */
const alive = new Set();

// However the run ends, also by Ctrl-C or by a fault of its own, it leaves neither processes nor files.
process.on("exit", () => {
  for (const group of alive) endGroup(group);
  rmSync(logs, { recursive: true, force: true });
});

/**
 * Runs node with these arguments: a script and what it takes.
 *
 * @param {readonly string[]} args
 * @param {ProcessOptions} options
 * @returns {Promise<ProcessResult>}
 */
export function runTestProcess(args, { root, isLong, timeoutMs, onOutput }) {
  return new Promise((resolve, reject) => {
    const log = join(logs, `${++logCount}.jsonl`);
    const flags = [...findFlags(), `--test-reporter=${reporter}`, `--test-reporter-destination=${log}`];
    const child = spawn(process.execPath, [...flags, ...args], {
      cwd: root,
      // A rejected plan fails its test; a user's step would be slower, and a test might not see that.
      // Buffers that a long run fills again and again are small, so that short runs fill them too; a long test has the real ones.
      env: {
        ...process.env,
        HOLDFAST_ON_REJECTED_PLAN: "error",
        // The commands look for a BLAS, which this machine may have.
        HOLDFAST_BLAS: "off",
        // Node would parse all certificates at its start, longer than the rest of the start takes. No test uses TLS.
        NODE_EXTRA_CA_CERTS: undefined,
        // Tests use internal modules next to the public API; programs that they start may do so too.
        NODE_OPTIONS: `${process.env.NODE_OPTIONS ?? ""} --conditions=holdfast-source`,
        TEST_HOLDFAST_SIZES: isLong ? undefined : "8",
      },
      // A group of its own, so that ending it ends whatever it started too.
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    const group = child.pid;
    if (group !== undefined) alive.add(group);

    const printed = { stdout: "", stderr: "", output: "" };
    let isTimedOut = false;
    const timer = setTimeout(() => {
      isTimedOut = true;
      if (group !== undefined) endGroup(group);
    }, timeoutMs);
    for (const name of /** @type {const} */ (["stdout", "stderr"])) {
      child[name].setEncoding("utf8").on("data", (chunk) => {
        printed[name] += chunk;
        printed.output += chunk;
        if (name === "stdout") onOutput?.(chunk, () => timer.refresh());
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
      resolve({ ending: { exitCode, signal, isTimedOut }, ...printed, records: readRecords(log) });
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
  rmSync(log, { force: true });
  // The text after the last line break is a record cut short by the process's end.
  const lines = text.split("\n").slice(0, -1);
  return lines.map((line) => JSON.parse(line));
}
