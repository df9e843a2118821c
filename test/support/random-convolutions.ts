/** Random convolutions, and their results in f64 by the definition. */

import fc from "fast-check";
import {
  areaOf,
  elementCounts,
  type Pair,
  writtenImage,
  writtenOperand,
} from "../../src/kernels/convolution/problem.js";
import type { ConvolutionDirection, ConvolutionShape } from "../../src/kernels/index.js";

export type ConvolutionGeometry = Omit<ConvolutionShape, "direction" | "dtype">;

export const directions = ["forward", "input-gradient", "weight-gradient"] as const;

/** Geometries that have gone wrong elsewhere: each one is special in one way. */
export const specialGeometries: Readonly<Record<string, ConvolutionGeometry>> = {
  "1 × 1": geometry({ channels: 40, outChannels: 6, size: [5, 7] }),
  "a large kernel": geometry({
    channels: 3,
    outChannels: 5,
    size: [12, 13],
    kernel: [9, 11],
    padding: [3, 0],
  }),
  strided: geometry({
    batch: 3,
    channels: 5,
    outChannels: 4,
    size: [11, 8],
    kernel: [3, 3],
    stride: [2, 3],
    padding: [1, 1],
  }),
  "strided beyond its kernel": geometry({
    channels: 3,
    outChannels: 2,
    size: [9, 9],
    kernel: [2, 1],
    stride: [3, 4],
  }),
  "strided and dilated": geometry({
    channels: 2,
    outChannels: 3,
    size: [17, 15],
    kernel: [3, 3],
    stride: [4, 2],
    dilation: [2, 3],
    padding: [2, 1],
  }),
  grouped: geometry({
    groups: 3,
    channels: 4,
    outChannels: 2,
    size: [7, 5],
    kernel: [3, 2],
    padding: [1, 1],
  }),
  depthwise: geometry({
    groups: 7,
    channels: 1,
    outChannels: 1,
    size: [8, 6],
    kernel: [3, 3],
    padding: [1, 1],
  }),
  "1-D": geometry({
    batch: 2,
    channels: 9,
    outChannels: 3,
    size: [1, 33],
    kernel: [1, 5],
    stride: [1, 2],
    padding: [0, 2],
  }),
  "wider than a tile": geometry({
    channels: 4,
    outChannels: 70,
    size: [12, 12],
    kernel: [3, 3],
    padding: [1, 1],
  }),
  "one result": geometry({ channels: 2, outChannels: 1, size: [3, 3], kernel: [3, 3] }),
};

export const randomGeometry: fc.Arbitrary<ConvolutionGeometry> = fc
  .record({
    ...{ batch: fc.integer({ min: 1, max: 3 }), groups: fc.constantFrom(1, 1, 2, 3) },
    ...{ channels: fc.integer({ min: 1, max: 12 }), outChannels: fc.integer({ min: 1, max: 40 }) },
    ...{ size: pairOf(1, 14), kernel: pairOf(1, 4), stride: pairOf(1, 3), dilation: pairOf(1, 2) },
    padding: pairOf(0, 2),
  })
  .filter(({ size, kernel, padding, dilation }) =>
    size.every((extent, axis) => extent + 2 * padding[axis]! > (kernel[axis]! - 1) * dilation[axis]!),
  )
  .map(geometry);

function pairOf(min: number, max: number): fc.Arbitrary<Pair> {
  return fc.tuple(fc.integer({ min, max }), fc.integer({ min, max }));
}

type Sizes = Pick<ConvolutionGeometry, "channels" | "outChannels" | "size"> & Partial<ConvolutionGeometry>;

/** A geometry with all windows that fit. */
export function geometry(sizes: Sizes): ConvolutionGeometry {
  const { size, kernel = [1, 1], stride = [1, 1], padding = [0, 0], dilation = [1, 1] } = sizes;
  const count = (axis: 0 | 1): number =>
    Math.floor((size[axis] + 2 * padding[axis] - (kernel[axis] - 1) * dilation[axis] - 1) / stride[axis]) + 1;
  const outSize: Pair = [count(0), count(1)];
  return { batch: 1, groups: 1, ...sizes, kernel, stride, padding, dilation, outSize };
}

