/** The gradients of losses of class labels made of entries that have gradients too. */

import { sum } from "../broadcast.js";
import { add, div, mul, sub } from "../elementwise/arithmetic.js";
import { cast } from "../elementwise/cast.js";
import { eq, where } from "../elementwise/comparisons.js";
import { fitToOperand } from "../gradients.js";
import { oneHot } from "../indexing/one-hot.js";
import { permute, reshape } from "../movement/reshape.js";
import { softmax } from "../normalisation/softmax.js";
import type { GradientRule } from "../op.js";
import { type ClassLossAttributes, classRowsOf, defaultIgnoreIndex } from "./class-rows.js";

type Attributes = ClassLossAttributes & { readonly labelSmoothing?: number };

/** Operands: logits, labels and optional weights. `divisor`: of a mean. */
export function crossEntropyGradient<V>(rule: GradientRule<V, Attributes>, divisor: V | undefined): V {
  const { apply } = rule;
  const { axis } = classRowsOf(rule.typeOf(0).shape);
  const shares = targetShares(rule);
  const total = apply(sum, [shares], { axes: axis, keepsAxes: true });
  const probabilities = apply(softmax, [rule.operand(0)], { axis });
  const slope = apply(sub, [apply(mul, [probabilities, total]), shares]);
  return fitToOperand(rule, apply(mul, [slope, rowGradients(rule, divisor)]), 0);
}

/** Operands: log probabilities, labels and optional weights. `divisor`: of a mean. */
export function nllLossGradient<V>(rule: GradientRule<V, Attributes>, divisor: V | undefined): V {
  const { apply } = rule;
  const slope = apply(mul, [targetShares(rule), -1]);
  return fitToOperand(rule, apply(mul, [slope, rowGradients(rule, divisor)]), 0);
}

/** What each log probability is multiplied by in the loss, times -1: its class's weight at the target, and 0 in ignored rows. */
function targetShares<V>(rule: GradientRule<V, Attributes>): V {
  const { apply } = rule;
  const { shape, dtype } = rule.typeOf(0);
  const { axis, classes } = classRowsOf(shape);
  const { ignoreIndex = defaultIgnoreIndex, labelSmoothing = 0 } = rule.attributes;
  const labels = rule.operand(1);
  const isIgnored = apply(eq, [labels, ignoreIndex]);
  const rows = apply(oneHot, [apply(where, [isIgnored, 0, labels])], { classes }); // [kept…, classes]
  const order = [...shape.keys()].slice(0, -1).toSpliced(axis, 0, shape.length - 1);
  const oneHots = apply(cast, [apply(permute, [rows], { axes: order })], { dtype });
  const targets = apply(mul, [oneHots, 1 - labelSmoothing]);
  const smoothed = apply(add, [targets, labelSmoothing / classes]);
  const onClassAxis = shape.map((_, other) => (other === axis ? classes : 1));
  const weighted =
    rule.typeOf(2).shape.length > 0
      ? apply(mul, [smoothed, apply(reshape, [rule.operand(2)], { shape: onClassAxis })])
      : smoothed;
  const isIgnoredRow = apply(reshape, [isIgnored], { shape: shape.with(axis, 1) });
  return apply(cast, [apply(where, [isIgnoredRow, 0, weighted])], { dtype });
}

/** The gradient of each row's loss, which broadcasts to the input. */
function rowGradients<V>(
  { apply, upstream, typeOf, attributes }: GradientRule<V, Attributes>,
  divisor: V | undefined,
): V {
  const { shape } = typeOf(0);
  if (attributes.reduction === "none") {
    return apply(reshape, [upstream], { shape: shape.with(classRowsOf(shape).axis, 1) });
  }
  return divisor === undefined ? upstream : apply(div, [upstream, divisor]);
}
