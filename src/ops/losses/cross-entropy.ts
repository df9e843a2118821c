/**
 * crossEntropy: from logits to a loss in one pass over the rows, and back in one. There is no softmax whose logarithm
 * could be that of 0, and no one-hot matrix.
 */

import { dtypes } from "../../ir/index.js";
import type { DeviceArray } from "../device-array.js";
import { arrayAt, type KernelOp, type ValueType } from "../op.js";
import type { Shape } from "../shape.js";
import {
  type ClassLossAttributes,
  type ClassRows,
  checkLabels,
  classRowsOf,
  classStep,
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
  forwardKernel,
  scalarsOf,
  sharesKernel,
  type Variant,
} from "./cross-entropy-kernels.js";
import { hasFewClasses, lowerFewClasses, lowerFewClassesGradient } from "./few-classes.js";

export type CrossEntropyAttributes = ClassLossAttributes & {
  /** How much of the target is spread evenly over all classes, from 0 to 1. */
  readonly labelSmoothing?: number;
};

/** The operands that both directions begin with, and what follows from them. */
interface Given {
  readonly logits: DeviceArray;
  readonly target: DeviceArray;
  readonly weights: readonly DeviceArray[];
  readonly rows: ClassRows;
  readonly variant: Variant;
  readonly ignored: number;
  readonly scalars: readonly number[];
}

function givenOf(operands: readonly (DeviceArray | number)[], attributes: CrossEntropyAttributes): Given {
  const { ignoreIndex = defaultIgnoreIndex, labelSmoothing = 0, reduction = "mean" } = attributes;
  const [logits, target] = [arrayAt(operands, 0), arrayAt(operands, 1)];
  const weights = operands.slice(2, 3).filter((one) => typeof one === "object");
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
      classStep: classStep(logits, rows),
      weightStep: weights[0]?.strides[0] ?? 0,
      keep: 1 - labelSmoothing,
      spread: labelSmoothing / classes,
      classes,
    }),
  };
}

/**
 * Operands: logits [N, C], [N, C, …] or [C]; labels of that shape without the classes; weights [C] or none. The outputs
 * behind the loss are for backward: each row's largest logit and the logarithm of its sum, and what a mean was divided
 * by.
 */
export const crossEntropy: KernelOp<CrossEntropyAttributes> = {
  kind: "kernel",
  name: "crossEntropy",
  infer(operands, { reduction = "mean", labelSmoothing = 0 }) {
    const { input, rows } = inferClassRows("crossEntropy", operands);
    requireSmoothing("crossEntropy", labelSmoothing);
    const saved = (shape: Shape): ValueType => ({ shape, dtype: dtypes[input.dtype].compute });
    return [
      { shape: reduction === "none" ? rows.kept : [], dtype: input.dtype },
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
  lower(lowering, operands, [output, largest, logSum, divisor], attributes) {
    const given = givenOf(operands, attributes);
    const { logits, target, weights, rows, variant, scalars } = given;
    if (!output || !largest || !logSum) return;
    const { compute } = dtypes[logits.dtype];
    const isSingle = attributes.reduction === "none";
    const losses = isSingle ? output : lowering.scratchArray(rows.kept, compute);
    const counts = divisor && lowering.scratchArray(rows.kept, compute);
    const made = [losses, largest, logSum, ...(counts ? [counts] : [])];
    if (logits.storage && hasFewClasses(rows, variant)) lowerFewClasses(lowering, given, made);
    else if (logits.storage) {
      const kernel = forwardKernel(variant, losses.dtype);
      const inputs = [perElement(logits), perRow(target), ...weights.map(perClass)];
      launchClassRows(lowering, rows, kernel, [...inputs, ...made.map(perRow)], scalars);
    }
    if (!isSingle) lowerTotal(lowering, { losses, counts }, output, divisor);
  },
};

/** Operands: logits, labels, weights or 1, the upstream gradient, largest logits, logarithms, and a mean's divisor. */
const crossEntropyGradient: KernelOp<CrossEntropyAttributes> = {
  kind: "kernel",
  name: "crossEntropyGradient",
  noGradient: "gradients of gradients are not recorded",
  infer(operands) {
    const { shape, dtype } = inferClassRows("crossEntropyGradient", operands).input;
    return [{ shape, dtype }];
  },
  lower(lowering, operands, [output], attributes) {
    const given = givenOf(operands, attributes);
    const { logits, target, weights, rows, variant, scalars } = given;
    const [upstream, largest, logSum] = [arrayAt(operands, 3), arrayAt(operands, 4), arrayAt(operands, 5)];
    if (!output?.storage || !logits.storage) return;
    const divisor = variant.isMean ? [arrayAt(operands, 6)] : [];
    if (hasFewClasses(rows, variant)) {
      lowerFewClassesGradient(lowering, given, [largest, logSum, upstream, ...divisor], output);
      return;
    }
    const { compute } = dtypes[logits.dtype];
    const shares = (variant.isSmoothed ? ["total", "own", "every"] : ["own"]).map(() =>
      lowering.scratchArray(rows.kept, compute),
    );
    const ofRows = [upstream, target, ...divisor].map(perRow);
    launchClassRows(
      lowering,
      rows,
      sharesKernel(variant, upstream.dtype),
      [...ofRows, ...weights.map(perClass), ...shares.map(perRow)],
      scalars,
    );
    launchClassRows(lowering, rows, backwardKernel(variant), [
      perElement(logits),
      ...[target, largest, logSum, ...shares].map(perRow),
      ...(variant.isSmoothed ? weights.map(perClass) : []),
      perElement(output),
    ]);
  },
};
