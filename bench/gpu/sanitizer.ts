/**
 * `npm run bench:gpu -- --only sanitizer`: the op suite and compiled steps of common models under
 * compute-sanitizer's four tools. Before each, kernels with injected faults run, which the tool must find. memcheck must see a write into a storage's
 * padding and one into dead memory, both inside the arena.
 */

import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { readOptions } from "../../test/support/command-line.js";
import { strayRuns } from "./faulty-kernels.js";
import { commonArguments, commonOptions, count } from "./options.js";
import { Results } from "./results.js";

const options = readOptions(import.meta.url, {
  ...commonOptions,
  checker: { type: "string", default: "" },
  tools: { type: "string", default: "memcheck,initcheck,racecheck,synccheck" },
  /** Of the models' steps. */
  precisions: { type: "string", default: "bf16,tf32,f32" },
  draws: { type: "string", default: "2" },
  elements: { type: "string", default: "120" },
  /** For one run of a tool, without the time to start and end it. */
  seconds: { type: "string", default: "80" },
});

/** Extra time for the start and the end of a run. */
const graceSeconds = 45;
const maxLines = 60;

const checker =
  [options.checker, "/usr/local/cuda/bin/compute-sanitizer"].find(
    (path) => path !== "" && existsSync(path),
  ) ?? "compute-sanitizer";

interface Finding {
  /** Errors, and for races also warnings; undefined if the tool did not finish. */
  readonly count: number | undefined;
  readonly log: string;
  readonly seconds: number;
}

function toolOptions(tool: string, canFilter: boolean): string[] {
  const common = ["--tool", tool, "--target-processes", "application-only", "--launch-timeout", "60"];
  // A fault ends its kernel and not the context, so that the tool sees the other kernels too.
  const telling = ["--show-backtrace", "no", "--print-limit", "40", "--destroy-on-device-error", "kernel"];
  // Races and barriers in the library's kernels are not ours.
  const nativeKernels: string[] = canFilter ? ["--kernel-name", "kernel_substring=hf_"] : [];
  // racecheck's code needs more registers than setmaxnreg leaves to a producer warpgroup: "failed to handle a hardware exception".
  if (tool === "racecheck" && canFilter)
    nativeKernels.push("--kernel-name-exclude", "kernel_substring=attention_flash_sm90");
  if (tool === "memcheck") return [...common, ...telling, "--report-api-errors", "no"];
  return tool === "initcheck" ? [...common, ...telling] : [...common, ...telling, ...nativeKernels];
}

function runUnder(tool: string, args: readonly string[], limitSeconds: number, canFilter = true): Finding {
  const script = fileURLToPath(new URL("./checked-ops.js", import.meta.url));
  const program = [process.execPath, script, ...args, ...commonArguments(options)];
  const startedAt = performance.now();
  // Use `timeout`, because it also ends the tool's child process.
  const command = ["-s", "KILL", String(limitSeconds), checker, ...toolOptions(tool, canFilter), ...program];
  const { stdout, stderr, error, status } = spawnSync("timeout", command, {
    encoding: "utf8",
    maxBuffer: 64 << 20,
  });
  const seconds = (performance.now() - startedAt) / 1000;
  const isOverdue = seconds >= limitSeconds;
  const ending = error?.message ?? (isOverdue ? `ended after ${limitSeconds} s` : `exit code ${status}`);
  const log = `${stdout ?? ""}${stderr ?? ""}\n(${ending})`.trim();
  // Versions of the tool have several names for that option.
  if (canFilter && /unrecogni[sz]ed option/i.test(log)) return runUnder(tool, args, limitSeconds, false);
  return { count: countChecksums(log), log, seconds };
}

function countChecksums(log: string): number | undefined {
  const races = log.match(/RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)/);
  if (races) return Number(races[1]) + Number(races[2]);
  const errors = log.match(/ERROR SUMMARY: (\d+) errors?/);
  return errors ? Number(errors[1]) : undefined;
}

function printLog(results: Results, title: string, log: string): void {
  const lines = log.split("\n");
  results.line(`--- ${title}`);
  for (const line of lines.slice(0, maxLines)) results.line(line);
  if (lines.length > maxLines) results.line(`… and ${lines.length - maxLines} lines more; the last are`);
  for (const line of lines.slice(Math.max(maxLines, lines.length - 4))) results.line(line);
  results.line();
}

/** Runs a tool's faulty kernels. True if its log names all of them. */
function checkRedProof(results: Results, tool: string): boolean {
  const { kernels } = strayRuns[tool] ?? { kernels: [] };
  const { log, count, seconds } = runUnder(tool, ["--stray", tool], 60);
  const unseen = kernels.filter((name) => !log.includes(name));
  printLog(results, `${tool}, faulty kernels, ${seconds.toFixed(0)} s`, log);
  return unseen.length === 0 && count !== undefined && count >= kernels.length;
}

function checkTool(results: Results, tool: string): void {
  const isSeen = checkRedProof(results, tool);
  const injected = strayRuns[tool]?.kernels.join(", ");
  results.require(isSeen, `${tool} red proof: ${isSeen ? "seen" : "NOT seen"}: ${injected}`);
  const { draws, elements, precisions } = options;
  checkRun(results, tool, "op suite", ["--draws", draws, "--elements", elements]);
  for (const precision of precisions.split(",")) {
    // racecheck takes minutes for the wide ones.
    const sizes = tool === "racecheck" ? "tiny" : "tiny,wide";
    checkRun(results, tool, `models in ${precision}`, ["--models", precision, "--sizes", sizes]);
  }
}

function checkRun(results: Results, tool: string, title: string, args: readonly string[]): void {
  const limit = count("seconds", options.seconds) + graceSeconds;
  const finding = runUnder(tool, [...args, "--seconds", options.seconds], limit);
  printLog(results, `${tool}, ${title}, ${finding.seconds.toFixed(0)} s`, finding.log);
  const [text, covered, all] = finding.log.match(/covered (\d+) of (\d+) .*/) ?? [`${title} did not finish`];
  results.require(
    finding.count === 0 && covered === all && covered !== undefined,
    `${tool}, ${title}: ${finding.count === undefined ? "no summary" : `${finding.count} findings`}; ${text}, ${finding.seconds.toFixed(0)} s`,
  );
}

const results = new Results("sanitizer", options);
results.line(`checker: ${checker}`);
for (const tool of options.tools.split(",")) await results.attempt(tool, () => checkTool(results, tool));
results.finish();
