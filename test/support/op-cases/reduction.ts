/** Cases of the reductions: over one axis, several, none and all, kept or not. */

import fc from "fast-check";
import {
  all,
  amax,
  amin,
  any,
  argmax,
  argmin,
  cumsum,
  logsumexp,
  mean,
  norm,
  prod,
  type ReductionAttributes,
  type Shape,
  std,
  sum,
  variance,
} from "../../../src/ops/index.js";
import { anyAxis, anyShape, awayFrom, between, call, operand, someAxes, whole } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

/** All axes without naming them, or some, counted from either end. */
export function anyReduction(shape: Shape): fc.Arbitrary<ReductionAttributes> {
  return fc.oneof(
    fc.record({ keepsAxes: fc.boolean() }),
    fc.record({ axes: someAxes(shape), keepsAxes: fc.boolean() }),
    ...(shape.length > 0
      ? [fc.record({ axes: fc.integer({ min: -shape.length, max: shape.length - 1 }) })]
      : []),
  );
}

const awayFromZero = awayFrom([0], between(-2, 2), 0.2);

const extremes = [amax, amin].flatMap((op) => [
  opCase({
    op,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, canBeEmpty: false }).chain((shape) =>
        call([operand(shape, { isDistinct: true })], anyReduction(shape)),
      ),
  }),
  ...(["i64", "i32", "i8", "u8"] as const).map((dtype) =>
    opCase({
      op,
      what: `of ${dtype}`,
      gradients: "none",
      draw: (elements) =>
        anyShape({ elements, canBeEmpty: false }).chain((shape) =>
          call([operand(shape, { dtype, values: whole(dtype === "u8" ? 0 : -9, 9) })], anyReduction(shape)),
        ),
    }),
  ),
]);

const argCases = [argmax, argmin].flatMap((op) =>
  (["float", "i64", "i32"] as const).map((dtype) =>
    opCase({
      op,
      what: dtype,
      gradients: "none",
      draw: (elements) =>
        anyShape({ elements, canBeEmpty: false }).chain((shape) =>
          call(
            [operand(shape, { dtype, values: whole(-3, 3) })],
            shape.length > 0
              ? fc.record({ axis: anyAxis(shape), keepsAxes: fc.boolean() }, { requiredKeys: ["keepsAxes"] })
              : fc.constant({}),
          ),
        ),
    }),
  ),
);

const truths = [all, any].flatMap((op) =>
  (["float", "i64", "bool"] as const).map((dtype) =>
    opCase({
      op,
      what: dtype,
      gradients: "none",
      draw: (elements) =>
        anyShape({ elements }).chain((shape) =>
          call([operand(shape, { dtype, values: whole(0, 1) })], anyReduction(shape)),
        ),
    }),
  ),
);

/** Over at least two elements: with one a variance is 0/0, and so is its gradient. */
const spreads = [variance, std].map((op) =>
  opCase({
    op,
    gradients: [0],
    draw: (elements) =>
      fc
        .record({
          outer: anyShape({ elements: Math.ceil(elements / 6), axes: [0, 2] }),
          inner: anyShape({ elements: 2, axes: [0, 2] }),
          size: fc.integer({ min: 2, max: 5 }),
        })
        .chain(({ outer, inner, size }) => {
          const shape = [...outer, size, ...inner];
          const axes = fc.constantFrom(
            outer.length,
            -1 - inner.length,
            shape.map((_, axis) => axis),
          );
          return call(
            [operand(shape, { isDistinct: true })],
            fc.record(
              { axes, keepsAxes: fc.boolean(), correction: fc.constantFrom(0, 0.5, 1) },
              { requiredKeys: ["axes"] },
            ),
          );
        }),
  }),
);

const norms = [1, 2, 3, 1.5, -1, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].map((p) => {
  const isExtreme = Math.abs(p) === Number.POSITIVE_INFINITY;
  return opCase({
    op: norm,
    what: `p = ${p}`,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, canBeEmpty: p > 0 && !isExtreme }).chain((shape) =>
        call(
          [operand(shape, isExtreme ? { isDistinct: true } : { values: awayFromZero })],
          anyReduction(shape).map((attributes) => ({ ...attributes, p })),
        ),
      ),
  });
});

export const reductionCases: readonly OpCase[] = [
  ...[sum, mean].map((op) =>
    opCase({
      op,
      gradients: [0],
      draw: (elements) =>
        anyShape({ elements }).chain((shape) => call([operand(shape)], anyReduction(shape))),
    }),
  ),
  ...extremes,
  ...argCases,
  ...truths,
  ...spreads,
  ...norms,
  opCase({
    op: prod,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) =>
        call([operand(shape, { values: between(-1.5, 1.5) })], anyReduction(shape)),
      ),
  }),
  opCase({
    op: prod,
    what: "with zeros",
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) =>
        call([operand(shape, { values: whole(-2, 2) })], anyReduction(shape)),
      ),
  }),
  opCase({
    op: logsumexp,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, canBeEmpty: false }).chain((shape) =>
        call([operand(shape, { values: between(-6, 6) })], anyReduction(shape)),
      ),
  }),
  ...[false, true].map((isReversed) =>
    opCase({
      op: cumsum,
      what: isReversed ? "from the end" : "from the beginning",
      gradients: [0],
      draw: (elements) =>
        anyShape({ elements, axes: [1, 5] }).chain((shape) =>
          call([operand(shape)], fc.record({ axis: anyAxis(shape), isReversed: fc.constant(isReversed) })),
        ),
    }),
  ),
  opCase({
    op: cumsum,
    what: "of integers",
    gradients: "none",
    draw: (elements) =>
      fc
        .tuple(anyShape({ elements, axes: [1, 5] }), fc.constantFrom("u8" as const, "i64" as const))
        .chain(([shape, dtype]) =>
          call([operand(shape, { dtype, values: whole(0, 200) })], fc.record({ axis: anyAxis(shape) })),
        ),
  }),
];
