/** Launches of products by warpgroups. */

import type { KernelSource } from "../../../driver/index.js";
import type { LaunchCommand, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../codegen/wasm/wasm-function.js";
import { cachedSource } from "../../source-cache.js";
import type { Target } from "../../target.js";
import { type AccessToC, accessToC, type EpilogueTarget, type GemmDesc } from "../desc.js";
import {
  batchConfigOf,
  type Epilogue,
  epilogueConfigOf,
  groupConfigOf,
  plainConfigsOf,
  prefersTransposed,
  type Sm90Config,
  warpgroupBlocks,
} from "./configs.js";
import { warpgroupParameters, warpgroupSource } from "./mainloop-ss.js";

/** A finish on its operands: the inputs, then the outputs. The result's own place among them is not looked at. */
export interface EpilogueOn extends Epilogue {
  readonly operands: readonly (Storage | undefined)[];
  readonly scalars: readonly number[];
}

/** How one launch makes products of the runtime's device, where they are ours to make together. */
export function warpgroupsOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problems: readonly GemmDesc[],
): Sm90Config | undefined {
  return groupConfigOf(device, settings.precision, problems);
}

/** How one launch makes a batch of products, where that is ours to make. */
export function warpgroupBatchOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): Sm90Config | undefined {
  return batchConfigOf(device, settings.precision, problem);
}

/** How our own kernels make a product that a library might make as well. */
export function warpgroupPlainsOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): readonly Sm90Config[] {
  return plainConfigsOf(device, settings.precision, problem);
}

/** Had a product better have its right side turned round? */
export function sm90PrefersTransposedB(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
): boolean {
  return prefersTransposed(device, settings.precision, problem);
}

/** How a product's kernel finishes its result, where it had better. */
export function sm90EpilogueOf(
  { device, settings }: Pick<Target, "device" | "settings">,
  problem: GemmDesc,
  finish: Epilogue,
): Sm90Config | undefined {
  return epilogueConfigOf(device, settings.precision, problem, finish);
}

/** One launch for products of one form that don't wait for each other, or for one with a finish. */
export function lowerWarpgroups(
  problems: readonly EpilogueTarget[],
  form: Sm90Config,
  op: string,
  finish?: EpilogueOn,
): LaunchCommand {
  const accesses = problems.map(({ c, ...rest }) => (c ? accessToC({ ...rest, c }) : "out"));
  let blocks = 0;
  const given: Record<string, Storage | number> = {};
  for (const [index, problem] of problems.entries()) {
    const { m, n, k, batch = 1, a, b, c, bias, biasBatchStride = 0 } = problem;
    const own = {
      ...{ a: a.storage, b: b.storage, c: c?.storage ?? a.storage, bias: bias ?? a.storage },
      ...{ m, n, k, batch, aStride: a.rowStride, bStride: b.rowStride, cStride: c?.rowStride ?? n },
      ...{ aBatch: a.batchStride ?? 0, bBatch: b.batchStride ?? 0, cBatch: c?.batchStride ?? 0 },
      ...{ biasBatch: biasBatchStride, first: blocks },
    };
    for (const [name, value] of Object.entries(own)) given[`${name}${index}`] = value;
    blocks += warpgroupBlocks(problem, form.tile);
  }
  if (finish) {
    const { inputs } = finish.kernel;
    for (const [index, storage] of finish.operands.entries()) {
      if (storage) given[index < inputs.length ? `in${index}` : `out${index - inputs.length}`] = storage;
    }
    for (const [index, value] of finish.scalars.entries()) given[`scalar${index}`] = value;
  }
  return {
    ...{ kind: "launch", op, source: sourceOf(form, accesses, finish), blocks },
    arguments: argumentsInOrder(warpgroupParameters(form, accesses, finish), given),
  };
}

function sourceOf(form: Sm90Config, accesses: readonly AccessToC[], finish?: Epilogue): KernelSource {
  const traits = finish && [finish.kernel, finish.product, finish.storesC, finish.forwarded];
  const key = `sm90 gemm ${literalKey([accesses, form, traits])}`;
  return cachedSource(key, () => warpgroupSource(form, accesses, finish));
}
