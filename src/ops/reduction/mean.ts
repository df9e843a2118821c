/** mean over any axes. */

import { expandToOperand, sumReduction } from "../broadcast.js";
import { mul } from "../elementwise/arithmetic.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { axesOf, sizeOf } from "../shape.js";
import { lowerReduction } from "./reduce.js";
import { type ReductionAttributes, reducedCount, reducedStrides, reducedType, requireFloat } from "./rule.js";

export const mean: KernelOp<ReductionAttributes> = {
  kind: "kernel",
  name: "mean",
  infer(operands, attributes) {
    requireFloat("mean", typeAt("mean", operands, 0).dtype);
    return [reducedType("mean", operands, attributes)];
  },
  outputStrides: reducedStrides,
  gradient(rule) {
    const count = reducedCount(rule, "mean");
    return [expandToOperand(rule, "mean", rule.apply(mul, [rule.upstream, 1 / count]))];
  },
  lower(lowering, operands, [output], { axes }) {
    const input = arrayAt(operands, 0);
    const reducedAxes = axesOf("mean", axes, input.shape.length);
    const count = sizeOf(reducedAxes.map((axis) => input.shape[axis] ?? 1));
    // The mean of no elements is 0 · ∞ = NaN, as in PyTorch.
    if (output) lowerReduction(lowering, sumReduction, input, reducedAxes, output, 1 / count);
  },
};
