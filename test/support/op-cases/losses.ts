/**
 * Cases of the losses: labels on rows of every kind, with ignored ones and weights, and pairs of equal
 * shapes.
 */

import fc from "fast-check";
import {
  crossEntropy,
  crossEntropyOfProbabilities,
  type LossReduction,
  losses,
  nllLoss,
  type Op,
  type Shape,
  targetLosses,
} from "../../../src/ops/index.js";
import { anyShape, awayFrom, between, call, operand, type Values, whole } from "./arbitraries.js";
import { type CaseOperand, type OpCase, opCase, type TensorOperand } from "./op-case.js";

const anyReduction = fc.constantFrom<LossReduction>("mean", "sum", "none");

/** [C], [N, C] or [N, C, …], with at least one class. */
function anyPredictions(elements: number): fc.Arbitrary<Shape> {
  return fc
    .tuple(
      anyShape({ elements: Math.max(1, Math.floor(elements / 5)), axes: [0, 3] }),
      fc.integer({ min: 1, max: 5 }),
    )
    .map(([kept, classes]) => (kept.length === 0 ? [classes] : [kept[0]!, classes, ...kept.slice(1)]));
}

/** Labels for predictions; some are `ignored`, but never all: the mean of nothing is undefined. */
function labels(shape: Shape, ignored?: number): fc.Arbitrary<TensorOperand> {
  const axis = shape.length === 1 ? 0 : 1;
  const kept = shape.filter((_, index) => index !== axis);
  const values = whole(ignored === undefined ? 0 : -1, shape[axis]! - 1);
  const dtype = fc.constantFrom("i32" as const, "i64" as const);
  return dtype
    .chain((type) => operand(kept, { values, dtype: type }))
    .map((labels) => {
      const isAllOut = labels.values.every((label) => label === -1);
      return {
        ...labels,
        values: labels.values.map((label) => (label !== -1 ? label : isAllOut ? 0 : (ignored ?? 0))),
      };
    });
}

function weightsOf(shape: Shape): fc.Arbitrary<CaseOperand> {
  return operand([shape[shape.length === 1 ? 0 : 1]!], { values: between(0.2, 2) });
}

const pairLosses = [losses.mseLoss, losses.l1Loss, losses.huberLoss, losses.smoothL1Loss];
const pairErrors = [losses.squaredError, losses.absoluteError, losses.huberError];

/** Two operands whose differences stay away from 0 and 1, where some of these losses have a kink. */
function anyPair(elements: number): fc.Arbitrary<readonly TensorOperand[]> {
  return anyShape({ elements }).chain((shape) =>
    fc.tuple(
      operand(shape, { values: whole(-2, 2) }),
      operand(shape, { values: awayFrom([0, 1], between(-0.9, 0.9)) }),
    ),
  );
}

