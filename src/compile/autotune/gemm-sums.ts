/** Selects by measurement whether a sum of products is one launch, and with which tile. */

import { prefersSum, sumCandidates, trafficUs } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, literalKey } from "../../units/index.js";
import { pdlCreditUs } from "../cost-model.js";
import type { FusedSum } from "../fusion/gemm-sums.js";
import type { GemmSumCall } from "../program/kinds/gemm-sum.js";
import type { Call, Program } from "../program/program.js";
import { describeAddend, describeGemm } from "./gemm-desc.js";
import { timeFused } from "./time-fused.js";
import { choicesIn, type KnownChoices, type TunableKind, tuneCalls } from "./tune-calls.js";

const knownSums: KnownChoices = new Map();

const sums: TunableKind<GemmSumCall> = {
  name: "sum of products",
  maxCandidates: 4,
  isTunable: (work): work is GemmSumCall => work.kind === "gemm-sum",
  key({ problem, addends }) {
    const { m, n, k, dtype, resultDtype = dtype, bias, biasDtype = "f32", a, b } = problem;
    const products = [{ a, b, k }, ...addends];
    return literalKey([
      ...[m, n, dtype, resultDtype, bias && biasDtype, b.isTransposed === true],
      ...products.flatMap((one) => [one.k, one.a.rowStride, one.b.rowStride]),
    ]);
  },
  countCandidates: (runtime, { problem, addends }) =>
    sumCandidates(runtime, describeGemm(problem), addends.map(describeAddend)),
  algorithmOf: ({ problem }) => problem.algorithm ?? 0,
  withAlgorithm: (_, work, algorithm) => ({ ...work, problem: { ...work.problem, algorithm } }),
};

export function autotuneGemmSums(
  runtime: Runtime,
  program: Program,
  { known = knownSums, clock }: { readonly known?: KnownChoices; readonly clock?: Clock } = {},
): void {
  tuneCalls(sums, runtime, program, { known, ...(clock && { clock }) });
}

/** The tiles of a program's sums, for another program that must have the same bits. */
export function sumTilesIn(runtime: Runtime, calls: readonly Call[]): KnownChoices {
  return choicesIn(sums, runtime, calls);
}

/**
 * Measures sums, and their GEMMs alone. The elementwise additions are estimated by their traffic. For small results, and without
 * measurements, the estimate of the kernels decides.
 */
export function measureSums(
  runtime: Runtime,
  candidates: readonly FusedSum[],
  { known = knownSums, clock }: { readonly known?: KnownChoices; readonly clock?: Clock } = {},
): (candidate: FusedSum) => boolean {
  const tuning = { known, ...(clock && { clock }) };
  const timesOf = timeFused(sums, runtime, candidates, tuning);
  return (candidate) => {
    const { work, additions } = candidate;
    const times = timesOf(candidate);
    if (!times) return prefersSum(describeGemm(work.problem), work.addends);
    // Fused with its neighbours, an addition costs one more operand.
    const bytes = additions.length * work.problem.c.slice.size;
    return times.fusedUs < times.gemmsUs + trafficUs(runtime.device, bytes) + pdlCreditUs;
  };
}
