/** Lowers GEMMs to launches on CUDA: native kernels if they are faster, cuBLASLt otherwise. */

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
  type Addend,
  type EpilogueTarget,
  firstNativeAlgorithm,
  type GemmDesc,
  type GemmInputDtype,
  type GemmProblem,
  rejected,
  requireValid,
} from "./desc.js";
import { exactGemmCandidates, lowerF32Gemms } from "./f32.js";
import {
  groupedSkinnyCandidates,
  lowerSkinnyGemms,
  type Prologue,
  type SkinnyConfig,
  skinnyCandidates,
  skinnyPrologueCandidates,
} from "./skinny/index.js";
import {
  type EpilogueOn,
  lowerSm90Gemms,
  type Sm90Config,
  sm90BatchedConfig,
  sm90Candidates,
  sm90EpilogueConfigs,
  sm90GroupedConfigs,
  sm90SumConfigs,
} from "./sm90/index.js";

type Problem = GemmProblem<GemmInputDtype>;

export function lowerGemmOnCuda(target: Target, problem: Problem, op: string): readonly LaunchCommand[] {
  const gemm = lowerSingle(target, problem, op);
  if (!problem.activation || libraryActivates(target, problem)) return [gemm];
  // The GEMM has added the bias already: only the activation remains.
  requireFloat(problem);
  const { bias: _, biasBatchStride: __, ...unbiased } = problem;
  const epilogue = epilogueLaunch(unbiased, op);
  return epilogue ? [gemm, lowerRowOnCuda(epilogue)] : [gemm];
}

function lowerSingle(target: Target, problem: Problem, op: string): LaunchCommand {
  const f32 = lowerF32Gemms(target, [problem], op);
  if (f32) return f32;
  const sm90 = sm90BatchedConfig(target, problem) ?? selectedConfig(target, problem);
  if (sm90) return lowerSm90Gemms([problem], sm90, op);
  const skinny = selectedSkinny(target, problem);
  if (skinny) return lowerSkinnyGemms(target, [problem], skinny, op);
  return lowerCublasLt(target, problem, op);
}

/**
 * Independent GEMMs in one launch. Requires `canGroupGemms`. In f32 the bits are those of separate launches; in TF32 and with 16-bit
 * operands they may differ from cuBLASLt's. `algorithm`: one of `groupedCandidates`.
 */
export function lowerGroupedGemm(
  target: Target,
  problems: readonly Problem[],
  op: string,
  algorithm = 0,
): LaunchCommand {
  for (const problem of problems) requireValid(problem);
  const f32 = lowerF32Gemms(target, problems, op);
  if (f32) return f32;
  const sm90 = sm90GroupedConfigs(target, problems)[algorithm];
  if (sm90) return lowerSm90Gemms(problems, sm90, op);
  const skinny = groupedSkinnyCandidates(target, problems)[algorithm];
  if (skinny) return lowerSkinnyGemms(target, problems, skinny, op);
  throw rejected("these GEMMs cannot run in one launch. Call canGroupGemms first.");
}

/**
 * A GEMM with an elementwise epilogue, in one launch. Requires `canFuseEpilogue`. C is needed only if the epilogue stores it.
 */
export function lowerGemmEpilogue(
  target: Target,
  problem: EpilogueTarget,
  epilogue: EpilogueOn,
  op: string,
): LaunchCommand {
  requireValid(problem);
  const c = problem.c ?? { storage: { span: span(0, 0) }, rowStride: problem.n };
  const config = sm90EpilogueConfigs(target, { ...problem, c }, epilogue)[problem.algorithm ?? 0];
  if (!config || (epilogue.storesC && !problem.c))
    throw rejected("this epilogue cannot be fused. Call canFuseEpilogue first.");
  return lowerSm90Gemms([problem], config, op, epilogue);
}

/** GEMMs of one row whose A a row kernel computes, in one launch. `algorithm`: one of `prologueCandidates`, which must not be empty. */
export function lowerGemmPrologue(
  target: Target,
  problems: readonly Problem[],
  prologue: Prologue,
  op: string,
  algorithm = 0,
): LaunchCommand {
  for (const problem of problems) requireValid(problem);
  const config = skinnyPrologueCandidates(target, problems, prologue)[algorithm];
  if (!config) throw rejected("this prologue cannot run in the launch. Call prologueCandidates first.");
  return lowerSkinnyGemms(target, problems, config, op, prologue);
}

/** A GEMM plus other products, in one launch. `algorithm`: one of `sumCandidates`, which must not be empty. */
export function lowerGemmSum(
  target: Target,
  problem: Problem,
  addends: readonly Addend[],
  op: string,
): LaunchCommand {
  requireValid(problem);
  for (const { a, b, k } of addends) requireValid({ ...problem, a, b, k });
  const config = sm90SumConfigs(target, problem, addends)[problem.algorithm ?? 0];
  if (!config) throw rejected("these products cannot be added in one launch. Call sumCandidates first.");
  return lowerSm90Gemms([problem], config, op, undefined, addends);
}

export function cudaScratchBytes(target: Target, problem: GemmDesc): Bytes {
  const isNative =
    hasNativeGemm(target, problem) ||
    selectedConfig(target, problem) !== undefined ||
    selectedSkinny(target, problem) !== undefined;
  return bytes(isNative ? 0 : libraryWorkspaceBytes(target, problem));
}

/** cuBLASLt's algorithms in its order, then the native kernels. Only the default if a native kernel is used without autotuning. */
export function cudaCandidates(target: Target, problem: GemmDesc): readonly number[] {
  if (hasNativeGemm(target, problem)) return [0];
  const ofLibrary = Array.from({ length: libraryAlgorithms(target, problem) }, (_, algorithm) => algorithm);
  const natives = sm90Candidates(target, problem).length + skinnyCandidates(target, problem).length;
  return [...ofLibrary, ...Array.from({ length: natives }, (_, index) => firstNativeAlgorithm - index)];
}

/** The native config that a problem's `algorithm` names; undefined for cuBLASLt's algorithms. */
function selectedConfig(target: Target, problem: GemmDesc): Sm90Config | undefined {
  const { algorithm = 0 } = problem;
  return algorithm <= firstNativeAlgorithm
    ? sm90Candidates(target, problem)[firstNativeAlgorithm - algorithm]
    : undefined;
}

/** The skinny config that a problem's `algorithm` names: they follow the other native configs. */
function selectedSkinny(target: Target, problem: GemmDesc): SkinnyConfig | undefined {
  const { algorithm = 0 } = problem;
  if (algorithm > firstNativeAlgorithm) return undefined;
  return skinnyCandidates(target, problem)[
    firstNativeAlgorithm - algorithm - sm90Candidates(target, problem).length
  ];
}

/** True if a native kernel computes this GEMM without autotuning. */
export function hasNativeGemm(target: Pick<Target, "device" | "settings">, problem: GemmDesc): boolean {
  return exactGemmCandidates(target, [problem]) > 0 || sm90BatchedConfig(target, problem) !== undefined;
}
