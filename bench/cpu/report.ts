/** Times a contender's step and GEMM in its own process, and prints the line of JSON that the runner reads. */

import { batchCount, gemmSize } from "./workload.js";

/** The report that a contender's process prints. A contender without a training step reports only the GEMM. */
export interface Report {
  readonly peer: string;
  readonly version: string;
  readonly step?: StepReport;
  readonly gemmMs: number;
  readonly bestGemmMs: number;
  readonly gflops: number;
}

export interface StepReport {
  /** The median of `count` runs. */
  readonly stepMs: number;
  readonly bestStepMs: number;
  readonly count: number;
  /** After the steps and before the GEMM, whose operands are not part of a step. */
  readonly peakRssBytes: number;
  /** Peak bytes of the step's tensors, if the contender can tell. */
  readonly stepBytes?: number;
  /** Losses of the first steps; all contenders should agree. */
  readonly losses: readonly number[];
}

export interface Contender {
  readonly peer: string;
  readonly version: string;
  /** Trains on a batch and returns the loss. */
  readonly step?: (batchIndex: number) => number | Promise<number>;
  /** Peak bytes of the step's tensors. */
  readonly stepBytes?: () => number;
  /** Creates the operands and returns the function that multiplies them. */
  readonly prepareGemm: () => () => unknown;
  /** Number of timed steps, and of steps before them; default: 20 and 3. */
  readonly steps?: number;
  readonly warmUp?: number;
}

export async function report(contender: Contender): Promise<void> {
  const { peer, version, step, prepareGemm, steps = 20, warmUp = 3 } = contender;
  const timed = step && (await reportSteps(step, steps, warmUp));
  const stepReport = timed && { ...timed, ...(contender.stepBytes && { stepBytes: contender.stepBytes() }) };
  const { median, best } = await time(prepareGemm(), 20, 3);
  const { m, n, k } = gemmSize;
  const line: Report = {
    peer,
    version,
    ...(stepReport && { step: stepReport }),
    gemmMs: median,
    bestGemmMs: best,
    gflops: (2 * m * n * k) / median / 1e6,
  };
  console.log(JSON.stringify(line));
}

async function reportSteps(
  step: (batchIndex: number) => number | Promise<number>,
  count: number,
  warmUp: number,
): Promise<StepReport> {
  const { median, best, returned } = await time((run) => step(run % batchCount), count, warmUp);
  // Node counts in KiB.
  const peakRssBytes = process.resourceUsage().maxRSS * 1024;
  return { stepMs: median, bestStepMs: best, count, peakRssBytes, losses: returned.slice(0, 5) };
}

async function time<T>(run: (index: number) => T | Promise<T>, count: number, warmUp: number) {
  const times: number[] = [];
  const returned: T[] = [];
  for (let index = 0; index < warmUp + count; index++) {
    const startedAt = performance.now();
    returned.push(await run(index));
    times.push(performance.now() - startedAt);
  }
  const sorted = times.slice(warmUp).sort((a, b) => a - b);
  const median = (sorted[(count - 1) >> 1]! + sorted[count >> 1]!) / 2;
  return { median, best: sorted[0]!, returned };
}
