/** Cases of convolutions and pools: strides, borders, dilations, groups, with and without a batch. */

import fc from "fast-check";
import {
  type Attributes,
  avgPool1d,
  avgPool2d,
  avgPool3d,
  type ConvolutionAttributes,
  conv1d,
  conv2d,
  conv3d,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  fold,
  maxPool1d,
  maxPool2d,
  maxPool3d,
  type Op,
  type Shape,
  type TransposedConvolutionAttributes,
  windows,
} from "../../../src/ops/index.js";
import { anyShape, anySize, call, operand } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

/** One number for all axes, or one for each. */
function perAxis(rank: number, min: number, max: number): fc.Arbitrary<number | number[]> {
  return fc.oneof(anySize(max, min), fc.array(anySize(max, min), { minLength: rank, maxLength: rank }));
}

const batches: fc.Arbitrary<Shape> = fc.constantFrom([], [1], [2], [3], [0]);

/** Sizes that fit a kernel at least once, with a dilation of up to 2. */
function sizesFor(kernel: readonly number[]): fc.Arbitrary<Shape> {
  return fc.tuple(...kernel.map((size) => anySize(2 * size + 2, 2 * size - 1)));
}

function casesOfConvolution(op: Op<ConvolutionAttributes>, rank: number): readonly OpCase[] {
  return [true, false].map((hasBias) =>
    opCase({
      op,
      what: hasBias ? "with a bias" : "without a bias",
      gradients: hasBias ? [0, 1, 2] : [0, 1],
      draw: () =>
        fc
          .record({
            batch: batches,
            groups: anySize(2),
            width: anySize(2),
            each: anySize(2),
            kernel: fc.array(anySize(rank === 1 ? 3 : 2), { minLength: rank, maxLength: rank }),
          })
          .chain(({ batch, groups, width, each, kernel }) =>
            sizesFor(kernel).chain((sizes) => {
              const operands = [
                operand([...batch, groups * width, ...sizes]),
                operand([groups * each, width, ...kernel]),
                ...(hasBias ? [operand([groups * each])] : []),
              ];
              return call(
                operands,
                fc.record(
                  {
                    groups: fc.constant(groups),
                    stride: perAxis(rank, 1, 3),
                    padding: perAxis(rank, 0, 2),
                    dilation: perAxis(rank, 1, 2),
                  },
                  { requiredKeys: ["groups"] },
                ),
              );
            }),
          ),
    }),
  );
}

function caseOfTransposed(op: Op<TransposedConvolutionAttributes>, rank: number): OpCase {
  return opCase({
    op,
    gradients: [0, 1, 2],
    draw: () =>
      fc
        .record({
          batch: batches,
          groups: anySize(2),
          width: anySize(2),
          each: anySize(2),
          sizes: fc.array(anySize(2), { minLength: rank, maxLength: rank }),
          kernel: fc.array(anySize(rank === 1 ? 3 : 2, 2), { minLength: rank, maxLength: rank }),
          padding: anySize(1, 0),
        })
        .chain(({ batch, groups, width, each, sizes, kernel, padding }) =>
          call(
            [
              operand([...batch, groups * width, ...sizes]),
              operand([groups * width, each, ...kernel]),
              operand([groups * each]),
            ],
            // A result of no elements is rejected.
            fc.constant({ groups, stride: 2, dilation: 2, padding, outputPadding: 1 }),
          ),
        ),
  });
}

function casesOfPool<A extends Attributes>(op: Op<A>, rank: number, isMax: boolean): OpCase {
  return opCase({
    op: op as unknown as Op,
    gradients: [0],
    draw: () =>
      fc
        .tuple(batches, anySize(2), fc.array(anySize(3), { minLength: rank, maxLength: rank }))
        .chain(([batch, channels, kernel]) =>
          sizesFor(kernel).chain((sizes) =>
            call(
              [operand([...batch, channels, ...sizes], { isDistinct: true })],
              fc.record(
                {
                  kernel: fc.constant(kernel),
                  stride: perAxis(rank, 1, 3),
                  padding: fc.tuple(...kernel.map((size) => anySize(Math.floor(size / 2), 0))),
                  ...(isMax && { dilation: perAxis(rank, 1, 2), ceilMode: fc.boolean() }),
                },
                { requiredKeys: ["kernel"] },
              ),
            ),
          ),
        ),
  });
}

export const convolutionCases: readonly OpCase[] = [
  opCase({
    op: windows,
    gradients: [0],
    draw: () =>
      fc
        .tuple(anyShape({ elements: 4, axes: [0, 2] }), fc.array(anySize(3), { minLength: 1, maxLength: 2 }))
        .chain(([rest, kernel]) =>
          sizesFor(kernel).chain((sizes) =>
            call(
              [operand([...rest, ...sizes])],
              fc.record({
                kernel: fc.constant(kernel),
                stride: perAxis(kernel.length, 1, 3),
                dilation: perAxis(kernel.length, 1, 2),
              }),
            ),
          ),
        ),
  }),
  ...casesOfConvolution(conv1d, 1),
  ...casesOfConvolution(conv2d, 2),
  ...casesOfConvolution(conv3d, 3).slice(0, 1),
  ...[convTranspose1d, convTranspose2d, convTranspose3d].map((op, index) => caseOfTransposed(op, index + 1)),
  opCase({
    op: fold,
    gradients: [0],
    draw: () =>
      fc
        .record({
          rest: anyShape({ elements: 4, axes: [0, 2] }),
          count: anySize(3),
          kernel: anySize(3),
          dilation: anySize(2),
        })
        .chain(({ rest, count, kernel, dilation }) => {
          const shape = [...rest, (count - 1) * 2 + (kernel - 1) * dilation + 1];
          return call(
            [operand([...rest, count, kernel])],
            fc.constant({ shape, kernel: [kernel], stride: 2, dilation }),
          );
        }),
  }),
  casesOfPool(maxPool1d, 1, true),
  casesOfPool(maxPool2d, 2, true),
  casesOfPool(maxPool3d, 3, true),
  casesOfPool(avgPool1d, 1, false),
  casesOfPool(avgPool2d, 2, false),
  casesOfPool(avgPool3d, 3, false),
];
