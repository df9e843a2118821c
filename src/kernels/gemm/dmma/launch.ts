/** Launches of wide products. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../codegen/wasm/wasm-function.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { type AccessToC, accessToC, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import { type DmmaConfig, dmmaBlocks, dmmaConfigOf } from "./configs.js";
import { dmmaParameters, wideSource } from "./mainloop.js";

/** How one launch makes products on the runtime's device, where they are ours to make. */
export function dmmaGemmsOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problems: readonly GemmDesc[],
): DmmaConfig | undefined {
  return dmmaConfigOf(device, settings.precision, problems);
}

/** One launch for products of one form that don't wait for each other. */
export function lowerDmmaGemms(
  problems: readonly GemmProblem<GemmInputDtype>[],
  form: DmmaConfig,
  op: string,
): LaunchCommand {
  const accesses = problems.map(accessToC);
  let blocks = 0;
  const given: Record<string, Storage | number> = {};
  for (const [index, problem] of problems.entries()) {
    const { m, n, k, a, b, c, alpha = 1, beta = 0, bias, biasBatchStride = 0 } = problem;
    const own = {
      ...{ a: a.storage, b: b.storage, c: c.storage, bias: bias ?? c.storage },
      ...{ m, n, k, aStride: a.rowStride, bStride: b.rowStride, cStride: c.rowStride },
      ...{ aBatch: a.batchStride ?? 0, bBatch: b.batchStride ?? 0, cBatch: c.batchStride ?? 0 },
      ...{ biasBatch: biasBatchStride, alpha, beta, first: blocks },
    };
    for (const [name, value] of Object.entries(own)) given[`${name}${index}`] = value;
    blocks += dmmaBlocks(problem, form.tile);
  }
  return {
    ...{ kind: "launch", op, source: sourceOf(form, accesses), blocks },
    arguments: argumentsInOrder(dmmaParameters(form, accesses), given),
  };
}

function sourceOf(form: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  return cachedSource(`dmma gemm ${accesses.join(" ")} ${literalKey(form)}`, () =>
    wideSource(form, accesses),
  );
}
