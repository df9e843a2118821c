/**
 * Selects GEMM algorithms by measurement. The first algorithm of cuBLASLt's heuristic is often not the fastest. So each
 * distinct GEMM is timed once per machine: with every algorithm that the library offers, and with the native kernel if
 * there is one. The driver's notes keep the results.
 */

import { cublasLtKey, firstNativeAlgorithm } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat, type Clock, systemClock } from "../../units/index.js";
import { pdlCreditUs, timingTolerance } from "../cost-model.js";
import type { Call, GemmCall, Program } from "../program/program.js";
import { describeGemm } from "./gemm-desc.js";
import { withScratch } from "./gemm-scratch.js";
import { candidateSources, scratchSizes, timeCandidates } from "./gemm-times.js";
import { tunerName } from "./tune-calls.js";

/** The result of autotuning, for explain(). */
export interface GemmReport {
  /** The step's GEMMs, and how many do not use the library's first algorithm. */
  readonly gemms: number;
  readonly changed: number;
  /** Distinct GEMMs that were measured now. The others had results already, or no time or memory was left. */
  readonly measured: number;
  /** The total time of GEMMs with known times, with the library's first algorithms and with the selected ones. */
  readonly beforeUs: number;
  readonly afterUs: number;
  /** The duration of autotuning. */
  readonly elapsedMs: number;
}

/** The result for one GEMM. */
interface TunedGemm {
  readonly choice: number;
  readonly firstUs: number;
  readonly tunedUs: number;
}

export type KnownAlgorithms = Map<string, TunedGemm>;

/** Results of this process, by the name of the device and the description of the GEMM. */
const knownAlgorithms: KnownAlgorithms = new Map();

export interface AutotuneOptions {
  readonly known?: KnownAlgorithms;
  readonly clock?: Clock;
}

const maxGemmMs = 100;
const maxTotalMs = 4000;

export function autotuneGemms(
  runtime: Runtime,
  program: Program,
  { known = knownAlgorithms, clock = systemClock }: AutotuneOptions = {},
): GemmReport {
  const startMs = clock.nowMs();
  const work = program.calls.flatMap(({ work }) => (work.kind === "gemm" ? [work] : []));
  const measured = measureGemms(runtime, work, { known, clock });

  let [changed, beforeUs, afterUs] = [0, 0, 0];
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "gemm") continue;
    const found = known.get(keyOf(runtime, call.work));
    beforeUs += found?.firstUs ?? 0;
    afterUs += found?.tunedUs ?? 0;
    if (!found || found.choice === 0) continue;
    changed++;
    const problem = withScratch(runtime, program, { ...call.work.problem, algorithm: found.choice });
    program.replace(node, { ...call, work: { kind: "gemm", problem } });
  }
  const elapsedMs = clock.nowMs() - startMs;
  return { gemms: work.length, changed, measured, beforeUs, afterUs, elapsedMs };
}

/** Times the GEMMs that are not known yet; returns how many were measured. */
export function measureGemms(
  runtime: Runtime,
  gemms: readonly GemmCall[],
  { known = knownAlgorithms, clock = systemClock }: AutotuneOptions = {},
): number {
  const kinds = new Map(gemms.map((gemm) => [keyOf(runtime, gemm), gemm]));
  const unknown = [...kinds].filter(([key, { problem }]) => !known.has(key) && problem.k > 0);
  return runtime.phases.run("compile", () => measure(runtime, unknown, known, clock), { label: "GEMMs" });
}

/** The time of a GEMM with its fastest algorithm; undefined if it was not measured. */
export function tunedUsOf(
  runtime: Runtime,
  gemm: GemmCall,
  { known = knownAlgorithms }: AutotuneOptions = {},
): number | undefined {
  return known.get(keyOf(runtime, gemm))?.tunedUs;
}

