/**
 * `npm run bench:gpu -- --only sanitizer`: the op suite under compute-sanitizer's four tools. Before each, kernels are
 * planted that the tool has to find; memcheck must see a write into a storage's padding and one into dead memory, both
 * inside the arena.
 */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { commonArguments, commonOptions, count } from "./options.js";
import { Results } from "./results.js";
import { strayRuns } from "./stray-kernels.js";

const { values: options } = parseArgs({
  options: {
    ...commonOptions,
    checker: { type: "string", default: "" },
    tools: { type: "string", default: "memcheck,initcheck,racecheck,synccheck" },
    draws: { type: "string", default: "2" },
    elements: { type: "string", default: "120" },
    /**
     * How memory is taken, in the order of the tries: the first with which the planted kernels are seen is kept. The tool
     * takes no mapped memory ("auto") for a pool, and answers each registration there with a warning.
     */
    allocations: { type: "string", default: "plain" },
    /** For the ops of one tool; starting and ending it comes on top. */
    seconds: { type: "string", default: "80" },
  },
});

/** Beyond its own time a run is given this much for its start and its end. */
const graceSeconds = 45;
const maxLines = 60;

const checker =
  [options.checker, "/usr/local/cuda/bin/compute-sanitizer"].find(
    (path) => path !== "" && existsSync(path),
  ) ?? "compute-sanitizer";

type Allocation = "auto" | "plain";

interface Finding {
  /** Errors, and for races warnings too; undefined where the tool did not come to an end. */
  readonly count: number | undefined;
  readonly log: string;
  readonly seconds: number;
}

function toolOptions(tool: string, canFilter: boolean): string[] {
  const common = ["--tool", tool, "--target-processes", "application-only", "--launch-timeout", "60"];
  // A fault ends its kernel and not the context, so that the others are seen too.
  const telling = ["--show-backtrace", "no", "--print-limit", "40", "--destroy-on-device-error", "kernel"];
  // Races and barriers in the library's own kernels are none of ours.
  const ownKernels = canFilter ? ["--kernel-name", "kernel_substring=hf_"] : [];
  if (tool === "memcheck") return [...common, ...telling, "--report-api-errors", "no"];
  return tool === "initcheck" ? [...common, ...telling] : [...common, ...telling, ...ownKernels];
}

function runUnder(tool: string, args: readonly string[], limitSeconds: number, canFilter = true): Finding {
  const script = fileURLToPath(new URL("./checked-ops.js", import.meta.url));
  const program = [process.execPath, script, ...args, ...commonArguments(options)];
  const startedAt = performance.now();
  // By `timeout`, because it ends the tool's own child too.
  const command = ["-s", "KILL", String(limitSeconds), checker, ...toolOptions(tool, canFilter), ...program];
  const { stdout, stderr, error, status } = spawnSync("timeout", command, {
    encoding: "utf8",
    maxBuffer: 64 << 20,
  });
  const seconds = (performance.now() - startedAt) / 1000;
  const isOverdue = seconds >= limitSeconds;
  const ending = error?.message ?? (isOverdue ? `ended after ${limitSeconds} s` : `exit code ${status}`);
  const log = `${stdout ?? ""}${stderr ?? ""}\n(${ending})`.trim();
  // Versions of the tool have called that option by several names.
  if (canFilter && /unrecogni[sz]ed option/i.test(log)) return runUnder(tool, args, limitSeconds, false);
  return { count: countChecksums(log), log, seconds };
}

function countChecksums(log: string): number | undefined {
  const races = log.match(/RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)/);
  if (races) return Number(races[1]) + Number(races[2]);
  const errors = log.match(/ERROR SUMMARY: (\d+) errors?/);
  return errors ? Number(errors[1]) : undefined;
}

function tellLog(results: Results, title: string, log: string): void {
  const lines = log.split("\n");
  results.line(`--- ${title}`);
  for (const line of lines.slice(0, maxLines)) results.line(line);
  if (lines.length > maxLines) results.line(`… and ${lines.length - maxLines} lines more; the last are`);
  for (const line of lines.slice(Math.max(maxLines, lines.length - 4))) results.line(line);
  results.line();
}

/** Runs a tool's planted kernels; does its log name all of them? */
function proveRed(results: Results, tool: string, allocation: Allocation): boolean {
  const { kernels } = strayRuns[tool] ?? { kernels: [] };
  const { log, count: found, seconds } = runUnder(tool, ["--stray", tool, "--allocation", allocation], 60);
  const unseen = kernels.filter((name) => !log.includes(name));
  tellLog(results, `${tool}, planted kernels, ${allocation} memory, ${seconds.toFixed(0)} s`, log);
  return unseen.length === 0 && found !== undefined && found >= kernels.length;
}

function checkTool(results: Results, tool: string): void {
  // What the tool can take for a pool of memory is its own affair: plain allocations are what its manual speaks of.
  const tries = options.allocations.split(",") as Allocation[];
  const allocation = tries.find((one) => proveRed(results, tool, one));
  const injected = strayRuns[tool]?.kernels.join(", ");
  results.require(
    allocation !== undefined,
    `${tool} red proof: ${allocation === undefined ? "NOT seen" : `seen on ${allocation} memory`}: ${injected}`,
  );
  const { draws, elements, seconds } = options;
  const args = ["--draws", draws, "--elements", elements, "--seconds", seconds];
  const limit = count("seconds", seconds) + graceSeconds;
  const finding = runUnder(tool, [...args, "--allocation", allocation ?? tries[0]!], limit);
  tellLog(results, `${tool}, op suite, ${finding.seconds.toFixed(0)} s`, finding.log);
  const [, covered, all, calls] = finding.log.match(/covered (\d+) of (\d+) op cases in (\d+) calls/) ?? [];
  const told = covered
    ? `${covered} of ${all} op cases in ${calls} calls, ${finding.seconds.toFixed(0)} s`
    : "the op suite did not come to its end";
  results.require(
    finding.count === 0 && covered === all && covered !== undefined,
    `${tool}: ${finding.count === undefined ? "no summary" : `${finding.count} findings`}; ${told}`,
  );
}

const results = new Results("sanitizer", options);
results.line(`checker: ${checker}`);
for (const tool of options.tools.split(",")) await results.attempt(tool, () => checkTool(results, tool));
results.finish();
