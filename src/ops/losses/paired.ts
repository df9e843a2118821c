/** Elementwise losses of two tensors: squared error, absolute error, Huber, and binary cross entropy of logits. */

import { HoldfastError } from "../../errors/index.js";
import { type Expression, term } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { mul } from "../elementwise/arithmetic.js";
import { elementwise } from "../elementwise/elementwise.js";
import { fitToOperand } from "../gradients.js";
import {
  type Attributes,
  type CompositeOp,
  type KernelOp,
  type NoAttributes,
  type Op,
  type OperandType,
  typeAt,
  type ValueType,
} from "../op.js";
import { mean } from "../reduction/mean.js";
import { badShape, broadcastShapes, formatShape, isSameShape } from "../shape.js";
import type { LossReduction } from "./class-rows.js";

const none = term.constant(0, "f32");

interface DifferenceDefinition<A extends Attributes> {
  readonly name: string;
  readonly scalars?: (attributes: A) => readonly number[];
  readonly value: (difference: Expression, scalars: readonly Expression[]) => Expression;
  /** The derivative. It must be an odd function, because the other operand's derivative is its negative. */
  readonly slope: (difference: Expression, scalars: readonly Expression[]) => Expression;
}

/** A loss of the difference of two operands. */
function differenceLoss<A extends Attributes = NoAttributes>(
  definition: DifferenceDefinition<A>,
): KernelOp<A> {
  const { name, value, slope, scalars } = definition;
  const gradientOp = elementwise<A>({
    name: `${name}Gradient`,
    operands: 3,
    result: "float",
    ...(scalars && { scalars }),
    value: ([upstream = none, a = none, b = none], scalarTerms) =>
      term.mul(upstream, slope(term.sub(a, b), scalarTerms)),
  });
  return elementwise<A>({
    name,
    operands: 2,
    result: "float",
    ...(scalars && { scalars }),
    value: ([a = none, b = none], scalarTerms) => value(term.sub(a, b), scalarTerms),
    saves: () => ({ operands: [0, 1] }),
    gradient: (rule) =>
      [0, 1].map((index) => {
        if (!rule.needs(index)) return undefined;
        const operands = [rule.operand(index), rule.operand(1 - index)];
        return fitToOperand(
          rule,
          rule.apply(gradientOp, [rule.upstream, ...operands], rule.attributes),
          index,
        );
      }),
  });
}

export const squaredError: KernelOp = differenceLoss({
  name: "squaredError",
  value: (difference) => term.mul(difference, difference),
  slope: (difference) => term.mul(2, difference),
});

/** Its derivative at 0 is 0, as in PyTorch. */
export const absoluteError: KernelOp = differenceLoss({
  name: "absoluteError",
  value: term.abs,
  slope: (difference) => {
    const [one, zero] = [term.constant(1, difference.type), term.constant(0, difference.type)];
    const isPositive = term.select(term.gt(difference, 0), one, zero);
    return term.select(term.lt(difference, 0), term.neg(one), isPositive);
  },
});

/** `delta`: the difference from which the loss is linear; default: 1. `scale`: a factor; default: 1. */
export type HuberAttributes = { readonly delta?: number; readonly scale?: number };

export const huberError: KernelOp<HuberAttributes> = differenceLoss<HuberAttributes>({
  name: "huberError",
  scalars: ({ delta = 1, scale = 1 }) => [delta, scale],
  value: (difference, [delta = none, scale = none]) => {
    const size = term.abs(difference);
    const square = term.mul(0.5, term.mul(difference, difference));
    const line = term.mul(delta, term.sub(size, term.mul(0.5, delta)));
    return term.mul(scale, term.select(term.le(size, delta), square, line));
  },
  slope: (difference, [delta = none, scale = none]) =>
    term.mul(scale, term.min(term.max(difference, term.neg(delta)), delta)),
});

/** softplus(x) and softplus(−x), from the one logarithm that can't overflow. */
function softplusPair(x: Expression): { readonly negative: Expression; readonly positive: Expression } {
  const zero = term.constant(0, x.type);
  const shared = term.log1p(term.exp(term.neg(term.abs(x))));
  return {
    negative: term.add(term.max(x, zero), shared),
    positive: term.add(term.max(term.neg(x), zero), shared),
  };
}

type Formula = (logit: Expression, target: Expression, posWeight: Expression) => Expression;

/** The gradient of one of binaryCrossEntropy's operands. Operands: the upstream gradient and all operands. */
function binaryGradient(name: string, value: Formula): KernelOp {
  return elementwise({
    name,
    operands: 4,
    result: "float",
    value: ([upstream = none, logit = none, target = none, posWeight = none]) =>
      term.mul(upstream, value(logit, target, posWeight)),
  });
}

const binaryGradients: readonly KernelOp[] = [
  binaryGradient("binaryLogitGradient", (logit, target, posWeight) =>
    term.sub(
      term.mul(term.sub(1, target), term.sigmoid(logit)),
      term.mul(term.mul(posWeight, target), term.sigmoid(term.neg(logit))),
    ),
  ),
  binaryGradient("binaryTargetGradient", (logit, _, posWeight) => {
    const { negative, positive } = softplusPair(logit);
    return term.sub(term.mul(posWeight, positive), negative);
  }),
  binaryGradient("binaryPositiveGradient", (logit, target) => term.mul(target, softplusPair(logit).positive)),
];

