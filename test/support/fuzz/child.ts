/**
 * The process that is fuzzed. It gives one input after the other to a target and ends at the first that does
 * harm: an error that is not a HoldfastError, an unhandled rejection, or too much memory. Its parent detects
 * crashes and timeouts.
 */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { mutate, SeededRandom } from "./mutate.js";
import type { FuzzTarget, GiveInput } from "./targets.js";

/** The parent's request, as the only argument. */
export interface FuzzTask {
  /** The module that has the targets. */
  readonly targetsUrl: string;
  readonly jobs: readonly FuzzJob[];
  /** An empty folder. */
  readonly folder: string;
  /** The file that the current input is written to before it is used. */
  readonly inputPath: string;
  readonly maxMemoryBytes: number;
  /** After seeds and files, mutants of all of them, from this seed, for this long for each job. */
  readonly seed: number;
  readonly durationMs: number;
}

export interface FuzzJob {
  readonly target: string;
  /** Inputs after the target's own seeds. */
  readonly files: readonly string[];
}

/** The process's output at its end. */
export interface FuzzReport {
  /** The last one. */
  readonly target: string | undefined;
  readonly inputs: number;
  readonly rejected: number;
  readonly peakBytes: number;
  readonly failure?: string;
}

const task = JSON.parse(process.argv[2] ?? "{}") as FuzzTask;
const counts = { inputs: 0, rejected: 0 };
let present: string | undefined;

function end(failure?: string): never {
  const outcome = failure !== undefined && { failure };
  const report: FuzzReport = { target: present, ...counts, peakBytes: peakBytes(), ...outcome };
  writeFileSync(1, `${JSON.stringify(report)}\n`);
  process.exit(failure === undefined ? 0 : 3);
}

function peakBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}

function describe(what: string, error: unknown): string {
  return `${what}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
}

process.on("unhandledRejection", (error) => end(describe("an unhandled rejection", error)));
process.on("uncaughtException", (error) => end(describe("an uncaught exception", error)));

async function tryInput(give: GiveInput, input: Uint8Array): Promise<void> {
  writeFileSync(task.inputPath, input);
  counts.inputs++;
  try {
    await give(input);
  } catch (error) {
    // Loaded here, because targets that use nothing of the library start faster without it.
    const { HoldfastError } = await import("../../../src/errors/index.js");
    if (!(error instanceof HoldfastError)) end(describe("an error that is not a HoldfastError", error));
    if (error.message.length > 4000) end(`a message of ${error.message.length} characters`);
    counts.rejected++;
  }
  // A rejection is reported after the promises of this turn.
  await setImmediate();
  if (peakBytes() > task.maxMemoryBytes) end(`the process took ${Math.round(peakBytes() / 2 ** 20)} MiB`);
}

const { fuzzTargets } = (await import(task.targetsUrl)) as {
  readonly fuzzTargets: Readonly<Record<string, FuzzTarget>>;
};
for (const { target, files } of task.jobs) {
  present = target;
  const folder = join(task.folder, target);
  mkdirSync(folder);
  const chosen = fuzzTargets[target];
  if (!chosen) throw new Error(`Unknown target "${target}".`);
  const seeds = [...chosen.seeds(folder), ...files.map((path) => new Uint8Array(readFileSync(path)))];
  const give = await chosen.open(folder);
  for (const seed of seeds) await tryInput(give, seed);
  const random = new SeededRandom(task.seed);
  const endMs = performance.now() + task.durationMs;
  while (performance.now() < endMs) {
    const generated = random.below(2) === 0 ? chosen.draw?.(random) : undefined;
    await tryInput(give, generated ?? mutate(random.pick(seeds), seeds, random));
  }
}
end();