/** Operands of order 1, each of its own. */
export function valuesFor(
  shape: ConvolutionGeometry,
): Readonly<Record<"x" | "weight" | "y" | "bias", number[]>> {
  const draw = (length: number, seed: number): number[] =>
    Array.from({ length }, (_, index) => Math.fround(Math.sin(index * 12.9898 + seed) * 2));
  const { x, weight, y } = elementCounts({ ...shape, direction: "forward", dtype: "f32" });
  return {
    x: draw(x, 1),
    weight: draw(weight, 2),
    y: draw(y, 3),
    // For either image.
    bias: draw(shape.groups * Math.max(shape.channels, shape.outChannels), 4),
  };
}

export interface ExpectedResult {
  readonly values: Float64Array;
  /** The sum of the products' absolute values: errors are relative to it. */
  readonly scales: Float64Array;
}

/** The result of a direction in f64, with the operands rounded by `round`. */
export function convolveInF64(
  direction: ConvolutionDirection,
  shape: ConvolutionGeometry,
  operands: Readonly<Record<"x" | "weight" | "y", ArrayLike<number>>> & { readonly bias?: ArrayLike<number> },
  round: (value: number) => number = (value) => value,
): ExpectedResult {
  const { bias } = operands;
  const rounded = (values: ArrayLike<number>): Float64Array => Float64Array.from(values, round);
  const [x, weight, y] = [rounded(operands.x), rounded(operands.weight), rounded(operands.y)];
  const count = elementCounts({ ...shape, direction, dtype: "f32" })[writtenOperand[direction]];
  const [values, scales] = [new Float64Array(count), new Float64Array(count)];
  const add = (at: number, left: number, right: number): void => {
    values[at]! += left * right;
    scales[at]! += Math.abs(left * right);
  };
  for (const { inX, inWeight, inY } of productsOf(shape)) {
    if (direction === "forward") add(inY, x[inX]!, weight[inWeight]!);
    else if (direction === "input-gradient") add(inX, y[inY]!, weight[inWeight]!);
    else add(inWeight, y[inY]!, x[inX]!);
  }
  if (bias) {
    const { channels, size } = writtenImage({ ...shape, direction, dtype: "f32" });
    for (let at = 0; at < count; at++) {
      const added = bias[Math.floor(at / areaOf(size)) % channels]!;
      values[at]! += added;
      scales[at]! += Math.abs(added);
    }
  }
  return { values, scales };
}

/** The three elements of every product. */
function* productsOf(shape: ConvolutionGeometry) {
  const { batch, groups, channels, outChannels, size, outSize, kernel, stride, padding, dilation } = shape;
  for (let image = 0; image < batch; image++) {
    for (let out = 0; out < groups * outChannels; out++) {
      for (let channel = 0; channel < channels; channel++) {
        const inputPlane = (image * groups + Math.floor(out / outChannels)) * channels + channel;
        for (let tap = 0; tap < areaOf(kernel); tap++) {
          const [i, j] = [Math.floor(tap / kernel[1]), tap % kernel[1]];
          for (let position = 0; position < areaOf(outSize); position++) {
            const row = Math.floor(position / outSize[1]) * stride[0] - padding[0] + i * dilation[0];
            const column = (position % outSize[1]) * stride[1] - padding[1] + j * dilation[1];
            if (row < 0 || row >= size[0] || column < 0 || column >= size[1]) continue;
            yield {
              inX: inputPlane * areaOf(size) + row * size[1] + column,
              inWeight: (out * channels + channel) * areaOf(kernel) + tap,
              inY: (image * groups * outChannels + out) * areaOf(outSize) + position,
            };
          }
        }
      }
    }
  }
}