/** Operands: logits, targets from 0 to 1, and the weight of the positive class, 1 for none. Finite for all finite logits. */
export const binaryCrossEntropy: KernelOp = elementwise({
  name: "binaryCrossEntropy",
  operands: 3,
  result: "float",
  value: ([logit = none, target = none, posWeight = none]) => {
    const { negative, positive } = softplusPair(logit);
    return term.add(term.mul(term.mul(posWeight, target), positive), term.mul(term.sub(1, target), negative));
  },
  saves: () => ({ operands: [0, 1, 2] }),
  gradient: (rule) =>
    binaryGradients.map((op, index) => {
      if (!rule.needs(index)) return undefined;
      const operands = [rule.operand(0), rule.operand(1), rule.operand(2)];
      return fitToOperand(rule, rule.apply(op, [rule.upstream, ...operands]), index);
    }),
});

export type LossAttributes = { readonly reduction?: LossReduction };

/** An elementwise loss and its reduction. Both operands must have the same shape: broadcasting is usually a mistake in a loss. */
function reducedLoss<A extends LossAttributes, B extends Attributes>(
  name: string,
  op: Op<B>,
  attributesOf: (attributes: A) => B,
): CompositeOp<A> {
  return {
    kind: "composite",
    name,
    infer(operands, attributes) {
      const shape = requireSameShape(name, operands);
      const [type = { shape, dtype: "f32" }] = op.infer(operands, attributesOf(attributes));
      return [{ ...type, shape: attributes.reduction === "none" ? shape : [] }];
    },
    compose: ({ apply }, operands, attributes) => [
      reduceLoss(apply, apply(op, operands, attributesOf(attributes)), attributes.reduction),
    ],
  };
}

function reduceLoss<V>(
  apply: <A extends Attributes>(op: Op<A>, operands: readonly (V | number)[], attributes?: A) => V,
  losses: V,
  reduction: LossReduction = "mean",
): V {
  if (reduction === "none") return losses;
  return apply(reduction === "sum" ? sum : mean, [losses], {});
}

function requireSameShape(op: string, operands: readonly OperandType[]): ValueType["shape"] {
  const [input, target] = [typeAt(op, operands, 0), typeAt(op, operands, 1)];
  if (isSameShape(input.shape, target.shape)) return input.shape;
  throw badShape(
    op,
    `input ${formatShape(input.shape)} and target ${formatShape(target.shape)} differ. Reshape one to the other's shape, or ` +
      "expand() it where it is meant to repeat.",
  );
}

export const mseLoss: CompositeOp<LossAttributes> = reducedLoss("mseLoss", squaredError, () => ({}));
export const l1Loss: CompositeOp<LossAttributes> = reducedLoss("l1Loss", absoluteError, () => ({}));

export const huberLoss: CompositeOp<LossAttributes & { readonly delta?: number }> = reducedLoss(
  "huberLoss",
  huberError,
  ({ delta = 1 }) => {
    if (delta > 0) return { delta };
    throw new HoldfastError("BAD_ARGUMENT", `huberLoss: delta is ${delta}; pass a number above 0.`, {
      numbers: { delta },
    });
  },
);

/** Operands: logits, targets, the weights of elements, and the weight of the positive class; a weight of 1 means none. */
export const bceWithLogits: CompositeOp<LossAttributes> = {
  kind: "composite",
  name: "bceWithLogits",
  infer(operands, { reduction }) {
    const shape = requireSameShape("bceWithLogits", operands);
    const [input, target, weight = 1, posWeight = 1] = operands;
    const [type = { shape, dtype: "f32" }] = binaryCrossEntropy.infer(
      [input ?? 0, target ?? 0, posWeight],
      {},
    );
    const weighted = mul.infer([type, weight], {});
    const stretched = broadcastShapes("bceWithLogits", [shape, ...weighted.map((type) => type.shape)]);
    if (!isSameShape(stretched, shape)) {
      throw badShape(
        "bceWithLogits",
        `weights broadcast the input ${formatShape(shape)} to ${formatShape(stretched)}; they must broadcast to its shape.`,
      );
    }
    return weighted.map(({ dtype }) => ({ dtype, shape: reduction === "none" ? shape : [] }));
  },
  compose({ apply }, [input = 0, target = 0, weight = 1, posWeight = 1], { reduction }) {
    const losses = apply(binaryCrossEntropy, [input, target, posWeight]);
    return [reduceLoss(apply, weight === 1 ? losses : apply(mul, [losses, weight]), reduction)];
  },
};

/** Huber's loss divided by beta, so that its linear part has slope 1. With beta = 0 it is l1Loss. */
export const smoothL1Loss: CompositeOp<LossAttributes & { readonly beta?: number }> = {
  kind: "composite",
  name: "smoothL1Loss",
  infer(operands, { beta = 1, reduction }) {
    const shape = requireSameShape("smoothL1Loss", operands);
    if (!(beta >= 0)) {
      throw new HoldfastError("BAD_ARGUMENT", `smoothL1Loss: beta is ${beta}; pass a number, 0 or more.`, {
        numbers: { beta },
      });
    }
    const types = absoluteError.infer(operands, {});
    return types.map(({ dtype }) => ({ dtype, shape: reduction === "none" ? shape : [] }));
  },
  compose({ apply }, operands, { beta = 1, reduction }) {
    const losses =
      beta === 0
        ? apply(absoluteError, operands)
        : apply(huberError, operands, { delta: beta, scale: 1 / beta });
    return [reduceLoss(apply, losses, reduction)];
  },
};
