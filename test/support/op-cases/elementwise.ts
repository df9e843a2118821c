/** Cases of the elementwise family: arithmetic, comparisons, functions, activations, cast and contiguous. */

import fc from "fast-check";
import {
  type Attributes,
  activations,
  add,
  cast,
  comparisons,
  contiguous,
  div,
  functions,
  gatedActivations,
  hardActivations,
  maximum,
  minimum,
  mul,
  type Op,
  pow,
  smoothActivations,
  sub,
} from "../../../src/ops/index.js";
import {
  anyShape,
  awayFrom,
  between,
  broadcastShapesOf,
  call,
  operand,
  type Values,
  whole,
} from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

const anything = between(-2, 2);
const positive = between(0.3, 3);
const awayFromZero = awayFrom([0], anything, 0.2);

function unary(op: Op, values: Values = anything): OpCase {
  return opCase({
    op,
    gradients: [0],
    draw: (elements) => anyShape({ elements }).chain((shape) => call([operand(shape, { values })])),
  });
}

function unaryWith<A extends Attributes>(op: Op<A>, values: Values, attributes: fc.Arbitrary<A>): OpCase {
  return opCase({
    op,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) => call([operand(shape, { values })], attributes)),
  });
}

/** Two operands that broadcast, or a literal on one side. */
function binary(op: Op, left: Values = anything, right: Values = anything): OpCase[] {
  return [
    opCase({
      op,
      gradients: [0, 1],
      draw: (elements) =>
        broadcastShapesOf(2, { elements }).chain(([a = [], b = []]) =>
          call([operand(a, { values: left }), operand(b, { values: right })]),
        ),
    }),
    opCase({
      op,
      what: "with a number on the right",
      gradients: [0],
      draw: (elements) =>
        anyShape({ elements }).chain((shape) => call([operand(shape, { values: left }), 1.503])),
    }),
    opCase({
      op,
      what: "with a number on the left",
      gradients: [1],
      draw: (elements) =>
        anyShape({ elements }).chain((shape) => call([1.503, operand(shape, { values: right })])),
    }),
  ];
}

/** Multiples of a hundredth on the left and midpoints on the right: the two are never equal. */
const hundredths: Values = (random) => whole(-200, 200)(random) / 100;
const between100ths: Values = (random) => whole(-200, 200)(random) / 100 + 0.005;

function truthful(op: Op, operands: 1 | 2): OpCase[] {
  const dtypes = ["float", "i64", "i32", "bool"] as const;
  return dtypes.map((dtype) =>
    opCase({
      op,
      what: dtype,
      gradients: "none",
      draw: (elements) =>
        broadcastShapesOf(operands, { elements }).chain((shapes) =>
          call(
            shapes.map((shape) =>
              operand(shape, { dtype, values: whole(dtype === "bool" ? 0 : -2, dtype === "bool" ? 1 : 2) }),
            ),
          ),
        ),
    }),
  );
}

const { where, logicalNot, isnan, isfinite, ...comparing } = comparisons;

const integers: OpCase[] = [add, sub, mul, maximum, minimum].map((op) =>
  opCase({
    op,
    what: "of integers",
    gradients: "none",
    draw: (elements) =>
      fc
        .tuple(
          broadcastShapesOf(2, { elements }),
          fc.constantFrom("i32" as const, "i64" as const, "i8" as const),
          fc.constantFrom("u8" as const, "i64" as const),
        )
        .chain(([[a = [], b = []], left, right]) =>
          call([
            operand(a, { values: whole(-9, 9), dtype: left }),
            operand(b, { values: whole(0, 9), dtype: right }),
          ]),
        ),
  }),
);