/** The algorithms of a program's GEMMs, for another program that must have the same bits. */
export function algorithmsIn(runtime: Runtime, calls: readonly Call[]): KnownAlgorithms {
  return new Map(
    calls.flatMap(({ work }) =>
      work.kind === "gemm"
        ? [[keyOf(runtime, work), { choice: work.problem.algorithm ?? 0, firstUs: 0, tunedUs: 0 }]]
        : [],
    ),
  );
}

function keyOf(runtime: Runtime, { problem }: GemmCall): string {
  return `${tunerName(runtime)}: ${cublasLtKey(runtime, describeGemm(problem))}`;
}

/** Times unknown GEMMs within the time limit; returns how many were measured. */
function measure(
  runtime: Runtime,
  unknown: readonly (readonly [key: string, gemm: GemmCall])[],
  known: KnownAlgorithms,
  clock: Clock,
): number {
  const unmeasured = unknown.filter(([key]) => {
    beat();
    const recalled = recallAlgorithm(runtime, key);
    if (recalled) known.set(key, recalled);
    return !recalled;
  });
  if (runtime.choices.isFollowing) return 0;
  // Compiled before the clock starts: that takes longer than all trials.
  runtime.loadKernels(unmeasured.flatMap(([, { problem }]) => candidateSources(runtime, problem)));
  const endMs = clock.nowMs() + maxTotalMs;
  let measured = 0;
  for (const [index, [key, { problem }]] of unmeasured.entries()) {
    beat("GEMMs", index, unmeasured.length);
    // Each GEMM gets a share of the remaining time, so that the last ones are measured too.
    const shareMs = (endMs - clock.nowMs()) / (unmeasured.length - index);
    if (shareMs <= 0) break;
    const limitMs = Math.min(maxGemmMs, shareMs);
    const times = timeCandidates(runtime, problem, { limitMs, clock });
    const fastest = fastestOf(runtime, times, scratchSizes(runtime, problem));
    if (!fastest) continue;
    known.set(key, fastest);
    runtime.remember(noteOf(key), JSON.stringify(fastest));
    measured++;
  }
  return measured;
}

/** The text changes when native kernels change, so that old results are measured again. */
const noteOf = (key: string): string =>
  `GEMM algorithm with PDL, uniform descriptors, fitted tiles and skinny kernels for ${key}`;

/** The result of an earlier process, so that this one has the same bits. */
function recallAlgorithm(runtime: Runtime, key: string): TunedGemm | undefined {
  const note = runtime.recall(noteOf(key));
  if (note === undefined) return undefined;
  try {
    const { choice, firstUs, tunedUs } = JSON.parse(note) as Partial<TunedGemm>;
    const isValid =
      Number.isSafeInteger(choice) && typeof firstUs === "number" && typeof tunedUs === "number";
    return isValid ? ({ choice, firstUs, tunedUs } as TunedGemm) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * The fastest algorithm; of about equal ones, the first in the library's order of those with the least scratch memory. Undefined if
 * nothing was timed.
 */
export function fastestOf(
  { device }: Pick<Runtime, "device">,
  times: ReadonlyMap<number, number>,
  scratchBytes: ReadonlyMap<number, number> = new Map(),
): TunedGemm | undefined {
  const costOf = (choice: number, launchUs: number): number =>
    device.supportsPdl && choice <= firstNativeAlgorithm ? Math.max(0, launchUs - pdlCreditUs) : launchUs;
  const minUs = Math.min(...Array.from(times, ([choice, launchUs]) => costOf(choice, launchUs)));
  const equal = [...times].filter(([choice, tunedUs]) => costOf(choice, tunedUs) <= minUs * timingTolerance);
  const scratchOf = (choice: number): number => scratchBytes.get(choice) ?? 0;
  const minScratch = Math.min(...equal.map(([choice]) => scratchOf(choice)));
  const [selected] = equal.filter(([choice]) => scratchOf(choice) === minScratch);
  if (!selected) return undefined;
  const [choice, tunedUs] = selected;
  return { choice, firstUs: times.get(0) ?? tunedUs, tunedUs };
}
