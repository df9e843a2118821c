/** Launches DMMA GEMMs. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../codegen/wasm/wasm-function.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { type AccessToC, accessToC, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import { countCtas, type DmmaConfig, selectDmmaConfig } from "./configs.js";
import { dmmaParameters, dmmaSource } from "./kernel.js";

/** The config of a group of GEMMs; undefined if DMMA cannot compute them, or not together. */
export function dmmaConfigOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problems: readonly GemmDesc[],
): DmmaConfig | undefined {
  return selectDmmaConfig(device, settings.precision, problems);
}

/** One launch for independent GEMMs of one config. */
export function lowerDmmaGemms(
  problems: readonly GemmProblem<GemmInputDtype>[],
  config: DmmaConfig,
  op: string,
): LaunchCommand {
  const accesses = problems.map(accessToC);
  let blocks = 0;
  const values: Record<string, Storage | number> = {};
  for (const [index, problem] of problems.entries()) {
    const { m, n, k, a, b, c, alpha = 1, beta = 0, bias, biasBatchStride = 0 } = problem;
    const parameters = {
      ...{ a: a.storage, b: b.storage, c: c.storage, bias: bias ?? c.storage },
      ...{ m, n, k, aStride: a.rowStride, bStride: b.rowStride, cStride: c.rowStride },
      ...{ aBatch: a.batchStride ?? 0, bBatch: b.batchStride ?? 0, cBatch: c.batchStride ?? 0 },
      ...{ biasBatch: biasBatchStride, alpha, beta, first: blocks },
    };
    for (const [name, value] of Object.entries(parameters)) values[`${name}${index}`] = value;
    blocks += countCtas(problem, config.tile);
  }
  return {
    ...{ kind: "launch", op, source: sourceOf(config, accesses), blocks },
    arguments: argumentsInOrder(dmmaParameters(config, accesses), values),
  };
}

function sourceOf(config: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  return cachedSource(`dmma gemm ${accesses.join(" ")} ${literalKey(config)}`, () =>
    dmmaSource(config, accesses),
  );
}
