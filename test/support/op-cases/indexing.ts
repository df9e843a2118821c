/** Cases of the indexing family: indices that repeat, that skip some elements, and no indices at all. */

import fc from "fast-check";
import {
  embedding,
  gather,
  indexSelect,
  maskedFill,
  oneHot,
  renormRows,
  type Shape,
  scatterAdd,
} from "../../../src/ops/index.js";
import { anyAxis, anyShape, anySize, broadcastShapesOf, call, operand, whole } from "./arbitraries.js";
import { type OpCase, opCase, type TensorOperand } from "./op-case.js";

/** Indices into an axis; none if it is empty. */
function indices(shape: Shape, size: number): fc.Arbitrary<TensorOperand> {
  const dtype = fc.constantFrom("i32" as const, "i64" as const, "i8" as const, "u8" as const);
  return dtype.chain((type) => operand(shape, { dtype: type, values: whole(0, size - 1) }));
}

/**
 * An array, and the shape of an index with any number of entries along an axis and the array's sizes along
 * the others.
 */
function alongAxis(
  elements: number,
): fc.Arbitrary<{ readonly shape: Shape; readonly index: Shape; readonly axis: number }> {
  return anyShape({ elements: Math.max(1, Math.floor(elements / 2)), axes: [1, 4] }).chain((shape) =>
    fc
      .tuple(anyAxis(shape), anySize(4, 0), fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }))
      .map(([axis, count, isSmaller]) => {
        const sizes = shape.map((size, at) => (isSmaller[at] ? Math.max(0, size - 1) : size));
        return { shape, index: sizes.with(axis, shape.at(axis) === 0 ? 0 : count), axis };
      }),
  );
}

export const indexingCases: readonly OpCase[] = [
  opCase({
    op: indexSelect,
    gradients: [0],
    draw: (elements) =>
      alongAxis(elements).chain(({ shape, index, axis }) =>
        call([operand(shape), indices([index.at(axis)!], shape.at(axis)!)], fc.constant({ axis })),
      ),
  }),
  opCase({
    op: gather,
    gradients: [0],
    draw: (elements) =>
      alongAxis(elements).chain(({ shape, index, axis }) =>
        call([operand(shape), indices(index, shape.at(axis)!)], fc.constant({ axis })),
      ),
  }),
  opCase({
    op: scatterAdd,
    gradients: [0, 2],
    draw: (elements) =>
      fc.tuple(alongAxis(elements), anySize(2, 0)).chain(([{ shape, index, axis }, more]) => {
        const source = index.map((size) => size + more);
        return call(
          [operand(shape), indices(index, shape.at(axis)!), operand(source)],
          fc.constant({ axis }),
        );
      }),
  }),
  ...[true, false].map((hasPadding) =>
    opCase({
      op: embedding,
      what: hasPadding ? "without the padding row" : "any row",
      gradients: [0],
      draw: (elements) =>
        fc
          .tuple(
            anySize(5),
            anySize(5, 0),
            anyShape({ elements: Math.max(1, Math.floor(elements / 5)), axes: [0, 3] }),
          )
          .chain(([rows, width, shape]) =>
            call(
              // A read padding row has a slope, and no gradient: differences would see that.
              [operand([hasPadding ? rows + 1 : rows, width]), indices(shape, rows)],
              fc.constant(hasPadding ? { paddingIdx: -1 } : {}),
            ),
          ),
    }),
  ),
  opCase({
    op: renormRows,
    gradients: "none",
    draw: (elements) =>
      fc
        .tuple(
          anySize(5),
          anySize(5, 0),
          anyShape({ elements: Math.max(1, Math.floor(elements / 5)), axes: [0, 3] }),
        )
        .chain(([rows, width, shape]) =>
          call(
            [operand([rows, width]), indices(shape, rows)],
            fc.record({
              maxNorm: fc.constantFrom(0, 0.5, 1.5),
              p: fc.constantFrom(1, 2, 2.5, Number.POSITIVE_INFINITY),
            }),
          ),
        ),
  }),
  opCase({
    op: oneHot,
    gradients: "none",
    draw: (elements) =>
      fc
        .tuple(anySize(5), anyShape({ elements: Math.max(1, Math.floor(elements / 5)), axes: [0, 4] }))
        .chain(([classes, shape]) => call([indices(shape, classes)], fc.constant({ classes }))),
  }),
  opCase({
    op: maskedFill,
    gradients: [0],
    draw: (elements) =>
      broadcastShapesOf(2, { elements }).chain(([shape = [], mask = []]) =>
        call([operand(shape), operand(mask, { dtype: "bool", values: whole(0, 1) }), -3]),
      ),
  }),
  opCase({
    op: maskedFill,
    what: "with a tensor of no axes",
    gradients: [0, 2],
    draw: (elements) =>
      broadcastShapesOf(2, { elements }).chain(([shape = [], mask = []]) =>
        call([operand(shape), operand(mask, { dtype: "bool", values: whole(0, 1) }), operand([])]),
      ),
  }),
];
