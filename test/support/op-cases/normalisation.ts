/** Cases of the normalisations: over any axis or the last ones, with a weight and a bias or without. */

import fc from "fast-check";
import { layerNorm, logSoftmax, normalize, rmsNorm, type Shape, softmax } from "../../../src/ops/index.js";
import { anyAxis, anyShape, awayFrom, between, call, operand } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

/** A shape, and how many of its last axes form a row. */
const rows = (elements: number): fc.Arbitrary<{ readonly shape: Shape; readonly last: Shape }> =>
  anyShape({ elements, axes: [1, 5] }).chain((shape) =>
    fc.integer({ min: 1, max: shape.length }).map((count) => ({ shape, last: shape.slice(-count) })),
  );

/**
 * In rows of equal elements the slope is that of 1/√eps: eps is large here, so that differences can follow
 * it.
 */
const eps = 0.1;

export const normalisationCases: readonly OpCase[] = [
  ...[softmax, logSoftmax].map((op) =>
    opCase({
      op,
      gradients: [0],
      draw: (elements) =>
        anyShape({ elements, axes: [1, 5] }).chain((shape) =>
          call([operand(shape, { values: between(-6, 6) })], fc.record({ axis: anyAxis(shape) })),
        ),
    }),
  ),
  ...[0, 1, 2].map((affine) =>
    opCase({
      op: layerNorm,
      what: ["alone", "with a weight", "with a weight and a bias"][affine]!,
      gradients: [0, 1, 2].slice(0, affine + 1),
      draw: (elements) =>
        rows(elements).chain(({ shape, last }) =>
          call(
            [operand(shape), ...[last, last].slice(0, affine).map((affineShape) => operand(affineShape))],
            fc.constant({ normalizedShape: last, eps }),
          ),
        ),
    }),
  ),
  ...[false, true].map((hasWeight) =>
    opCase({
      op: rmsNorm,
      what: hasWeight ? "with a weight" : "alone",
      gradients: hasWeight ? [0, 1] : [0],
      draw: (elements) =>
        rows(elements).chain(({ shape, last }) =>
          call(
            [operand(shape), ...(hasWeight ? [operand(last)] : [])],
            fc.constant({ normalizedShape: last, eps }),
          ),
        ),
    }),
  ),
  opCase({
    op: normalize,
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, axes: [1, 5] }).chain((shape) =>
        call(
          [operand(shape, { values: awayFrom([0], between(-2, 2), 0.2) })],
          fc.record({ axis: anyAxis(shape) }),
        ),
      ),
  }),
  opCase({
    op: normalize,
    what: "of vectors shorter than eps",
    gradients: [0],
    draw: (elements) =>
      anyShape({ elements, axes: [1, 5] }).chain((shape) =>
        call([operand(shape)], fc.record({ axis: anyAxis(shape), eps: fc.constant(50) })),
      ),
  }),
];
