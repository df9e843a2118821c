/** The computations of linear, convolutional, embedding and dropout layers as functions. */

import { currentRecomputation, noGrad } from "../../autograd/index.js";
import { checkOptions, type OptionNames } from "../../errors/index.js";
import {
  batchedLinear as batchedLinearOp,
  dropout as dropoutOp,
  embedding as embeddingOp,
  fusedProjections as fusedProjectionsOp,
  linear as linearOp,
  loraLinear as loraLinearOp,
  renormRows,
} from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";
import { isActive } from "./dropout-mode.js";
import { type PadMode, padByIndex } from "./windows.js";

export {
  avgPool1d,
  avgPool2d,
  avgPool3d,
  conv1d,
  conv2d,
  conv3d,
  convTranspose1d,
  convTranspose2d,
  convTranspose3d,
  maxPool1d,
  maxPool2d,
  maxPool3d,
  oneHot,
  pdist,
} from "../../tensor/index.js";

/** Options of `linear`. */
export interface LinearOptions {
  /** The layout of the weight. Default: PyTorch's [out, in]; or [in, out]. */
  readonly layout?: "outIn" | "inOut";
}

/**
 * x·Wᵀ + b, with a weight [out, in] and an optional bias [out]; x·W + b for a weight [in, out].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const weight = tensor([[1, 0], [0, 1], [1, 1]]);
 * console.log(nn.functional.linear(tensor([[2, 3]]), weight, tensor([0, 0, 10])).tolist()); // → [ [ 2, 3, 15 ] ]
 * cpu.close();
 * ```
 */
export function linear(
  x: Tensor,
  weight: Tensor,
  bias: Tensor | null = null,
  options: LinearOptions = {},
): Tensor {
  const { layout = "outIn" } = checkOptions("linear", options, { layout: true });
  return x.device.apply(linearOp, bias ? [x, weight, bias] : [x, weight], { layout });
}

/** What `loraLinear` adds to a linear layer. */
export interface LoraProduct {
  /** [rank, in] */
  readonly a: Tensor;
  /** [out, rank] */
  readonly b: Tensor;
  /** Default: 1. */
  readonly scale?: number;
  /** What A multiplies, such as x after dropout. Default: x. */
  readonly input?: Tensor;
}

/**
 * x·Wᵀ + b, and a low-rank product beside it: scale·x·Aᵀ·Bᵀ. The result has the dtype that it would have without the product.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [weight, a, b] = [tensor([[1, 0], [0, 1]]), tensor([[1, 1]]), tensor([[1], [0]])];
 * console.log(nn.functional.loraLinear(tensor([[2, 3]]), weight, null, { a, b, scale: 2 }).tolist()); // → [ [ 12, 3 ] ]
 * cpu.close();
 * ```
 */
export function loraLinear(x: Tensor, weight: Tensor, bias: Tensor | null, product: LoraProduct): Tensor {
  const names = { a: true, b: true, scale: true, input: true } as const;
  const { a, b, scale = 1, input } = checkOptions("loraLinear", product, names);
  const operands = bias ? [x, weight, a, b, bias] : [x, weight, a, b];
  if (!input || input === x) return x.device.apply(loraLinearOp, operands, { scale });
  return x.device.apply(loraLinearOp, [...operands, input], { scale, inputOfA: bias ? 5 : 4 });
}

/**
 * A separate linear layer per group: x[:, g]·W[g] + b[g] for x [rows, groups, in], with a weight [in, out] and a bias
 * [out] per group. One batched GEMM, which reads the weights in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [double, negate] = [tensor([[2]]), tensor([[-1]])];
 * const zero = tensor([0]);
 * console.log(nn.functional.batchedLinear(tensor([[[3], [4]]]), [double, negate], [zero, zero]).tolist());
 * // → [ [ [ 6 ], [ -4 ] ] ]
 * cpu.close();
 * ```
 */
export function batchedLinear(x: Tensor, weights: readonly Tensor[], biases: readonly Tensor[]): Tensor {
  return x.device.apply(batchedLinearOp, [x, ...weights, ...biases]);
}

