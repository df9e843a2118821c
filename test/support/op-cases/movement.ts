/** Cases of views and movement. */

import fc from "fast-check";
import {
  cat,
  diagonal,
  expand,
  flip,
  pad,
  permute,
  type Range,
  repeatInterleave,
  reshape,
  type Shape,
  select,
  slice,
  stack,
  tile,
  tril,
  triu,
  upsampleNearest,
} from "../../../src/ops/index.js";
import { anyAxis, anyShape, anySize, call, operand, someAxes } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

/** Another shape with as many elements: axes merged, split and added; one size may be inferred. */
function reshaped(shape: Shape): fc.Arbitrary<Shape> {
  const size = shape.reduce((count, extent) => count * extent, 1);
  return fc
    .tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 6 }), fc.constantFrom(0, 1, 2, 3))
    .map(([a, b, how]) => {
      if (size === 0) return how === 0 ? [0] : [...shape, 1];
      const [outer, inner] = [greatestDivisor(size, a), greatestDivisor(size / greatestDivisor(size, a), b)];
      const rest = size / outer / inner;
      return [[size], [outer, -1], [outer, inner, rest], [1, outer, rest, 1, inner]][how]!;
    });
}

function greatestDivisor(size: number, max: number): number {
  for (let divisor = max; divisor > 1; divisor--) if (size % divisor === 0) return divisor;
  return 1;
}

const oneOrNone = (min: number, max: number): fc.Arbitrary<number | null> =>
  fc.oneof(fc.constant(null), fc.integer({ min, max }));

/** A range of an axis: whole, open at an end, counted from either end, out of bounds, and with steps. */
const anyRange: fc.Arbitrary<Range> = fc.oneof(
  fc.constant<Range>(null),
  fc.tuple(oneOrNone(-6, 5), oneOrNone(-2, 8), oneOrNone(1, 3)),
);

/** Shapes that differ only along one axis. */
function merged(
  elements: number,
): fc.Arbitrary<{ readonly shapes: readonly Shape[]; readonly axis: number }> {
  return anyShape({ elements: Math.max(1, Math.floor(elements / 3)), axes: [1, 4] }).chain((shape) =>
    fc
      .tuple(anyAxis(shape), fc.array(anySize(3, 0), { minLength: 1, maxLength: 3 }))
      .map(([axis, lengths]) => ({ shapes: lengths.map((length) => shape.with(axis, length)), axis })),
  );
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
        const axes = shape.map((_, axis) => axis);
        const orders = fc.shuffledSubarray(axes, { minLength: axes.length });
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
            .chain(([isBroadcast, keeps]) => {
              const from = shape.map((size, axis) => (isBroadcast[axis] ? 1 : size));
              const to = shape.map((size, axis) => (keeps && !isBroadcast[axis] ? -1 : size));
              return call([operand(from)], fc.constant({ shape: [...added, ...to] }));
            }),
        ),
  }),
  opCase({
    op: slice,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) =>
        call([operand(shape)], fc.record({ ranges: fc.array(anyRange, { maxLength: shape.length }) })),
      ),
  }),
  opCase({
    op: select,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, axes: [1, 5], canBeEmpty: false }).chain((shape) =>
        anyAxis(shape).chain((axis) => {
          const size = shape.at(axis)!;
          const index = fc.integer({ min: -size, max: size - 1 });
          return call([operand(shape)], fc.record({ axis: fc.constant(axis), index }));
        }),
      ),
  }),
  opCase({
    op: cat,
    gradients: [0],
    what: "of one to three, the first requiring its gradient",
    draw: (elements) =>
      merged(elements).chain(({ shapes, axis }) =>
        call(
          shapes.map((shape) => operand(shape)),
          fc.constant({ axis }),
        ),
      ),
  }),
  opCase({
    op: cat,
    gradients: [0, 1, 2],
    what: "of three",
    draw: (elements) =>
      merged(elements).chain(({ shapes: [shape = [1]], axis }) =>
        fc
          .tuple(anySize(3, 0), anySize(3, 0))
          .chain((lengths) =>
            call(
              [operand(shape), ...lengths.map((length) => operand(shape.with(axis, length)))],
              fc.constant({ axis }),
            ),
          ),
      ),
  }),
  opCase({
    op: stack,
    gradients: [0, 1],
    draw: (elements) =>
      anyShape({ elements: Math.max(1, Math.floor(elements / 2)), axes: [0, 4] }).chain((shape) =>
        call([operand(shape), operand(shape)], fc.record({ axis: anyAxis([...shape, 1]) })),
      ),
  }),
  opCase({
    op: flip,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements }).chain((shape) => call([operand(shape)], fc.record({ axes: someAxes(shape) }))),
  }),
  opCase({
    op: diagonal,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, axes: [2, 4] }).chain((shape) =>
        fc
          .shuffledSubarray([...shape.keys()], { minLength: 2, maxLength: 2 })
          .chain(([axis1 = 0, axis2 = 1]) =>
            call(
              [operand(shape)],
              fc.record({
                offset: fc.integer({ min: -3, max: 3 }),
                axis1: fc.constant(axis1),
                axis2: fc.constant(axis2),
              }),
            ),
          ),
      ),
  }),
  ...[tril, triu].map((op) =>
    opCase({
      op,
      gradients: [0],
      draw: (elements) =>
        anyShape({ elements, axes: [2, 4] }).chain((shape) =>
          call([operand(shape)], fc.record({ diagonal: fc.integer({ min: -3, max: 3 }) })),
        ),
    }),
  ),
  opCase({
    op: pad,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements: Math.max(1, Math.floor(elements / 3)), axes: [0, 4] }).chain((shape) => {
        const border = (size: number) => fc.integer({ min: -Math.floor(size / 2), max: 2 });
        const pairs = shape.toReversed().map((size) => fc.tuple(border(size), border(size)));
        const pads = fc
          .tuple(fc.tuple(...pairs), fc.integer({ min: 0, max: shape.length }))
          .map(([sizes, count]) => sizes.slice(0, count).flat());
        return call([operand(shape)], fc.record({ pads, value: fc.constantFrom(0, -1.5) }));
      }),
  }),
  opCase({
    op: repeatInterleave,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements: Math.max(1, Math.floor(elements / 3)), axes: [1, 5] }).chain((shape) =>
        call([operand(shape)], fc.record({ repeats: anySize(3, 0), axis: anyAxis(shape) })),
      ),
  }),
  opCase({
    op: upsampleNearest,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements: Math.max(1, Math.floor(elements / 9)), axes: [1, 5] }).chain((shape) =>
        call(
          [operand(shape)],
          fc.record({ factors: fc.array(anySize(3, 1), { maxLength: Math.min(3, shape.length) }) }),
        ),
      ),
  }),
  opCase({
    op: tile,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements: Math.max(1, Math.floor(elements / 4)), axes: [0, 3] }).chain((shape) =>
        call([operand(shape)], fc.record({ repeats: fc.array(anySize(2, 0), { maxLength: 3 }) })),
      ),
  }),
];
