/** crossEntropyOfProbabilities: the cross entropy of logits with a target of class probabilities. */

import { sum } from "../broadcast.js";
import { add, mul } from "../elementwise/arithmetic.js";
import { reshape } from "../movement/reshape.js";
import { logSoftmax } from "../normalisation/softmax.js";
import { type CompositeOp, isType, typeAt } from "../op.js";
import { requireFloat } from "../reduction/rule.js";
import { badShape, formatShape, isSameShape, sizeOf } from "../shape.js";
import { classRowsOf, type LossReduction, requireSmoothing } from "./class-rows.js";

export type SoftCrossEntropyAttributes = {
  readonly labelSmoothing?: number;
  readonly reduction?: LossReduction;
};

const name = "crossEntropyOfProbabilities";

/** Operands: logits [N, C], [N, C, …] or [C]; probabilities of the same shape; optional weights [C]. A mean is over the rows. */
export const crossEntropyOfProbabilities: CompositeOp<SoftCrossEntropyAttributes> = {
  kind: "composite",
  name,
  infer(operands, { reduction = "mean", labelSmoothing = 0 }) {
    requireSmoothing(name, labelSmoothing);
    const [input, target, weight] = [typeAt(name, operands, 0), typeAt(name, operands, 1), operands[2]];
    for (const { dtype } of [input, target]) requireFloat(name, dtype);
    const { kept, classes } = classRowsOf(input.shape);
    if (input.shape.length === 0 || !isSameShape(input.shape, target.shape)) {
      throw badShape(
        name,
        `input ${formatShape(input.shape)} and a target of ${target.dtype} ${formatShape(target.shape)}. A target of floats has a ` +
          'share for each class, in the input\'s shape. Labels are whole numbers: convert them with to("i32").',
      );
    }
    if (isType(weight) && formatShape(weight.shape) !== `[${classes}]`) {
      throw badShape(
        name,
        `weight ${formatShape(weight.shape)}: it must be [${classes}], one for each class.`,
      );
    }
    return [{ shape: reduction === "none" ? kept : [], dtype: input.dtype }];
  },
  compose({ apply, typeOf }, [input = 0, target = 0, weight], { labelSmoothing = 0, reduction = "mean" }) {
    const { shape } = typeOf(input);
    const { axis, classes, kept } = classRowsOf(shape);
    const smooth = (probabilities: typeof target) =>
      apply(add, [apply(mul, [probabilities, 1 - labelSmoothing]), labelSmoothing / classes]);
    const smoothed = labelSmoothing > 0 ? smooth(target) : target;
    const terms = apply(mul, [apply(logSoftmax, [input], { axis }), smoothed]);
    const weightShape = shape.map((size, index) => (index === axis ? size : 1));
    const weighted =
      weight === undefined ? terms : apply(mul, [terms, apply(reshape, [weight], { shape: weightShape })]);
    const total = apply(sum, [weighted], reduction === "none" ? { axes: axis } : {});
    return [apply(mul, [total, reduction === "mean" ? -1 / sizeOf(kept) : -1])];
  },
};
