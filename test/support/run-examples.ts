/**
 * Runs many examples in one process, one after the other, and returns the output and the end of each. An
 * example that ends the process, or hangs in it, is named, and the rest continues in another.
 */

import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { effort } from "./effort.js";
import type { Report } from "./example-process.js";

/** The result of an example's run. */
export interface ExampleRun {
  readonly lines: readonly string[];
  /** "" if it succeeded; otherwise how it ended. */
  readonly failure: string;
}

export interface RunOptions {
  /** The time limit of each example. */
  readonly timeLimitsMs: readonly number[];
}

/**
 * The time limit replaces the watchdog, whose thread and process would take most of an example's time. More
 * threads, and the usual memory for copies, would take a quarter of it.
 */
const settings = {
  HOLDFAST_STALL_AFTER: "off",
  ...effort({ quick: { HOLDFAST_THREADS: "1", HOLDFAST_STAGING: "2MiB" }, thorough: {} }),
};

const program = fileURLToPath(new URL("example-process.js", import.meta.url));

/** Starts the examples, given as compiled files; returns a promise for each, in the same order. */
export function runExamples(
  files: readonly string[],
  { timeLimitsMs }: RunOptions,
): readonly Promise<ExampleRun>[] {
  const settle: ((run: ExampleRun) => void)[] = [];
  const runs = files.map(() => new Promise<ExampleRun>((resolve) => settle.push(resolve)));
  void runAll(files, timeLimitsMs, (index, run) => settle[index]?.(run));
  return runs;
}

async function runAll(
  files: readonly string[],
  timeLimitsMs: readonly number[],
  settle: (index: number, run: ExampleRun) => void,
): Promise<void> {
  let done = 0;
  while (done < files.length) {
    const first = done;
    done += await runInOneProcess(files.slice(first), timeLimitsMs.slice(first), (index, run) =>
      settle(first + index, run),
    );
  }
}

/** How many examples, from the first on, are settled when the process has ended: at least one. */
function runInOneProcess(
  files: readonly string[],
  timeLimitsMs: readonly number[],
  settle: (index: number, run: ExampleRun) => void,
): Promise<number> {
  const [first = ""] = files;
  // A file always accepts output; a pipe would block while we check types and read nothing.
  const log = `${first}.stderr`;
  const stderr = openSync(log, "w");
  const child = spawn(process.execPath, [program, ...files], {
    cwd: dirname(first),
    // Examples leave their files, and the folder of the compiled examples is removed.
    env: { ...process.env, ...settings, TMPDIR: dirname(first) },
    stdio: ["ignore", "pipe", stderr],
  });
  closeSync(stderr);
  let current = 0;
  let isTooLong = false;
  let limit: NodeJS.Timeout | undefined;
  const lines = createInterface({ input: child.stdout! });
  lines.on("line", (line) => {
    const report = JSON.parse(line) as Report;
    clearTimeout(limit);
    if (report.kind === "ended") {
      settle(report.index, { lines: linesOf(report.printed), failure: report.failure });
      current = report.index + 1;
      return;
    }
    limit = setTimeout(() => {
      isTooLong = true;
      child.kill("SIGKILL");
    }, timeLimitsMs[current]);
  });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) => {
      clearTimeout(limit);
      if (current < files.length) {
        const end = isTooLong
          ? `It ran longer than ${(timeLimitsMs[current] ?? Number.NaN) / 1000} s.`
          : `It ended its process, with ${signal ?? `code ${code}`}.`;
        settle(current, { lines: [], failure: `${end}\n${readFileSync(log, "utf8").slice(-2000)}` });
        current += 1;
      }
      resolve(current);
    });
  });
}

function linesOf(printed: string): string[] {
  const lines = printed.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}