export const lossesCases: readonly OpCase[] = [
  ...[false, true].flatMap((hasWeights) =>
    [0, 0.2].map((labelSmoothing) =>
      opCase({
        op: crossEntropy,
        what: `${hasWeights ? "with weights" : "without weights"}, smoothed by ${labelSmoothing}`,
        gradients: [0],
        draw: (elements) =>
          fc.tuple(anyPredictions(elements), fc.constantFrom(undefined, -100, -7)).chain(([shape, ignored]) =>
            call(
              [operand(shape), labels(shape, ignored), ...(hasWeights ? [weightsOf(shape)] : [])],
              fc.record({
                reduction: anyReduction,
                labelSmoothing: fc.constant(labelSmoothing),
                ignoreIndex: fc.constant(ignored ?? -100),
              }),
            ),
          ),
      }),
    ),
  ),
  ...[false, true].map((hasWeights) =>
    opCase({
      op: nllLoss,
      what: hasWeights ? "with weights" : "without weights",
      gradients: [0],
      draw: (elements) =>
        fc
          .tuple(anyPredictions(elements), fc.constantFrom(undefined, -100))
          .chain(([shape, ignored]) =>
            call(
              [operand(shape), labels(shape, ignored), ...(hasWeights ? [weightsOf(shape)] : [])],
              fc.record({ reduction: anyReduction }),
            ),
          ),
    }),
  ),
  ...[false, true].map((hasWeights) =>
    opCase({
      op: crossEntropyOfProbabilities,
      what: hasWeights ? "with weights" : "without weights",
      gradients: hasWeights ? [0, 1, 2] : [0, 1],
      draw: (elements) =>
        anyPredictions(elements).chain((shape) =>
          call(
            [
              operand(shape),
              operand(shape, { values: between(0, 1) }),
              ...(hasWeights ? [weightsOf(shape)] : []),
            ],
            fc.record({
              // The mean of no rows is NaN, whatever the weights.
              reduction: shape.includes(0) ? fc.constant<LossReduction>("sum") : anyReduction,
              labelSmoothing: fc.constantFrom(0, 0.2),
            }),
          ),
        ),
    }),
  ),
  ...pairLosses.map((op) =>
    opCase({
      op,
      gradients: [0, 1],
      draw: (elements) =>
        fc
          .tuple(anyPair(elements), anyReduction)
          .map(([operands, reduction]) => ({ operands, attributes: { reduction } })),
    }),
  ),
  ...pairErrors.map((op) =>
    opCase({
      op,
      gradients: [0, 1],
      draw: (elements) => anyPair(elements).map((operands) => ({ operands, attributes: {} })),
    }),
  ),
  opCase({
    op: losses.huberLoss,
    what: "with a delta",
    gradients: [0, 1],
    draw: (elements) => anyPair(elements).map((operands) => ({ operands, attributes: { delta: 2 } })),
  }),
  opCase({
    op: losses.smoothL1Loss,
    what: "with a beta",
    gradients: [0, 1],
    draw: (elements) =>
      fc
        .tuple(anyPair(elements), fc.constantFrom(0, 2))
        .map(([operands, beta]) => ({ operands, attributes: { beta } })),
  }),
  opCase({
    op: losses.binaryCrossEntropy,
    gradients: [0, 1, 2],
    draw: (elements) => anyShape({ elements }).chain((shape) => call(binaryOperands(shape, shape.slice(-1)))),
  }),
  opCase({
    op: losses.bceWithLogits,
    gradients: [0, 1],
    draw: (elements) =>
      fc
        .tuple(anyShape({ elements }), anyReduction)
        .chain(([shape, reduction]) => call(binaryOperands(shape), fc.constant({ reduction }))),
  }),
  opCase({
    op: losses.bceWithLogits,
    what: "with weights",
    gradients: [0, 1, 2, 3],
    // The mean of nothing is NaN for any weights, and so are its differences.
    draw: (elements) =>
      fc.tuple(anyShape({ elements, canBeEmpty: false }), anyReduction).chain(([shape, reduction]) => {
        const [input, target, positive] = binaryOperands(shape, shape.slice(-1));
        const weight = operand(shape, { values: between(0.2, 2) });
        return call([input!, target!, weight, positive!], fc.constant({ reduction }));
      }),
  }),
  ...(
    [
      [targetLosses.probabilityCrossEntropy, between(0.1, 0.9), between(0, 1), [0, 1]],
      [targetLosses.klDivergence, between(-2, 0), between(0.1, 2), [0, 1]],
      [targetLosses.klDivergenceOfLogs, between(-2, 0), between(-2, 0), [0, 1]],
      [targetLosses.poissonOfLog, between(-2, 2), between(0, 3), [0, 1]],
      [targetLosses.softMargin, between(-3, 3), between(-1, 1), [0, 1]],
      [
        targetLosses.hingeEmbedding,
        awayFrom([0.5], between(-2, 2)),
        (random) => (random() < 0.5 ? -1 : 1),
        [0],
      ],
      [targetLosses.poissonOfRate, between(0.2, 2), between(0, 3), [0, 1]],
    ] as readonly [Op, Values, Values, readonly number[]][]
  ).map(([op, input, target, gradients]) =>
    opCase({
      op,
      gradients,
      draw: (elements) =>
        anyShape({ elements }).chain((shape) =>
          call(
            [operand(shape, { values: input }), operand(shape, { values: target })],
            fc.constant({ margin: 0.5, eps: 0.01 }),
          ),
        ),
    }),
  ),
];

/** Logits, targets from 0 to 1 and, with a shape, weights of the positive class. */
function binaryOperands(shape: Shape, positive?: Shape): fc.Arbitrary<CaseOperand>[] {
  return [
    operand(shape, { values: awayFrom([0], between(-3, 3)) }),
    operand(shape, { values: between(0, 1) }),
    ...(positive ? [operand(positive, { values: between(0.5, 2) })] : []),
  ];
}