export const elementwiseCases: readonly OpCase[] = [
  ...[add, sub, mul].flatMap((op) => binary(op)),
  ...binary(div, anything, awayFromZero),
  ...binary(pow, positive),
  ...[maximum, minimum].flatMap((op) => binary(op, hundredths, between100ths)),
  ...integers,
  ...Object.values(comparing).flatMap((op) => truthful(op, 2)),
  ...[logicalNot, isnan, isfinite].flatMap((op) => truthful(op, 1)),
  opCase({
    op: where,
    gradients: [1, 2],
    draw: (elements) =>
      broadcastShapesOf(3, { elements }).chain(([condition = [], a = [], b = []]) =>
        call([operand(condition, { values: whole(0, 1), dtype: "bool" }), operand(a), operand(b)]),
      ),
  }),
  ...[functions.neg, functions.exp, functions.expm1, functions.square].map((op) => unary(op)),
  ...[functions.sin, functions.cos, functions.erf].map((op) => unary(op, between(-4, 4))),
  ...[functions.log, functions.sqrt, functions.rsqrt].map((op) => unary(op, positive)),
  unary(functions.log1p, between(-0.7, 3)),
  unary(functions.reciprocal, awayFromZero),
  ...[functions.abs, functions.sign].map((op) => unary(op, awayFromZero)),
  ...[functions.floor, functions.ceil].map((op) => unary(op, awayFrom([-2, -1, 0, 1, 2], anything))),
  unaryWith(
    functions.clamp,
    awayFrom([-1, 0.5], anything),
    fc.constantFrom({ min: -1 }, { max: 0.5 }, { min: -1, max: 0.5 }, {}),
  ),
  unaryWith(functions.fill, anything, fc.constantFrom({ value: 0 }, { value: -1.5 })),
  unary(activations.relu, awayFromZero),
  unaryWith(
    activations.leakyRelu,
    awayFromZero,
    fc.constantFrom({ negativeSlope: 0.01 }, { negativeSlope: 0.2 }),
  ),
  ...[activations.tanh, activations.sigmoid, activations.silu, activations.softplus].map((op) =>
    unary(op, between(-4, 4)),
  ),
  ...[activations.gelu, activations.geluTanh].map((op) => unary(op, between(-4, 4))),
  ...["mish", "logSigmoid", "softsign", "tanhshrink"].map((name) =>
    unary(smoothActivations[name as "mish"], awayFrom([0], between(-4, 4))),
  ),
  unaryWith(
    smoothActivations.elu,
    awayFrom([0], between(-4, 4)),
    fc.constantFrom(
      { alpha: 1.2, scale: 1, inputScale: 1 },
      { alpha: 1.67, scale: 1.05, inputScale: 1 },
      { alpha: 2, scale: 1, inputScale: 0.5 },
    ),
  ),
  unaryWith(
    smoothActivations.scaledSoftplus,
    awayFrom([1], between(-3, 3)),
    fc.constant({ beta: 2, threshold: 2 }),
  ),
  unaryWith(hardActivations.hardtanh, awayFrom([-1, 1.5], anything), fc.constant({ min: -1, max: 1.5 })),
  ...[hardActivations.hardswish, hardActivations.hardsigmoid].map((op) =>
    unary(op, awayFrom([-3, 3], between(-5, 5))),
  ),
  ...[hardActivations.hardshrink, hardActivations.softshrink].map((op) =>
    unaryWith(op, awayFrom([-0.5, 0.5], anything), fc.constant({ lambda: 0.5 })),
  ),
  unaryWith(hardActivations.threshold, awayFrom([0.5], anything), fc.constant({ threshold: 0.5, value: -3 })),
  ...[gatedActivations.prelu, gatedActivations.sigmoidGate].map((op) =>
    opCase({
      op,
      gradients: [0, 1],
      draw: (elements) =>
        broadcastShapesOf(2, { elements }).chain(([x = [], other = []]) =>
          call([operand(x, { values: awayFromZero }), operand(other)]),
        ),
    }),
  ),
  unaryWith(cast, anything, fc.constant({ dtype: "f64" as const })),
  opCase({
    op: cast,
    what: "to and from integers",
    gradients: "none",
    draw: (elements) =>
      anyShape({ elements }).chain((shape) =>
        call(
          [operand(shape, { values: between(-3, 3) })],
          fc.record({
            dtype: fc.constantFrom("i64" as const, "i32" as const, "i8" as const, "bool" as const),
          }),
        ),
      ),
  }),
  unary(contiguous),
];
