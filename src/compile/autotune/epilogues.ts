/** Selects the tiles of GEMMs with a fused epilogue by measurement. The tile changes no bit: every result is summed in the order of K. */

import { epilogueCandidates } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, literalKey } from "../../units/index.js";
import type { GemmEpilogueCall } from "../program/kinds/gemm-epilogue.js";
import type { Call, Program } from "../program/program.js";
import { describeGemm } from "./gemm-desc.js";
import { choicesIn, type KnownChoices, type TunableKind, tuneCalls } from "./tune-calls.js";

const knownEpilogues: KnownChoices = new Map();

const epilogues: TunableKind<GemmEpilogueCall> = {
  name: "GEMM epilogue",
  maxCandidates: 4,
  isTunable: (work): work is GemmEpilogueCall => work.kind === "gemm-epilogue",
  key({ problem, epilogue }) {
    const { m, n, k, dtype, resultDtype = dtype, bias, biasDtype = "f32", a, b } = problem;
    const { kernel, gemmInput, storesC, forwarded = [] } = epilogue;
    const layouts = [a.isTransposed === true, b.isTransposed === true, a.rowStride, b.rowStride];
    return literalKey([
      ...[m, n, k, dtype, resultDtype, bias && biasDtype, layouts],
      ...[kernel, gemmInput, storesC, forwarded],
    ]);
  },
  countCandidates: (runtime, { problem, epilogue }) =>
    epilogueCandidates(runtime, describeGemm(problem), epilogue),
  algorithmOf: ({ problem }) => problem.algorithm ?? 0,
  withAlgorithm: (_, work, algorithm) => ({ ...work, problem: { ...work.problem, algorithm } }),
};

export function autotuneEpilogues(
  runtime: Runtime,
  program: Program,
  { known = knownEpilogues, clock }: { readonly known?: KnownChoices; readonly clock?: Clock } = {},
): void {
  tuneCalls(epilogues, runtime, program, { known, ...(clock && { clock }) });
}

/** The tiles of a program's fused GEMMs, for another program that must have the same bits. */
export function epilogueTilesIn(runtime: Runtime, calls: readonly Call[]): KnownChoices {
  return choicesIn(epilogues, runtime, calls);
}
