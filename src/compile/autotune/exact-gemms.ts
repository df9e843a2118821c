/**
 * Selects the tiles of float32 GEMMs by measurement, alone and in groups, where native kernels multiply exactly. Every tile has the same
 * bits, so eager code and other processes may use others.
 */

import { exactGemmCandidates } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, literalKey } from "../../units/index.js";
import { minMeasuredProducts } from "../cost-model.js";
import type { Call, GemmCall, GroupedGemmCall, Program, Work } from "../program/program.js";
import { addressOf, describeGemm } from "./gemm-desc.js";
import { choicesIn, type KnownChoices, type TunableKind, tuneCalls } from "./tune-calls.js";

type Problem = GemmCall["problem"];
type ExactGemmCall = GemmCall | GroupedGemmCall;

const knownGemms: KnownChoices = new Map();

const isGemm = (work: Work): work is ExactGemmCall => work.kind === "gemm" || work.kind === "grouped-gemm";

const problemsOf = (work: ExactGemmCall): readonly Problem[] =>
  work.kind === "gemm" ? [work.problem] : work.problems;

const countCandidates = (runtime: Runtime, work: ExactGemmCall): number =>
  exactGemmCandidates(runtime, problemsOf(work).map(describeGemm));

const countProducts = (work: ExactGemmCall): number =>
  problemsOf(work).reduce((sum, { m, n, k, batch = 1 }) => sum + m * n * k * batch, 0);

const exactGemms = (runtime: Runtime): TunableKind<ExactGemmCall> => ({
  name: "exact GEMM",
  maxCandidates: 4,
  isTunable: (work): work is ExactGemmCall =>
    isGemm(work) &&
    countProducts(work) >= minMeasuredProducts(runtime.device) &&
    countCandidates(runtime, work) > 1,
  key: (work) => literalKey(problemsOf(work).map(describe)),
  countCandidates,
  algorithmOf: (work) => problemsOf(work)[0]?.algorithm ?? 0,
  withAlgorithm: (_, work, algorithm) =>
    work.kind === "gemm"
      ? { ...work, problem: { ...work.problem, algorithm } }
      : { ...work, problems: work.problems.map((problem) => ({ ...problem, algorithm })) },
});

/** What the time of a GEMM depends on. A copy has at most 16 bytes. */
function describe({ m, n, k, batch = 1, a, b, c, bias, beta = 0 }: Problem) {
  const layouts = [a, b, c].map(({ slice, rowStride, batchStride = 0, ...layout }) => [
    ...[rowStride, batchStride, "isTransposed" in layout && layout.isTransposed === true],
    addressOf(slice) % 16,
  ]);
  return [m, n, k, batch, layouts, bias !== undefined, beta !== 0];
}

/** True if a GEMM has another tile than before. */
export function autotuneExactGemms(
  runtime: Runtime,
  program: Program,
  { known = knownGemms, clock }: { readonly known?: KnownChoices; readonly clock?: Clock } = {},
): boolean {
  return tuneCalls(exactGemms(runtime), runtime, program, { known, ...(clock && { clock }) });
}

/** The tiles of a program's GEMMs, for another program. */
export function exactAlgorithmsIn(runtime: Runtime, calls: readonly Call[]): KnownChoices {
  return choicesIn(exactGemms(runtime), runtime, calls);
}
