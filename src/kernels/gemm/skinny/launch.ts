/** Launches skinny GEMMs: one, or several of the same activations. */

import type { Parameter } from "../../../driver/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { maxSharedBytesPerBlock } from "../../cost-model.js";
import { argumentsInOrder } from "../../launch-arguments.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { accessToC, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import {
  countTiles,
  listGroupedSkinnyConfigs,
  listSkinnyConfigs,
  type SkinnyConfig,
  skinnySharedBytes,
} from "./configs.js";
import { skinnyParameters, skinnySource } from "./kernel.js";
import { listPrologueConfigs, type Prologue, printPrologue, prologueParameter } from "./prologue.js";

type TargetFacts = Pick<Target, "device" | "settings">;

/** The configs of a GEMM, in the order of its algorithms. */
export function skinnyCandidates(
  { device, settings }: TargetFacts,
  problem: GemmDesc,
): readonly SkinnyConfig[] {
  return listSkinnyConfigs(device, settings.precision, problem);
}

/** The configs of several GEMMs with the same A. */
export function groupedSkinnyCandidates(
  { device, settings }: TargetFacts,
  problems: readonly GemmDesc[],
): readonly SkinnyConfig[] {
  return listGroupedSkinnyConfigs(device, settings.precision, problems);
}

/** The configs of GEMMs whose A is computed in their launch. */
export function skinnyPrologueCandidates(
  { device, settings }: TargetFacts,
  problems: readonly GemmDesc[],
  prologue: Prologue,
): readonly SkinnyConfig[] {
  return listPrologueConfigs(device, settings.precision, problems, prologue);
}

/** One launch. Each CTA takes every n-th tile, so that it loads the activations once. With a prologue, the problems' A is not read. */
export function lowerSkinnyGemms(
  { device }: Pick<Target, "device">,
  problems: readonly GemmProblem<GemmInputDtype>[],
  config: SkinnyConfig,
  op: string,
  prologue?: Prologue,
): LaunchCommand {
  const accesses = problems.map(accessToC);
  const values: Record<string, Storage | number> = {};
  const printed = prologue && printPrologue(config, prologue);
  const source = printed && { printed: printed.source, accesses: accessesOf(prologue) };
  for (const [index, parameter] of (source?.printed.parameters ?? []).entries()) {
    const value = printed?.arguments[index];
    if (value !== undefined) values[prologueParameter(parameter)] = value;
  }
  let allTiles = 0;
  for (const [gemm, problem] of problems.entries()) {
    const { n, a, b, c, bias, biasBatchStride = 0 } = problem;
    const ofGemm = {
      ...{ a: a.storage, aStride: a.rowStride },
      ...{ [`b${gemm}`]: b.storage, [`c${gemm}`]: c.storage, [`n${gemm}`]: n },
      ...(bias && { [`bias${gemm}`]: bias, [`biasBatch${gemm}`]: biasBatchStride }),
      [`tiles${gemm}`]: countTiles({ n, batch: 1 }, config.groups),
      ...{ [`bStride${gemm}`]: b.rowStride, [`bBatch${gemm}`]: b.batchStride ?? 0 },
      ...{
        [`cStride${gemm}`]: c.rowStride,
        [`cBatch${gemm}`]: c.batchStride ?? 0,
        [`first${gemm}`]: allTiles,
      },
    };
    Object.assign(values, ofGemm);
    allTiles += countTiles(problem, config.groups);
  }
  const sharedPerSm = maxSharedBytesPerBlock(device);
  const resident = Math.max(
    1,
    Math.min(config.ctasPerSm, Math.floor(sharedPerSm / skinnySharedBytes(config))),
  );
  const key = `skinny gemm ${literalKey([accesses, config])} ${printed ? `${printed.key} ${literalKey(source?.accesses)}` : ""}`;
  return {
    ...{ kind: "launch", op, source: cachedSource(key, () => skinnySource(config, accesses, source)) },
    blocks: Math.min(allTiles, resident * device.parallelism),
    arguments: argumentsInOrder(skinnyParameters(config, accesses, source), { ...values, allTiles }),
  };
}

/** How the launch accesses the prologue's operands; undefined for A. */
function accessesOf({ kernel, operands }: Prologue): readonly (Parameter | undefined)[] {
  return operands.map((operand, index) => operand && (index < kernel.inputs.length ? "in" : "out"));
}