/**
 * Several linear layers of one input: x·W[l] for x [rows…, in] and weights [in, out], as [rows…, layers, out]. One
 * GEMM, which reads the weights in place.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [double, negate] = [tensor([[2]]), tensor([[-1]])];
 * console.log(nn.functional.fusedProjections(tensor([[3], [4]]), [double, negate]).tolist());
 * // → [ [ [ 6 ], [ -3 ] ], [ [ 8 ], [ -4 ] ] ]
 * cpu.close();
 * ```
 */
export function fusedProjections(x: Tensor, weights: readonly Tensor[]): Tensor {
  return x.device.apply(fusedProjectionsOp, [x, ...weights]);
}

/**
 * In training: sets each element to 0 with probability p and scales the others by 1/(1 − p), for p rounded to a multiple of 2⁻¹⁶.
 * Otherwise, or with p = 0, returns the tensor itself. Masks depend only on the seed and the number of earlier draws.
 *
 * @example
 * ```ts
 * import { device, manualSeed, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const x = ones([1000]);
 * manualSeed(7);
 * const first = nn.functional.dropout(x, 0.25);
 * manualSeed(7);
 * console.log(first.eq(nn.functional.dropout(x, 0.25)).all().item()); // → 1
 * console.log(nn.functional.dropout(x, 0.25, false) === x); // → true
 * cpu.close();
 * ```
 */
export function dropout(x: Tensor, p = 0.5, isTraining = true): Tensor {
  return isActive("dropout", isTraining, p) ? x.device.apply(dropoutOp, [x, x.device.randomState], { p }) : x;
}

/** Options of `embedding`. */
export interface EmbeddingFunctionOptions {
  /** The row that gets no gradient. A negative index counts from the end. */
  readonly paddingIdx?: number;
  /** Rows that are looked up and have a larger norm are first scaled down to it, in the weight itself. */
  readonly maxNorm?: number;
  /** The p of that p-norm. Default: 2. */
  readonly normType?: number;
}

const embeddingOptionNames: OptionNames<EmbeddingFunctionOptions> = {
  paddingIdx: true,
  maxNorm: true,
  normType: true,
};

/**
 * A row of the weight [rows, width] for each index.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const words = tensor([2, 0], { dtype: "i32" });
 * console.log(nn.functional.embedding(words, tensor([[1], [2], [3]])).tolist()); // → [ [ 3 ], [ 1 ] ]
 * cpu.close();
 * ```
 */
export function embedding(index: Tensor, weight: Tensor, options: EmbeddingFunctionOptions = {}): Tensor {
  const { paddingIdx, maxNorm, normType = 2 } = checkOptions("embedding", options, embeddingOptionNames);
  // A function that runs again for backward must not change the weight that its first run has read.
  if (maxNorm !== undefined && !currentRecomputation()?.isRunningAgain) {
    const attributes = { maxNorm, p: normType };
    noGrad(() => weight.device.applyInPlace(renormRows, weight, [weight, index], attributes));
  }
  return weight.device.apply(embeddingOp, [weight, index], paddingIdx === undefined ? {} : { paddingIdx });
}

/** Options of `pad`. */
export interface PadOptions {
  /** A constant, or elements of the tensor: mirrored, those at the edge, or those from the other end. Default: constant. */
  readonly mode?: PadMode;
  /** The constant. Default: 0. */
  readonly value?: number;
}

/**
 * Pads with a constant, or with elements of the tensor: sizes before and after each axis, starting from the last axis. Negative sizes crop.
 *
 * @example
 * ```ts
 * import { device, nn, ones, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const image = ones([1, 2, 2]);
 * console.log(nn.functional.pad(image, [1, 1, 1, 1]).shape, nn.functional.pad(image, [-1, 0]).shape);
 * // → [ 1, 4, 4 ] [ 1, 2, 1 ]
 * console.log(nn.functional.pad(tensor([1, 2, 3]), [2, 1], { mode: "reflect" }).tolist()); // → [ 3, 2, 1, 2, 3, 2 ]
 * cpu.close();
 * ```
 */
export function pad(x: Tensor, pads: readonly number[], options: number | PadOptions = 0): Tensor {
  const { mode = "constant", value = 0 } = typeof options === "number" ? { value: options } : options;
  return mode === "constant" ? x.pad(pads, value) : padByIndex(x, pads, mode);
}
