/** Lowers GEMMs to launches on CUDA: native kernels where they are faster, cuBLASLt elsewhere. */

import type { LaunchCommand } from "../../runtime/index.js";
import { type Bytes, bytes, span } from "../../units/index.js";
import { lowerRowOnCuda } from "../codegen/cuda/lower.js";
import type { Target } from "../target.js";
import { epilogueLaunch } from "./cpu/epilogue.js";
import { requireFloat } from "./cpu/lower.js";
import {
  libraryActivates,
  libraryAlgorithms,
  libraryWorkspaceBytes,
  lowerCublasLt,
} from "./cublaslt/cublaslt.js";
import {
  type EpilogueTarget,
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  rejected,
  requireSound,
} from "./desc.js";
import { dmmaConfigOf, lowerDmmaGemms } from "./dmma/index.js";
import {
  type EpilogueOn,
  lowerSm90Gemms,
  type Sm90Config,
  sm90BatchedConfig,
  sm90Candidates,
  sm90EpilogueConfig,
  sm90GroupedConfig,
} from "./sm90/index.js";

type Problem = GemmProblem<GemmInputDtype>;

export function lowerGemmOnCuda(target: Target, problem: Problem, op: string): readonly LaunchCommand[] {
  const gemm = lowerAlone(target, problem, op);
  if (!problem.activation || libraryActivates(target, problem)) return [gemm];
  // The activation alone: the bias came with the GEMM.
  requireFloat(problem);
  const { bias: _, biasBatchStride: __, ...unbiased } = problem;
  const epilogue = epilogueLaunch(unbiased, op);
  return epilogue ? [gemm, lowerRowOnCuda(epilogue)] : [gemm];
}

function lowerAlone(target: Target, problem: Problem, op: string): LaunchCommand {
  const dmma = dmmaConfigOf(target, [problem]);
  if (dmma) return lowerDmmaGemms([problem], dmma, op);
  const warpgroups = sm90BatchedConfig(target, problem) ?? selectedConfig(target, problem);
  if (warpgroups) return lowerSm90Gemms([problem], warpgroups, op);
  return lowerCublasLt(target, problem, op);
}

/**
 * Independent GEMMs in one launch; `canGroupGemms` says beforehand whether that is possible. In f32 their bits are those of
 * one launch for each; in TF32 and of half floats they may be rounded otherwise than a library's.
 */
export function lowerGroupedGemm(target: Target, problems: readonly Problem[], op: string): LaunchCommand {
  for (const problem of problems) requireSound(problem);
  const dmma = dmmaConfigOf(target, problems);
  if (dmma) return lowerDmmaGemms(problems, dmma, op);
  const warpgroups = sm90GroupedConfig(target, problems);
  if (warpgroups) return lowerSm90Gemms(problems, warpgroups, op);
  throw rejected("these GEMMs cannot run in one launch. Call canGroupGemms first.");
}

/**
 * A GEMM with an elementwise epilogue, in one launch; `canFuseEpilogue` says beforehand whether that is possible. C is needed
 * only where the epilogue stores it.
 */
export function lowerGemmEpilogue(
  target: Target,
  problem: EpilogueTarget,
  epilogue: EpilogueOn,
  op: string,
): LaunchCommand {
  requireSound(problem);
  const c = problem.c ?? { storage: { span: span(0, 0) }, rowStride: problem.n };
  const config = sm90EpilogueConfig(target, { ...problem, c }, epilogue);
  if (!config || (epilogue.storesC && !problem.c))
    throw rejected("this epilogue cannot be fused. Call canFuseEpilogue first.");
  return lowerSm90Gemms([problem], config, op, epilogue);
}

export function cudaScratchBytes(target: Target, problem: GemmDesc): Bytes {
  const isNative = hasNativeGemm(target, problem) || selectedConfig(target, problem) !== undefined;
  return bytes(isNative ? 0 : libraryWorkspaceBytes(target, problem));
}

/** The library's algorithms in its order, then the native kernels. Only the default where the kernel is native anyway. */
export function cudaCandidates(target: Target, problem: GemmDesc): readonly number[] {
  if (hasNativeGemm(target, problem)) return [0];
  const ofLibrary = Array.from({ length: libraryAlgorithms(target, problem) }, (_, choice) => choice);
  return [...ofLibrary, ...sm90Candidates(target, problem).map((_, index) => firstNativeAlgorithm - index)];
}

/** The native kernel that a problem's `algorithm` names. */
function selectedConfig(target: Target, problem: GemmDesc): Sm90Config | undefined {
  const { algorithm = 0 } = problem;
  return algorithm <= firstNativeAlgorithm
    ? sm90Candidates(target, problem)[firstNativeAlgorithm - algorithm]
    : undefined;
}

/** Is a native kernel used for this GEMM on its own, without a measurement? */
export function hasNativeGemm(target: Pick<Target, "device" | "settings">, problem: GemmDesc): boolean {
  return (dmmaConfigOf(target, [problem]) ?? sm90BatchedConfig(target, problem)) !== undefined;
}
