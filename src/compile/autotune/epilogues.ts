/**
 * Selects by measurement whether elementwise work runs in a GEMM's epilogue, with which tile, when its operands are loaded, and whether the
 * kernel is persistent. That changes no bit: every result is summed in the order of K.
 */

import { epilogueCandidates, trafficUs } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, literalKey } from "../../units/index.js";
import { pdlCreditUs } from "../cost-model.js";
import { type FusionCandidate, type FusionSelection, isProbablyFaster } from "../fusion/epilogue.js";
import type { GemmEpilogueCall } from "../program/kinds/gemm-epilogue.js";
import type { Call, GemmCall, Program } from "../program/program.js";
import { bytesOf } from "../program/traffic.js";
import { describeGemm } from "./gemm-desc.js";
import { timeFused } from "./time-fused.js";
import { choicesIn, type KnownChoices, type TunableKind, tuneCalls } from "./tune-calls.js";

const knownEpilogues: KnownChoices = new Map();

const epilogues: TunableKind<GemmEpilogueCall> = {
  name: "GEMM epilogue",
  maxCandidates: 6,
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

/**
 * Measures fused GEMMs, and the same GEMMs alone. The elementwise work alone is estimated by its traffic. For small GEMMs
 * the estimate of the kernels decides.
 */
export function measureFusions(
  runtime: Runtime,
  candidates: readonly FusionCandidate[],
  { known = knownEpilogues, clock }: { readonly known?: KnownChoices; readonly clock?: Clock } = {},
): FusionSelection {
  const tuning = { known, ...(clock && { clock }) };
  const stored = ({ fused, gemm }: FusionCandidate) => ({
    work: storedFused(runtime, fused.work),
    gemms: [storedGemm(runtime, gemm)],
  });
  const timesOf = timeFused(epilogues, runtime, candidates.map(stored), tuning);
  const estimate = isProbablyFaster(runtime);
  return (candidate) => {
    const times = timesOf(stored(candidate));
    if (!times) return estimate(candidate);
    const elementwiseUs = trafficUs(runtime.device, trafficOf(runtime, candidate));
    return times.fusedUs < times.gemmsUs + elementwiseUs + pdlCreditUs;
  };
}

/** The bytes that the elementwise work moves alone, with C as it will be stored. */
function trafficOf(runtime: Runtime, { gemm, rows }: FusionCandidate): number {
  const { read, written } = bytesOf(rows);
  const { size } = gemm.problem.c.slice;
  return read + written - (size - storedGemm(runtime, gemm).problem.c.slice.size);
}

/** The GEMM as it will be stored: in bf16, later phases store activations as bf16. */
function storedGemm(runtime: Runtime, { problem }: GemmCall): GemmCall {
  const { dtype, resultDtype = dtype, bias, c } = problem;
  if (
    runtime.settings.precision !== "bf16" ||
    dtype !== "bf16" ||
    resultDtype !== "f32" ||
    c.slice.buffer.storage
  )
    return { kind: "gemm", problem };
  const halved = <S extends { readonly size: number }>(slice: S): S => ({ ...slice, size: slice.size / 2 });
  return {
    kind: "gemm",
    problem: {
      ...{ ...problem, resultDtype: "bf16", c: { ...c, slice: halved(c.slice) } },
      ...(bias && { bias: halved(bias), biasDtype: "bf16" }),
    },
  };
}

function storedFused(runtime: Runtime, work: GemmEpilogueCall): GemmEpilogueCall {
  const { resultDtype, c } = storedGemm(runtime, { kind: "gemm", problem: work.problem }).problem;
  return work.epilogue.storesC
    ? { ...work, problem: { ...work.problem, ...(resultDtype && { resultDtype, biasDtype: "f32" }), c } }
    : work;
}
