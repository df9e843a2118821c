/** Launches of products by warpgroups. */

import type { KernelSource } from "../../../driver/index.js";
import type { Runtime, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../codegen/wasm/wasm-function.js";
import { type AccessToC, accessToC, type GemmOutline, type ProductToFinish } from "../desc.js";
import {
  batchFormOf,
  type Finish,
  finishFormOf,
  groupFormOf,
  plainFormsOf,
  prefersTurned,
  type WarpgroupForm,
  warpgroupBlocks,
} from "./configs.js";
import { warpgroupParameters, warpgroupSource } from "./mainloop-ss.js";

/** A finish on its operands: the inputs, then the outputs. The result's own place among them is not looked at. */
export interface FinishOn extends Finish {
  readonly operands: readonly (Storage | undefined)[];
  readonly scalars: readonly number[];
}

/** How one launch makes products of the runtime's device, where they are ours to make together. */
export function warpgroupsOf(
  { device, settings }: Runtime,
  problems: readonly GemmOutline[],
): WarpgroupForm | undefined {
  return groupFormOf(device, settings.precision, problems);
}

/** How one launch makes a batch of products, where that is ours to make. */
export function warpgroupBatchOf(
  { device, settings }: Runtime,
  problem: GemmOutline,
): WarpgroupForm | undefined {
  return batchFormOf(device, settings.precision, problem);
}

/** How our own kernels make a product that a library might make as well. */
export function warpgroupPlainsOf(
  { device, settings }: Runtime,
  problem: GemmOutline,
): readonly WarpgroupForm[] {
  return plainFormsOf(device, settings.precision, problem);
}

/** Had a product better have its right side turned round? */
export function warpgroupsPreferTurned({ device, settings }: Runtime, problem: GemmOutline): boolean {
  return prefersTurned(device, settings.precision, problem);
}

/** How a product's kernel finishes its result, where it had better. */
export function warpgroupFinishOf(
  { device, settings }: Runtime,
  problem: GemmOutline,
  finish: Finish,
): WarpgroupForm | undefined {
  return finishFormOf(device, settings.precision, problem, finish);
}

/** One launch for products of one form that don't wait for each other, or for one with a finish. */
export function launchWarpgroups(
  runtime: Runtime,
  problems: readonly ProductToFinish[],
  form: WarpgroupForm,
  op: string,
  finish?: FinishOn,
): void {
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
  runtime.launch({
    ...{ op, kernel: runtime.kernel(sourceOf(form, accesses, finish)), blocks },
    arguments: argumentsInOrder(warpgroupParameters(form, accesses, finish), given),
  });
}

/** A runtime knows a kernel by its source's identity, so one is made for each form and kept. */
const made = new Map<string, KernelSource>();

function sourceOf(form: WarpgroupForm, accesses: readonly AccessToC[], finish?: Finish): KernelSource {
  const traits = finish && [finish.kernel, finish.product, finish.keepsResult, finish.readBack];
  const key = literalKey([accesses, form, traits]);
  const known = made.get(key);
  if (known) return known;
  const source = warpgroupSource(form, accesses, finish);
  made.set(key, source);
  return source;
}
