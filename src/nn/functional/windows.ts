/** Windows as columns, borders, and products of two inputs. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import {
  fold as foldOp,
  formatShape,
  type PerAxis,
  type WindowOptions,
  windowOptionNames,
  windows,
} from "../../ops/index.js";
import { fromTyped, type Tensor } from "../../tensor/index.js";

/**
 * The windows of images [N, C, H, W] or [C, H, W] as columns, [N, C · kH · kW, windows].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[[1, 2, 3], [4, 5, 6]]]);
 * console.log(nn.functional.unfold(x, 2).tolist()); // → [ [ 1, 2 ], [ 2, 3 ], [ 4, 5 ], [ 5, 6 ] ]
 * cpu.close();
 * ```
 */
export function unfold(x: Tensor, kernel: PerAxis, given: WindowOptions = {}): Tensor {
  const { padding = 0, ...options } = checkOptions("unfold", given, windowOptionNames);
  const [kernelHeight, kernelWidth] = pair(kernel);
  const [vertical, horizontal] = pair(padding);
  if (x.ndim !== 3 && x.ndim !== 4) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `unfold: the input is ${formatShape(x.shape)}; it must be [N, C, H, W] or [C, H, W].`,
    );
  }
  const padded = vertical > 0 || horizontal > 0 ? x.pad([horizontal, horizontal, vertical, vertical]) : x;
  const windowed = x.device.apply(windows, [padded], { kernel: [kernelHeight, kernelWidth], ...options });
  // […, C, rows, columns, kH, kW] → […, C · kH · kW, rows · columns]
  const [channels = 1, rows = 1, columns = 1] = windowed.shape.slice(-5);
  return windowed
    .movedim(-4, -1)
    .movedim(-4, -1)
    .reshape([...x.shape.slice(0, -3), channels * kernelHeight * kernelWidth, rows * columns]);
}

/**
 * Adds windows as columns, [N, C · kH · kW, windows] or without the batch, to images of a size [H, W]: the reverse of `unfold`, but where
 * windows overlap, their elements are added.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.fold(ones([4, 2]), [2, 3], 2).tolist()); // → [ [ [ 1, 2, 1 ], [ 1, 2, 1 ] ] ]
 * cpu.close();
 * ```
 */
export function fold(x: Tensor, size: PerAxis, kernel: PerAxis, options: WindowOptions = {}): Tensor {
  const { stride = 1, padding = 0, dilation = 1 } = checkOptions("fold", options, windowOptionNames);
  const [sizes, kernels, strides, paddings, dilations] = [size, kernel, stride, padding, dilation].map(
    pair,
  ) as [Pair, Pair, Pair, Pair, Pair];
  const padded = sizes.map((length, axis) => length + 2 * (paddings[axis] ?? 0));
  const count = padded.map(
    (length, axis) =>
      Math.floor((length - (dilations[axis] ?? 1) * ((kernels[axis] ?? 1) - 1) - 1) / (strides[axis] ?? 1)) +
      1,
  );
  const [columns = 0, found = 0] = x.shape.slice(-2);
  const area = kernels[0] * kernels[1];
  const expected = (count[0] ?? 0) * (count[1] ?? 0);
  if ((x.ndim !== 2 && x.ndim !== 3) || columns % area !== 0 || found !== expected) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `fold: ${formatShape(x.shape)} to images of ${formatShape(sizes)} with windows of ${formatShape(kernels)}: the input must be [N, C · ` +
        `${area}, ${expected}].`,
      { numbers: { windows: found, expected } },
    );
  }
  const batch = x.shape.slice(0, -2);
  const windowed = x
    .reshape([...batch, columns / area, ...kernels, ...count])
    .movedim(-4, -1)
    .movedim(-4, -1);
  const folded = x.device.apply(foldOp, [windowed], {
    shape: [...batch, columns / area, ...padded],
    ...{ kernel: kernels, stride: strides, dilation: dilations },
  });
  const [vertical, horizontal] = paddings;
  return vertical > 0 || horizontal > 0
    ? folded.pad([-horizontal, -horizontal, -vertical, -vertical])
    : folded;
}

type Pair = readonly [number, number];

function pair(value: PerAxis): Pair {
  if (typeof value === "number") return [value, value];
  const [first = 1, second = 1] = value;
  return [first, second];
}

/** How `pad` fills a border. */
export type PadMode = "constant" | "reflect" | "replicate" | "circular";

/**
 * Pads, from the last axis on, with elements of the tensor: mirrored without repeating the edge, the edge itself, or from the other end.
 *
 * @internal
 */
export function padByIndex(x: Tensor, pads: readonly number[], mode: Exclude<PadMode, "constant">): Tensor {
  if (pads.length % 2 !== 0 || pads.length > 2 * x.ndim || !pads.every(Number.isSafeInteger)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `pad: ${formatShape(pads)} for ${formatShape(x.shape)}; pass pairs of whole numbers, before and after, from the last axis on.`,
    );
  }
  let result = x;
  for (let index = 0; index < pads.length; index += 2) {
    const axis = x.ndim - 1 - index / 2;
    const [before = 0, after = 0] = pads.slice(index, index + 2);
    if (before === 0 && after === 0) continue;
    const size = x.shape[axis] ?? 0;
    const limit = mode === "reflect" ? size - 1 : mode === "circular" ? size : Number.POSITIVE_INFINITY;
    if (size === 0 || Math.max(before, after) > limit || size + before + after < 1) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `pad, ${mode}: ${before} before and ${after} after axis ${axis} of ${formatShape(x.shape)}, which allows up to ${limit} each.`,
        { numbers: { mode, size } },
      );
    }
    const indices = Int32Array.from({ length: size + before + after }, (_, at) =>
      sourceOf(at - before, size, mode),
    );
    result = result.indexSelect(axis, fromTyped(indices, [indices.length], { device: x.device }));
  }
  return result;
}

function sourceOf(at: number, size: number, mode: Exclude<PadMode, "constant">): number {
  if (mode === "replicate") return Math.max(0, Math.min(size - 1, at));
  if (mode === "circular") return (at + size) % size;
  const mirrored = Math.abs(at);
  return mirrored < size ? mirrored : 2 * (size - 1) - mirrored;
}

/**
 * For each output o, x1 · W[o] · x2 + b[o], for a weight [out, in1, in2] and an optional bias [out].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const weight = tensor([[[1, 0], [0, 1]]]);
 * console.log(nn.functional.bilinear(tensor([[1, 2]]), tensor([[3, 4]]), weight).tolist()); // → [ [ 11 ] ]
 * cpu.close();
 * ```
 */
export function bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | null = null): Tensor {
  const [out = 0, in1 = 0, in2 = 0] = weight.shape;
  const fits = weight.ndim === 3 && x1.shape.at(-1) === in1 && x2.shape.at(-1) === in2;
  if (!fits) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `bilinear: inputs ${formatShape(x1.shape)} and ${formatShape(x2.shape)} with a weight ${formatShape(weight.shape)}: pass […, in1], […, in2] ` +
        "and [out, in1, in2].",
    );
  }
  const matrix = weight.movedim(1, 0).reshape([in1, out * in2]);
  const partial = x1.matmul(matrix).unflatten(-1, [out, in2]); // […, out, in2]
  const y = partial.mul(x2.unsqueeze(-2)).sum(-1);
  return bias ? y.add(bias) : y;
}
