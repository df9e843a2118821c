/** Launches of wide products. */

import type { KernelSource } from "../../../driver/index.js";
import type { Runtime, Storage } from "../../../runtime/index.js";
import { literalKey } from "../../../units/index.js";
import { argumentsInOrder } from "../../codegen/wasm/wasm-function.js";
import { type AccessToC, accessToC, type GemmDesc, type GemmInputDtype, type GemmProblem } from "../desc.js";
import { type DmmaConfig, dmmaBlocks, dmmaConfigOf } from "./configs.js";
import { dmmaParameters, wideSource } from "./mainloop.js";

/** How one launch makes products on the runtime's device, where they are ours to make. */
export function dmmaGemmsOf(
  { device, settings }: Runtime,
  problems: readonly GemmDesc[],
): DmmaConfig | undefined {
  return dmmaConfigOf(device, settings.precision, problems);
}

/** One launch for products of one form that don't wait for each other. */
export function launchDmmaGemms(
  runtime: Runtime,
  problems: readonly GemmProblem<GemmInputDtype>[],
  form: DmmaConfig,
  op: string,
): void {
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
  const kernel = runtime.kernel(sourceOf(form, accesses));
  runtime.launch({
    ...{ op, kernel, blocks },
    arguments: argumentsInOrder(dmmaParameters(form, accesses), given),
  });
}

/** A runtime knows a kernel by its source's identity, so one is made for each form and kept. */
const made = new Map<string, KernelSource>();

function sourceOf(form: DmmaConfig, accesses: readonly AccessToC[]): KernelSource {
  const key = `${accesses.join(" ")} ${literalKey(form)}`;
  const known = made.get(key);
  if (known) return known;
  const source = wideSource(form, accesses);
  made.set(key, source);
  return source;
}
