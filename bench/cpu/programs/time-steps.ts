/** Times one program of a contender in its own process, and prints the line of JSON that the runner reads. */

import { batchCount } from "./batches.js";
import { names, type ProgramName, type Workload, workload } from "./workloads.js";

/** The line that a contender's process prints. */
export interface ProgramReport {
  readonly version: string;
  /** The median of `count` steps. */
  readonly stepMs: number;
  readonly bestStepMs: number;
  readonly count: number;
  /** The losses of the first steps; all contenders should agree. */
  readonly firstLosses: readonly number[];
  /** The mean loss of the first and the last steps, one step for each batch. */
  readonly lossBefore: number;
  readonly lossAfter: number;
}

/** A training step: trains on a batch and returns the loss. */
export type Step = (batchIndex: number) => number | Promise<number>;

const [warmUpSteps, warmUpMs] = [40, 2000];
const [timedSteps, timedMs] = [200, 4000];
const minSteps = batchCount;

/** Times the program that the last argument of the process names. */
export async function timeSteps(
  version: string,
  prepare: (name: ProgramName, workload: Workload) => Step | Promise<Step>,
): Promise<void> {
  const name = names.find((known) => known === process.argv.at(-1));
  if (!name) throw new Error(`Name a program last: ${names.join(", ")}.`);
  const step = await prepare(name, workload(name));
  const losses: number[] = [];
  const run = async (limit: number, limitMs: number): Promise<number[]> => {
    const times: number[] = [];
    const endsAt = performance.now() + limitMs;
    while (times.length < minSteps || (times.length < limit && performance.now() < endsAt)) {
      const startedAt = performance.now();
      losses.push(await step(losses.length % batchCount));
      times.push(performance.now() - startedAt);
    }
    return times;
  };
  await run(warmUpSteps, warmUpMs);
  const times = (await run(timedSteps, timedMs)).sort((a, b) => a - b);
  const count = times.length;
  const mean = (some: readonly number[]): number => some.reduce((sum, loss) => sum + loss, 0) / some.length;
  const report: ProgramReport = {
    version,
    stepMs: (times[(count - 1) >> 1]! + times[count >> 1]!) / 2,
    bestStepMs: times[0]!,
    count,
    firstLosses: losses.slice(0, 3),
    lossBefore: mean(losses.slice(0, batchCount)),
    lossAfter: mean(losses.slice(-batchCount)),
  };
  console.log(JSON.stringify(report));
}
