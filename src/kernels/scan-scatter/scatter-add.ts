/** scatterAdd: adds rows or elements into an array at indices along an axis (the gradient of gather and indexSelect). */

import { HoldfastError } from "../../errors/index.js";
import type { Command } from "../../runtime/index.js";
import type { KernelCall } from "../kernel-call.js";
import { argumentsInOrder } from "../launch-arguments.js";
import { columnsOf } from "./element.js";
import type { ScatterAdd } from "./problem.js";
import { scatterKernel, scatterParameters, vectorsPerStrip } from "./scatter-kernels.js";
import { planStrips, requireAvailable } from "./strips.js";

/**
 * `target[o, index, i] += source[o, c, i]` in the order of c. So the bits do not depend on the number of threads. An index outside of
 * 0 … length − 1 is skipped, so that nothing is written outside of the target; the op reports it.
 *
 * ```js
 * // The gradient of an embedding of 3072 tokens: table [50_000, 256], gradient [3072, 256].
 * const shape = { outer: 1, length: 50_000, inner: 256, count: 3072 };
 * const scatter = { dtype: "f32", ...shape, index: tokens, isIndexShared: true, source, target };
 * submit(runtime, scatterAddCalls(scatter));
 * ```
 */
export function scatterAddCalls(scatter: ScatterAdd, op = "scatterAdd"): readonly KernelCall[] {
  const { dtype, outer, length, inner, count, index, isIndexShared, source, target, strides } = scatter;
  const targetShape = [outer, length, inner];
  const sourceShape = strides
    ? [(outer - 1) * strides.outerSource + (count - 1) * strides.sourceRow + inner]
    : [outer, count, inner];
  requireAvailable(
    op,
    { outer, length, inner, count },
    {
      index: { storage: index, dtype: "i32", shape: isIndexShared ? [count] : sourceShape },
      source: { storage: source, dtype, shape: sourceShape },
      target: { storage: target, dtype, shape: targetShape },
    },
  );
  if (targetShape.includes(0)) return [];
  if (count > 0) return [{ kind: "scatter", op, problem: scatter }];
  return scatter.overwrites ? [{ kind: "fill", target, byte: 0 }] : [];
}

export function lowerScatterAddOnWasm(scatter: ScatterAdd, op: string): readonly Command[] {
  if (scatter.strides)
    throw new HoldfastError(
      "UNSUPPORTED",
      `${op}: strides need a GPU. Copy the operands to contiguous memory.`,
    );
  const { dtype, outer, length, inner, count, index, isIndexShared, source, target, overwrites } = scatter;
  const plan = planStrips(outer, inner, count, columnsOf(dtype, vectorsPerStrip));
  return [
    ...(overwrites ? [{ kind: "fill", target, byte: 0 } as const] : []),
    {
      ...{ kind: "launch", op },
      source: scatterKernel(dtype, isIndexShared ? "shared" : "each"),
      blocks: plan.blocks,
      arguments: argumentsInOrder(scatterParameters, {
        ...plan.arguments,
        ...{ index, source, target, length, count },
      }),
    },
  ];
}
