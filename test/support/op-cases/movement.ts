/** Cases of views and movement. */

import fc from "fast-check";
import { expand, permute, reshape, type Shape } from "../../../src/ops/index.js";
import { anyShape, call, operand } from "./draw.js";
import { type OpCase, opCase } from "./op-case.js";

/** Another shape of as many elements: axes joined, split and added; one size may be left open. */
function reshaped(shape: Shape): fc.Arbitrary<Shape> {
  const size = shape.reduce((product, one) => product * one, 1);
  return fc
    .tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 6 }), fc.constantFrom(0, 1, 2, 3))
    .map(([a, b, how]) => {
      if (size === 0) return how === 0 ? [0] : [...shape, 1];
      const [outer, inner] = [greatestDivisor(size, a), greatestDivisor(size / greatestDivisor(size, a), b)];
      const rest = size / outer / inner;
      return [[size], [outer, -1], [outer, inner, rest], [1, outer, rest, 1, inner]][how]!;
    });
}

function greatestDivisor(size: number, most: number): number {
  for (let divisor = most; divisor > 1; divisor--) if (size % divisor === 0) return divisor;
  return 1;
}

export const movementCases: readonly OpCase[] = [
  opCase({
    op: reshape,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) => call([operand(shape)], fc.record({ shape: reshaped(shape) }))),
  }),
  opCase({
    op: permute,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) => {
        const places = shape.map((_, axis) => axis);
        const orders = fc.shuffledSubarray(places, { minLength: places.length });
        return call([operand(shape)], fc.record({ axes: orders }));
      }),
  }),
  opCase({
    op: expand,
    gradients: [0],
    draw: (elements) =>
      fc
        .tuple(
          anyShape({ elements: Math.max(1, Math.floor(elements / 4)), axes: [0, 3] }),
          anyShape({ elements: 4, axes: [0, 2] }),
        )
        .chain(([shape, added]) =>
          fc
            .tuple(fc.array(fc.boolean(), { minLength: shape.length, maxLength: shape.length }), fc.boolean())
            .chain(([stretched, keeps]) => {
              const from = shape.map((size, axis) => (stretched[axis] ? 1 : size));
              const to = shape.map((size, axis) => (keeps && !stretched[axis] ? -1 : size));
              return call([operand(from)], fc.constant({ shape: [...added, ...to] }));
            }),
        ),
  }),
];
