/** A separate linear layer for each group of an input, in one batched GEMM. */

import { sum } from "../broadcast.js";
import { fitToOperand } from "../gradients.js";
import { stack } from "../movement/cat.js";
import { permute } from "../movement/reshape.js";
import { select } from "../movement/slice.js";
import { arrayAt, type KernelOp, type NoAttributes, type OperandType, typeAt } from "../op.js";
import { badShape, formatShape, isSameShape } from "../shape.js";
import { lowerGemm } from "./gemm.js";
import { matmul } from "./matmul.js";
import { promotedFloatDtype } from "./promoted-dtype.js";
import { stackStrided } from "./stack-strided.js";

interface Sizes {
  readonly rows: number;
  readonly groups: number;
  readonly width: number;
  readonly out: number;
}

/**
 * Operands: x [rows, groups, in], a weight [in, out] for each group, then a bias [out] for each group.
 * `result[r, g] = x[r, g] · weight[g] + bias[g]`
 *
 * Weights at equal distances in memory, such as the parameters of equal modules, are not copied.
 */
export const batchedLinear: KernelOp<NoAttributes> = {
  kind: "kernel",
  name: "batchedLinear",
  dependsOnAddresses: true,
  infer(operands) {
    const { rows, groups, out } = sizesOf(operands);
    return [{ shape: [rows, groups, out], dtype: promotedFloatDtype("batchedLinear", operands) }];
  },
  saves(needs) {
    const groups = (needs.length - 1) / 2;
    const weights = Array.from({ length: groups }, (_, group) => 1 + group);
    const needsWeights = weights.some((index) => needs[index]);
    return { operands: [...(needsWeights ? [0] : []), ...(needs[0] ? weights : [])] };
  },
  gradient(rule) {
    const { apply } = rule;
    const groupCount = rule.typeOf(0).shape[1] ?? 0;
    const groups = Array.from({ length: groupCount }, (_, group) => group);
    const byGroup = apply(permute, [rule.upstream], { axes: [1, 0, 2] }); // [groups, rows, out]
    const needsAny = (first: number): boolean => groups.some((group) => rule.needs(first + group));
    const inputGradient = () => {
      const weights = apply(
        stack,
        groups.map((group) => rule.operand(1 + group)),
        { axis: 0 },
      );
      const transposed = apply(permute, [weights], { axes: [0, 2, 1] }); // [groups, out, in]
      const gradient = apply(matmul, [byGroup, transposed]); // [groups, rows, in]
      return fitToOperand(rule, apply(permute, [gradient], { axes: [1, 0, 2] }), 0);
    };
    const weightGradients = () => {
      const transposed = apply(permute, [rule.operand(0)], { axes: [1, 2, 0] }); // [groups, in, rows]
      return apply(matmul, [transposed, byGroup]);
    };
    const biasGradients = () => apply(sum, [rule.upstream], { axes: 0 }); // [groups, out]
    const unstack = (first: number, stackedGradients: () => typeof byGroup) => {
      if (!needsAny(first)) return groups.map(() => undefined);
      const stacked = stackedGradients();
      return groups.map((group) =>
        rule.needs(first + group)
          ? fitToOperand(rule, apply(select, [stacked], { axis: 0, index: group }), first + group)
          : undefined,
      );
    };
    return [
      rule.needs(0) ? inputGradient() : undefined,
      ...unstack(1, weightGradients),
      ...unstack(1 + groupCount, biasGradients),
    ];
  },
  lower(lowering, operands, [output]) {
    if (!output?.storage) return;
    const { rows, groups, width, out } = sizesOf(operands);
    const x = arrayAt(operands, 0);
    const [rowStride = 0, groupStride = 0, columnStride = 0] = x.strides;
    const weights = operands.slice(1, 1 + groups).map((_, group) => arrayAt(operands, 1 + group));
    const biases = weights.map((_, group) => arrayAt(operands, 1 + groups + group));
    const bias = stackStrided(lowering, biases, [1, out]);
    lowerGemm(
      lowering,
      { ...x, shape: [groups, rows, width], strides: [groupStride, rowStride, columnStride] },
      stackStrided(lowering, weights, [width, out]),
      { ...output, shape: [groups, rows, out], strides: [out, groups * out, 1] },
      bias,
    );
  },
};

function sizesOf(operands: readonly OperandType[]): Sizes {
  const x = typeAt("batchedLinear", operands, 0);
  const [rows = 0, groups = 0, width = 0] = x.shape;
  if (x.shape.length !== 3 || operands.length !== 1 + 2 * groups) {
    throw badShape(
      "batchedLinear",
      `input ${formatShape(x.shape)} and ${operands.length - 1} weights and biases: the input is [rows, groups, in], with a ` +
        "weight and a bias for each group.",
    );
  }
  const out = groups > 0 ? (typeAt("batchedLinear", operands, 1).shape[1] ?? 0) : 0;
  for (let group = 0; group < groups; group++) {
    const weight = typeAt("batchedLinear", operands, 1 + group);
    const bias = typeAt("batchedLinear", operands, 1 + groups + group);
    if (isSameShape(weight.shape, [width, out]) && isSameShape(bias.shape, [out])) continue;
    throw badShape(
      "batchedLinear",
      `group ${group} has weight ${formatShape(weight.shape)} and bias ${formatShape(bias.shape)}: [${width}, ${out}] and ` +
        `[${out}] fit the input ${formatShape(x.shape)}.`,
    );
  }
  return { rows, groups, width, out };
}
