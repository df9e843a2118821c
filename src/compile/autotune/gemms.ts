/**
 * Selects GEMM algorithms by measurement. The heuristic's first choice of cuBLASLt is often not the fastest, so each distinct GEMM is
 * timed once per process with every algorithm that the library offers, and with the native kernel if there is one.
 */

import { cublasLtKey, firstNativeAlgorithm } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { beat, type Clock, systemClock } from "../../units/index.js";
import { pdlCreditUs, timingTolerance } from "../cost-model.js";
import type { Call, GemmCall, Program } from "../program/program.js";
import { describeGemm } from "./gemm-desc.js";
import { withScratch } from "./gemm-scratch.js";
import { timeCandidates } from "./gemm-times.js";

/** The result of autotuning, for explain(). */
export interface GemmReport {
  /** The step's GEMMs, and how many do not use the library's first algorithm. */
  readonly gemms: number;
  readonly changed: number;
  /** Distinct GEMMs that were measured now; the others were known, or there was no time or memory left. */
  readonly measured: number;
  /** The total time of GEMMs with known times, with the library's first algorithms and with the selected ones. */
  readonly beforeUs: number;
  readonly afterUs: number;
  /** How long autotuning took. */
  readonly elapsedMs: number;
}

/** The result for one GEMM. */
interface Choice {
  readonly choice: number;
  readonly firstUs: number;
  readonly tunedUs: number;
}

export type KnownAlgorithms = Map<string, Choice>;

/** Of this process, by the device's name and the GEMM's description. */
const knownAlgorithms: KnownAlgorithms = new Map();

export interface ChoosingOptions {
  readonly known?: KnownAlgorithms;
  readonly clock?: Clock;
}

const maxGemmMs = 100;
const limitOfAllMs = 4000;

export function autotuneGemms(
  runtime: Runtime,
  program: Program,
  { known = knownAlgorithms, clock = systemClock }: ChoosingOptions = {},
): GemmReport {
  const startMs = clock.nowMs();
  const work = program.calls.flatMap(({ work }) => (work.kind === "gemm" ? [work] : []));
  const kinds = new Map(work.map((product) => [keyOf(runtime, product), product]));
  const unknown = [...kinds].filter(([key, { problem }]) => !known.has(key) && problem.k > 0);
  const measured = runtime.phases.run("compile", () => measure(runtime, unknown, known, clock), {
    label: "products",
  });

  let [changed, beforeUs, afterUs] = [0, 0, 0];
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "gemm") continue;
    const found = known.get(keyOf(runtime, call.work));
    beforeUs += found?.firstUs ?? 0;
    afterUs += found?.tunedUs ?? 0;
    if (!found || found.choice === 0) continue;
    changed++;
    const problem = withScratch(runtime, program, { ...call.work.problem, choice: found.choice });
    program.replace(node, { ...call, work: { kind: "gemm", problem } });
  }
  const elapsedMs = clock.nowMs() - startMs;
  return { gemms: work.length, changed, measured, beforeUs, afterUs, elapsedMs };
}

/** The algorithms of a program's GEMMs, for another program that must have the same bits. */
export function algorithmsIn(runtime: Runtime, calls: readonly Call[]): KnownAlgorithms {
  return new Map(
    calls.flatMap(({ work }) =>
      work.kind === "gemm"
        ? [[keyOf(runtime, work), { choice: work.problem.choice ?? 0, firstUs: 0, tunedUs: 0 }]]
        : [],
    ),
  );
}

function keyOf(runtime: Runtime, { problem }: GemmCall): string {
  return `${runtime.device.name}: ${cublasLtKey(runtime, describeGemm(problem))}`;
}

/** Times unknown GEMMs within the time limit; returns how many were measured. */
function measure(
  runtime: Runtime,
  unknown: readonly (readonly [key: string, product: GemmCall])[],
  known: KnownAlgorithms,
  clock: Clock,
): number {
  const endMs = clock.nowMs() + limitOfAllMs;
  let measured = 0;
  for (const [index, [key, { problem }]] of unknown.entries()) {
    beat("products", index, unknown.length);
    const noted = recallAlgorithm(runtime, key);
    if (noted) {
      known.set(key, noted);
      continue;
    }
    // Each gets a share of the remaining time, so that the last ones are measured too.
    const shareMs = (endMs - clock.nowMs()) / (unknown.length - index);
    if (shareMs <= 0) break;
    const limitMs = Math.min(maxGemmMs, shareMs);
    const choice = fastestOf(runtime, timeCandidates(runtime, problem, { limitMs, clock }));
    if (!choice) continue;
    known.set(key, choice);
    runtime.remember(noteOf(key), JSON.stringify(choice));
    measured++;
  }
  return measured;
}

/** The text changes when native kernels change, so that old results are measured again. */
const noteOf = (key: string): string => `GEMM algorithm with PDL for ${key}`;

/** The result of an earlier process, so that this one has the same bits. */
function recallAlgorithm(runtime: Runtime, key: string): Choice | undefined {
  const note = runtime.recall(noteOf(key));
  if (note === undefined) return undefined;
  try {
    const { choice, firstUs, tunedUs } = JSON.parse(note) as Partial<Choice>;
    const isSound =
      Number.isSafeInteger(choice) && typeof firstUs === "number" && typeof tunedUs === "number";
    return isSound ? ({ choice, firstUs, tunedUs } as Choice) : undefined;
  } catch {
    return undefined;
  }
}

/** The first in the library's order among the cheapest; undefined if nothing was timed. */
export function fastestOf(
  { device }: Pick<Runtime, "device">,
  times: ReadonlyMap<number, number>,
): Choice | undefined {
  const costOf = (choice: number, ownUs: number): number =>
    device.supportsPdl && choice <= firstNativeAlgorithm ? Math.max(0, ownUs - pdlCreditUs) : ownUs;
  const minUs = Math.min(...Array.from(times, ([choice, ownUs]) => costOf(choice, ownUs)));
  for (const [choice, tunedUs] of times) {
    if (costOf(choice, tunedUs) <= minUs * timingTolerance)
      return { choice, firstUs: times.get(0) ?? tunedUs, tunedUs };
  }
  return undefined;
}
