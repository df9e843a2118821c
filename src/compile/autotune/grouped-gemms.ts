/** Selects the tile of a grouped GEMM, and over how many CTAs K is split, by measurement. Does the same for GEMMs with a prologue. */

import { kernelKey } from "../../ir/index.js";
import { groupedCandidates, maxGroupedConfigs, maxSkinnyRows } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, literalKey } from "../../units/index.js";
import { countCandidates as countPrologueCandidates } from "../fusion/gemm-prologues.js";
import type { BufferSlice, Call, GemmPrologueCall, GroupedGemmCall, Program } from "../program/program.js";
import { describeGemm } from "./gemm-desc.js";
import { choicesIn, type KnownChoices, type TunableKind, tuneCalls } from "./tune-calls.js";

const knownGroups: KnownChoices = new Map();

/** Groups with one algorithm need no measurement. */
const groupedGemmsOn = (runtime: Runtime): TunableKind<GroupedGemmCall> => ({
  name: "grouped GEMM",
  maxCandidates: maxGroupedConfigs,
  isTunable: (work): work is GroupedGemmCall =>
    work.kind === "grouped-gemm" && countCandidates(runtime, work) > 1,
  key: keyOf,
  countCandidates,
  algorithmOf: ({ algorithm = 0 }) => algorithm,
  withAlgorithm: (_, work, algorithm) => ({ ...work, algorithm }),
  weightsOf,
});

/** GEMMs of a few rows take the time of reading their weights. */
const weightsOf = ({ problems }: Pick<GroupedGemmCall, "problems">): readonly BufferSlice[] =>
  problems.every(({ m, a }) => m <= maxSkinnyRows && !a.isTransposed) ? problems.map(({ b }) => b.slice) : [];

const countCandidates = (runtime: Runtime, { problems }: GroupedGemmCall): number =>
  groupedCandidates(runtime, problems.map(describeGemm));

const gemmPrologues: TunableKind<GemmPrologueCall> = {
  name: "GEMM with a prologue",
  maxCandidates: maxGroupedConfigs,
  isTunable: (work): work is GemmPrologueCall => work.kind === "gemm-prologue",
  key: ({ rows, activations, ...work }) =>
    `${literalKey([kernelKey(rows.kernel), rows.iteration.row.size, activations])} ${keyOf(work)}`,
  countCandidates: countPrologueCandidates,
  algorithmOf: ({ algorithm = 0 }) => algorithm,
  withAlgorithm: (_, work, algorithm) => ({ ...work, algorithm }),
  weightsOf,
};

function keyOf({ problems }: Pick<GroupedGemmCall, "problems">): string {
  return literalKey(
    problems.map(({ m, n, k, batch = 1, dtype, resultDtype = dtype, bias, a, b, c }) => [
      ...[m, n, k, batch, dtype, resultDtype, bias !== undefined, b.isTransposed === true],
      ...[a, b, c].map(({ rowStride, batchStride = 0 }) => [rowStride, batchStride]),
    ]),
  );
}

export function autotuneGroupedGemms(
  runtime: Runtime,
  program: Program,
  { known = knownGroups, clock }: { readonly known?: KnownChoices; readonly clock?: Clock } = {},
): void {
  tuneCalls(groupedGemmsOn(runtime), runtime, program, { known, ...(clock && { clock }) });
  tuneCalls(gemmPrologues, runtime, program, { known, ...(clock && { clock }) });
}

/** The algorithms of a program's groups, for another program that must have the same bits. */
export function groupedAlgorithmsIn(runtime: Runtime, calls: readonly Call[]): KnownChoices {
  const groups = choicesIn(groupedGemmsOn(runtime), runtime, calls);
  return new Map([...groups, ...choicesIn(gemmPrologues, runtime, calls)]);
}

/** The groups with another algorithm than the default, sorted. Two programs with different ones may differ in their bits. */
export function tunedGroupsIn(calls: readonly Call[]): string {
  const groups = calls.flatMap(({ work }) =>
    (work.kind === "grouped-gemm" || work.kind === "gemm-prologue") && work.algorithm
      ? [`${work.kind} ${keyOf(work)} ${work.algorithm}`]
      : [],
  );
  return groups.sort().join(" ");
}
