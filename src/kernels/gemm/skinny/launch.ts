/** Launches skinny GEMMs: one, or several of the same activations. */

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

/** One launch. Each CTA takes every n-th tile, so that it loads the activations once. */
export function lowerSkinnyGemms(
  { device }: Pick<Target, "device">,
  problems: readonly GemmProblem<GemmInputDtype>[],
  config: SkinnyConfig,
  op: string,
): LaunchCommand {
  const accesses = problems.map(accessToC);
  const values: Record<string, Storage | number> = {};
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
  const key = `skinny gemm ${literalKey([accesses, config])}`;
  return {
    ...{ kind: "launch", op, source: cachedSource(key, () => skinnySource(config, accesses)) },
    blocks: Math.min(allTiles, resident * device.parallelism),
    arguments: argumentsInOrder(skinnyParameters(config, accesses), { ...values, allTiles }),
  };
}
