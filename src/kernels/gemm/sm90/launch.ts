/** Launches native Hopper GEMMs. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { type AccessToC, type Addend, accessToC, type EpilogueTarget, type GemmDesc } from "../desc.js";
import { groupArguments } from "../group-launch.js";
import type { Epilogue, Sm90Config } from "./configs.js";
import { listGroupedConfigs } from "./grouped-configs.js";
import { sm90Parameters, sm90Source } from "./kernel.js";
import { addendArguments } from "./products.js";
import { selectProjectionConfig } from "./projection-configs.js";
import {
  listCandidates,
  listEpilogueConfigs,
  prefersFusedEpilogue,
  prefersTransposed,
  selectBatchedConfig,
  selectOperandToTranspose,
} from "./select-config.js";
import { listSumConfigs, prefersSum } from "./sum-configs.js";
import { countCtas } from "./tiles.js";

/** An epilogue with its operands: the inputs, then the outputs. The operand of `gemmInput` is ignored. */
export interface EpilogueOn extends Epilogue {
  readonly operands: readonly (Storage | undefined)[];
  readonly scalars: readonly number[];
}

/** The configs of a grouped GEMM, in the order of its algorithms; none if no native kernel computes it. */
export function sm90GroupedConfigs(
  { device, settings }: Pick<Target, "device" | "settings">,
  problems: readonly GemmDesc[],
): readonly Sm90Config[] {
  return listGroupedConfigs(device, settings.precision, problems);
}

/** True if the GEMM is a projection to a few columns, which a group computes with others. */
export function isSm90Projection(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): boolean {
  return selectProjectionConfig(device, settings.precision, [problem]) !== undefined;
}

/** The config of a batched GEMM; undefined if cuBLASLt computes it. */
export function sm90BatchedConfig(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): Sm90Config | undefined {
  return selectBatchedConfig(device, settings.precision, problem);
}

/** The native candidates for a GEMM that cuBLASLt can compute too. */
export function sm90Candidates(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): readonly Sm90Config[] {
  return listCandidates(device, settings.precision, problem);
}

/** True if the GEMM runs faster with a K-major B. */
export function sm90PrefersTransposedB(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): boolean {
  return prefersTransposed(device, settings.precision, problem);
}

/** The operand of a GEMM with two MN-major ones whose K-major copy gains more than it costs. */
export function sm90OperandToTranspose(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): "a" | "b" | undefined {
  return selectOperandToTranspose(device, settings.precision, problem);
}

/** The configs of a GEMM with a fused epilogue, in the order of its algorithms; none if no native kernel computes it. */
export function sm90EpilogueConfigs(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
  epilogue: Epilogue,
): readonly Sm90Config[] {
  return listEpilogueConfigs(device, settings.precision, problem, epilogue);
}

/** True if a fused epilogue is probably faster than two launches. */
export function sm90PrefersFusedEpilogue(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
  epilogue: Epilogue,
): boolean {
  return prefersFusedEpilogue(device, settings.precision, problem, epilogue);
}

/** The configs of a GEMM plus other products, in the order of its algorithms; none if no native kernel computes it. */
export function sm90SumConfigs(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
  addends: readonly Addend<GemmDesc["a"]>[],
): readonly Sm90Config[] {
  return listSumConfigs(device, settings.precision, problem, addends);
}

/** True if such a sum is probably faster as one launch. */
export const sm90PrefersSum = prefersSum;

/** One launch for independent GEMMs of one config, for one GEMM with its epilogue, or for the sum of one GEMM and other products. */
export function lowerSm90Gemms(
  problems: readonly EpilogueTarget[],
  config: Sm90Config,
  op: string,
  epilogue?: EpilogueOn,
  addends: readonly Addend[] = [],
): LaunchCommand {
  const accesses = problems.map(({ c, ...rest }) => (c ? accessToC({ ...rest, c }) : "out"));
  const { values, ctas } = groupArguments(problems, (problem) => countCtas(problem, config.tile));
  Object.assign(values, addendArguments(addends));
  if (epilogue) {
    const { inputs } = epilogue.kernel;
    for (const [index, storage] of epilogue.operands.entries()) {
      if (storage) values[index < inputs.length ? `in${index}` : `out${index - inputs.length}`] = storage;
    }
    for (const [index, value] of epilogue.scalars.entries()) values[`scalar${index}`] = value;
  }
  return {
    ...{ kind: "launch", op, source: sourceOf(config, accesses, epilogue) },
    blocks: Math.min(ctas, config.maxCtas ?? ctas),
    arguments: argumentsInOrder(sm90Parameters(config, accesses, epilogue), values),
  };
}

function sourceOf(config: Sm90Config, accesses: readonly AccessToC[], epilogue?: Epilogue): KernelSource {
  const traits = epilogue && [epilogue.kernel, epilogue.gemmInput, epilogue.storesC, epilogue.forwarded];
  const key = `sm90 gemm ${literalKey([accesses, config, traits])}`;
  return cachedSource(key, () => sm90Source(config, accesses, epilogue));
}
