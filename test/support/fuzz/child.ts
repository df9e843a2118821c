/**
 * The process that is fuzzed. It gives one input after the other to a target and ends at the first that does harm: an error that
 * is no HoldfastError, a rejection that nobody handles, or too much memory. Its parent sees to crashes and to time.
 */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { HoldfastError } from "../../../src/errors/index.js";
import { MiB } from "../../../src/units/index.js";
import { mutate, SeededRandom } from "./mutate.js";
import type { FuzzTarget, GiveInput } from "./targets.js";

/** What the parent asks for, as the only argument. */
export interface FuzzTask {
  /** The module that has the targets. */
  readonly targetsUrl: string;
  readonly jobs: readonly FuzzJob[];
  /** An empty folder. */
  readonly folder: string;
  /** Where the present input is written before it is given. */
  readonly inputPath: string;
  readonly maxMemoryBytes: number;
  /** After seeds and files, mutants of all of them, from this seed, for so long for each job. */
  readonly seed: number;
  readonly durationMs: number;
}

export interface FuzzJob {
  readonly target: string;
  /** Inputs that are given after the target's own seeds. */
  readonly files: readonly string[];
}

/** What the process prints at its end. */
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
  const found = failure !== undefined && { failure };
  const report: FuzzReport = { target: present, ...counts, peakBytes: peakBytes(), ...found };
  writeFileSync(1, `${JSON.stringify(report)}\n`);
  process.exit(failure === undefined ? 0 : 3);
}

function peakBytes(): number {
  return process.resourceUsage().maxRSS * 1024;
}

function describe(what: string, error: unknown): string {
  return `${what}: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`;
}

process.on("unhandledRejection", (error) => end(describe("a rejection that nobody handles", error)));
process.on("uncaughtException", (error) => end(describe("an exception that nobody catches", error)));

async function tryInput(give: GiveInput, input: Uint8Array): Promise<void> {
  writeFileSync(task.inputPath, input);
  counts.inputs++;
  try {
    await give(input);
  } catch (error) {
    if (!(error instanceof HoldfastError)) end(describe("an error that is no HoldfastError", error));
    if (error.message.length > 4000) end(`a message of ${error.message.length} characters`);
    counts.rejected++;
  }
  // A rejection is told after the promises of this turn.
  await setImmediate();
  if (peakBytes() > task.maxMemoryBytes) end(`the process took ${Math.round(peakBytes() / MiB)} MiB`);
}

const { fuzzTargets } = (await import(task.targetsUrl)) as {
  readonly fuzzTargets: Readonly<Record<string, FuzzTarget>>;
};
for (const { target, files } of task.jobs) {
  present = target;
  const folder = join(task.folder, target);
  mkdirSync(folder);
  const own = fuzzTargets[target];
  if (!own) throw new Error(`There is no target "${target}".`);
  const seeds = [...own.seeds(folder), ...files.map((path) => new Uint8Array(readFileSync(path)))];
  const give = await own.open(folder);
  for (const seed of seeds) await tryInput(give, seed);
  const random = new SeededRandom(task.seed);
  const endMs = performance.now() + task.durationMs;
  while (performance.now() < endMs) {
    const drawn = random.below(2) === 0 ? own.draw?.(random) : undefined;
    await tryInput(give, drawn ?? mutate(random.pick(seeds), seeds, random));
  }
}
end();
