/**
 * crossEntropy: from logits to a loss in one pass over the rows, and back in one pass. It computes no softmax, whose logarithm could
 * be log 0, and no one-hot matrix.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import type { DeviceArray } from "../device-array.js";
import { arrayAt, type KernelOp, type ValueType } from "../op.js";
import { requireFloat } from "../reduction/rule.js";
import type { Shape } from "../shape.js";
import {
  type ClassLossAttributes,
  type ClassRows,
  checkLabels,
  classRowsOf,
  classStride,
  defaultIgnoreIndex,
  inferClassRows,
  launchClassRows,
  lowerTotal,
  perClass,
  perElement,
  perRow,
  rejectWeightGradient,
  requireSmoothing,
} from "./class-rows.js";
import {
  backwardKernel,
  factorsKernel,
  forwardKernel,
  scalarsOf,
  type Variant,
} from "./cross-entropy-kernels.js";
import { hasFewClasses, lowerFewClasses, lowerFewClassesGradient } from "./few-classes.js";
import * as recorded from "./recorded-gradients.js";

export type CrossEntropyAttributes = ClassLossAttributes & {
  /** The share of the target that is distributed evenly over all classes, from 0 to 1. */
  readonly labelSmoothing?: number;
  /** The dtype of the loss; that of the logits without it. */
  readonly dtype?: Dtype;
};

/** The operands that forward and backward share, and values derived from them. */
interface CrossEntropyInputs {
  readonly logits: DeviceArray;
  readonly target: DeviceArray;
  readonly weights: readonly DeviceArray[];
  readonly rows: ClassRows;
  readonly variant: Variant;
  readonly ignored: number;
  readonly scalars: readonly number[];
}

function inputsOf(
  operands: readonly (DeviceArray | number)[],
  attributes: CrossEntropyAttributes,
): CrossEntropyInputs {
  const { ignoreIndex = defaultIgnoreIndex, labelSmoothing = 0, reduction = "mean" } = attributes;
  const [logits, target] = [arrayAt(operands, 0), arrayAt(operands, 1)];
  const weights = operands.slice(2, 3).filter((operand) => typeof operand === "object");
  const rows = classRowsOf(logits.shape);
  const { classes } = rows;
  return {
    ...{ logits, target, weights, rows, ignored: ignoreIndex },
    variant: {
      input: logits.dtype,
      target: target.dtype,
      weight: weights[0]?.dtype,
      isSmoothed: labelSmoothing > 0,
      isMean: reduction === "mean",
    },
    scalars: scalarsOf({
      ignored: ignoreIndex,
      classStride: classStride(logits, rows),
      weightStride: weights[0]?.strides[0] ?? 0,
      keep: 1 - labelSmoothing,
      smoothed: labelSmoothing / classes,
      classes,
    }),
  };
}

/**
 * Operands: logits [N, C], [N, C, …] or [C]; labels of that shape without the classes; optional weights [C]. The outputs after the
 * loss are for backward: each row's largest logit, the logarithm of its sum of exponentials, and a mean's divisor.
 */
