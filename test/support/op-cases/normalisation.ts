/** Cases of the normalisations: over any axis or the last ones, with a weight and a bias or without. */

import fc from "fast-check";
import {
  batchNorm,
  groupNorm,
  layerNorm,
  logSoftmax,
  normalize,
  normalizeChannels,
  rmsNorm,
  runningAverage,
  type Shape,
  softmax,
} from "../../../src/ops/index.js";
import {
  anyAxis,
  anyShape,
  anySize,
  awayFrom,
  between,
  broadcastShapesOf,
  call,
  operand,
} from "./arbitraries.js";
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

/** [N, C, …] with more than one element for each channel, and channels in groups. */
const channels: fc.Arbitrary<{ readonly shape: Shape; readonly groups: number }> = fc
  .record({
    batch: fc.constantFrom(0, 1, 2, 3),
    groups: anySize(3),
    width: anySize(3),
    positions: fc.constantFrom<Shape>([], [1], [3], [2, 2], [1, 3], [2, 1, 2]),
  })
  .map(({ batch, groups, width, positions }) => {
    const needsBatch = positions.every((size) => size === 1) && batch === 1;
    return { shape: [needsBatch ? 2 : batch, groups * width, ...positions], groups };
  });

const affineNames = ["alone", "with a weight", "with a weight and a bias"];

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
  ...affineNames.flatMap((what, affine) => [
    opCase({
      op: batchNorm,
      what,
      gradients: [0, 1, 2].slice(0, affine + 1),
      draw: () =>
        channels.chain(({ shape }) => {
          const weights = [shape[1]!, shape[1]!].slice(0, affine).map((size) => operand([size]));
          return call([operand(shape), ...weights], fc.constant({ eps }));
        }),
    }),
    opCase({
      op: normalizeChannels,
      what,
      gradients: [0, 3, 4].slice(0, affine + 1),
      draw: () =>
        channels.chain(({ shape }) => {
          const perChannel = [0, 0, 0, 0].slice(0, 2 + affine).map(() => operand([shape[1]!]));
          return call([operand(shape), ...perChannel]);
        }),
    }),
    opCase({
      op: groupNorm,
      what,
      gradients: [0, 1, 2].slice(0, affine + 1),
      draw: () =>
        channels.chain(({ shape, groups }) => {
          const weights = [shape[1]!, shape[1]!].slice(0, affine).map((size) => operand([size]));
          return call([operand(shape), ...weights], fc.constant({ groups, eps }));
        }),
    }),
  ]),
  opCase({
    op: runningAverage,
    gradients: "none",
    draw: (elements) =>
      broadcastShapesOf(2, { elements }).chain(([running = [], value = []]) =>
        call([operand(running), operand(value), 0.25], fc.constant({ factor: 1.5 })),
      ),
  }),
];