export const crossEntropy: KernelOp<CrossEntropyAttributes> = {
  kind: "kernel",
  name: "crossEntropy",
  infer(operands, { reduction = "mean", labelSmoothing = 0, dtype }) {
    const { input, rows } = inferClassRows("crossEntropy", operands);
    requireSmoothing("crossEntropy", labelSmoothing);
    if (dtype !== undefined) requireFloat("crossEntropy", dtype);
    const loss = dtype ?? input.dtype;
    if (dtypes[loss].compute !== dtypes[input.dtype].compute)
      throw new HoldfastError(
        "BAD_DTYPE",
        `crossEntropy: a loss of ${loss} from logits of ${input.dtype}. Convert the logits first, with to("${loss}").`,
        { numbers: { op: "crossEntropy" } },
      );
    const saved = (shape: Shape): ValueType => ({ shape, dtype: dtypes[input.dtype].compute });
    return [
      { shape: reduction === "none" ? rows.kept : [], dtype: loss },
      saved(rows.kept),
      saved(rows.kept),
      ...(reduction === "mean" ? [saved([])] : []),
    ];
  },
  check: checkLabels,
  saves: (_, { reduction = "mean" }) => ({
    operands: [0, 1, 2],
    outputs: reduction === "mean" ? [1, 2, 3] : [1, 2],
  }),
  gradient(rule) {
    if (rule.needs(2)) rejectWeightGradient("crossEntropy");
    const { reduction = "mean" } = rule.attributes;
    if (rule.isRecorded) {
      return [recorded.crossEntropyGradient(rule, reduction === "mean" ? rule.constantOutput(3) : undefined)];
    }
    const hasWeights = rule.typeOf(2).shape.length > 0;
    const operands = [
      rule.operand(0),
      rule.operand(1),
      hasWeights ? rule.operand(2) : 1,
      rule.upstream,
      rule.output(1),
      rule.output(2),
      ...(reduction === "mean" ? [rule.output(3)] : []),
    ];
    return [rule.apply(crossEntropyGradient, operands, rule.attributes)];
  },
  lower(lowering, operands, [output, maxLogits, logSum, divisor], attributes) {
    const inputs = inputsOf(operands, attributes);
    const { logits, target, weights, rows, variant, scalars } = inputs;
    if (!output || !maxLogits || !logSum) return;
    const { compute } = dtypes[logits.dtype];
    const isUnreduced = attributes.reduction === "none";
    const losses = isUnreduced ? output : lowering.scratchArray(rows.kept, compute);
    const rowWeights = divisor && lowering.scratchArray(rows.kept, compute);
    const rowOutputs = [losses, maxLogits, logSum, ...(rowWeights ? [rowWeights] : [])];
    if (logits.storage && hasFewClasses(rows, variant)) lowerFewClasses(lowering, inputs, rowOutputs);
    else if (logits.storage) {
      const kernel = forwardKernel(variant, losses.dtype);
      const kernelInputs = [perElement(logits), perRow(target), ...weights.map(perClass)];
      launchClassRows(lowering, rows, kernel, [...kernelInputs, ...rowOutputs.map(perRow)], scalars);
    }
    if (!isUnreduced) lowerTotal(lowering, { losses, weights: rowWeights }, output, divisor);
  },
};

/** Operands: logits, labels, weights or 1, the upstream gradient, largest logits, logarithms of sums, and a mean's divisor. */
const crossEntropyGradient: KernelOp<CrossEntropyAttributes> = {
  kind: "kernel",
  name: "crossEntropyGradient",
  noGradient: "a recorded gradient is composed of other ops",
  infer(operands) {
    const { shape, dtype } = inferClassRows("crossEntropyGradient", operands).input;
    return [{ shape, dtype }];
  },
  lower(lowering, operands, [output], attributes) {
    const inputs = inputsOf(operands, attributes);
    const { logits, target, weights, rows, variant, scalars } = inputs;
    const [upstream, maxLogits, logSum] = [arrayAt(operands, 3), arrayAt(operands, 4), arrayAt(operands, 5)];
    if (!output?.storage || !logits.storage) return;
    const divisor = variant.isMean ? [arrayAt(operands, 6)] : [];
    if (hasFewClasses(rows, variant)) {
      lowerFewClassesGradient(lowering, inputs, [maxLogits, logSum, upstream, ...divisor], output);
      return;
    }
    const { compute } = dtypes[logits.dtype];
    const factors = (variant.isSmoothed ? ["total", "target", "class"] : ["target"]).map(() =>
      lowering.scratchArray(rows.kept, compute),
    );
    const rowInputs = [upstream, target, ...divisor].map(perRow);
    launchClassRows(
      lowering,
      rows,
      factorsKernel(variant, upstream.dtype),
      [...rowInputs, ...weights.map(perClass), ...factors.map(perRow)],
      scalars,
    );
    launchClassRows(lowering, rows, backwardKernel(variant), [
      perElement(logits),
      ...[target, maxLogits, logSum, ...factors].map(perRow),
      ...(variant.isSmoothed ? weights.map(perClass) : []),
      perElement(output),
    ]);
  },
};
