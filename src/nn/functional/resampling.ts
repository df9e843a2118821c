/** Changes of resolution: interpolation, power pooling, and shuffles of pixels and channels. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape, type PerAxis, upsampleNearest } from "../../ops/index.js";
import { avgPool1d, avgPool2d, fromTyped, type PoolOptions, type Tensor } from "../../tensor/index.js";
import { adaptiveAvgPool1d, adaptiveAvgPool2d, adaptiveAvgPool3d } from "./adaptive-pooling.js";

/** How `interpolate` computes an element. */
export type InterpolationMode =
  | ("nearest" | "nearest-exact" | "linear")
  | ("bilinear" | "trilinear" | "bicubic" | "area");

/** Options of `interpolate`: a size or a scale factor, each one number for all axes or one for each. */
export interface InterpolateOptions {
  readonly size?: PerAxis;
  readonly scaleFactor?: PerAxis;
  /** Default: nearest. */
  readonly mode?: InterpolationMode;
  /** The centers of the corner elements stay corners; for linear and cubic modes. Default: false. */
  readonly alignCorners?: boolean;
  /**
   * A smaller image is a mean over all elements, weighted by their distance, and not only over the nearest ones; for "bilinear" and "bicubic".
   * Default: false.
   */
  readonly antialias?: boolean;
  /** Take positions from the rounded size, and not from the given factor. Default: false. */
  readonly recomputeScaleFactor?: boolean;
}

export const interpolateOptionNames: OptionNames<InterpolateOptions> = {
  size: true,
  scaleFactor: true,
  mode: true,
  alignCorners: true,
  antialias: true,
  recomputeScaleFactor: true,
};

/** The number of axes that a mode is for; any if undefined. */
const ranks: Record<InterpolationMode, number | undefined> = {
  ...{ nearest: undefined, "nearest-exact": undefined, area: undefined },
  ...{ linear: 1, bilinear: 2, trilinear: 3, bicubic: 2 },
};

/**
 * Resizes [N, C, L], [N, C, H, W] or [N, C, D, H, W] to a size or by a factor.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[[1, 3]]]);
 * console.log(nn.functional.interpolate(x, { scaleFactor: 2 }).flatten().tolist()); // → [ 1, 1, 3, 3 ]
 * console.log(nn.functional.interpolate(x, { size: 4, mode: "linear" }).flatten().tolist()); // → [ 1, 1.5, 2.5, 3 ]
 * cpu.close();
 * ```
 */
export function interpolate(x: Tensor, options: InterpolateOptions): Tensor {
  const {
    size,
    scaleFactor,
    mode = "nearest",
    alignCorners = false,
    antialias = false,
    recomputeScaleFactor = false,
  } = checkOptions("interpolate", options, interpolateOptionNames);
  const rank = x.ndim - 2;
  requireMode(mode, antialias);
  const needed = ranks[mode];
  if (rank < 1 || rank > 3 || (needed !== undefined && needed !== rank)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `interpolate, ${mode}: the input is ${formatShape(x.shape)}; it needs a batch, channels and ${needed ?? "1 to 3"} more axes.`,
      { numbers: { mode, axes: x.ndim } },
    );
  }
  if ((size === undefined) === (scaleFactor === undefined))
    throw new HoldfastError("BAD_ARGUMENT", "interpolate: pass either a size or a scaleFactor.");
  const sizes = x.shape.slice(2);
  const factors = scaleFactor === undefined ? undefined : each(scaleFactor, rank);
  const targets = factors
    ? sizes.map((length, axis) => Math.floor(length * (factors[axis] ?? 1)))
    : each(size ?? 1, rank);
  if (targets.some((length) => !Number.isSafeInteger(length) || length < 1)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `interpolate: the size would be ${formatShape(targets)}. Every size must be 1 or more.`,
    );
  }
  if (mode === "area") return (areaPools[rank - 1] ?? adaptiveAvgPool1d)(x, targets);
  const ratios = targets.map((target, axis) => target / (sizes[axis] ?? 1));
  // As in PyTorch, the step between elements is that of the given factor, not of the rounded size.
  const scales = factors && !recomputeScaleFactor ? factors : ratios;
  const isBlocks = scales.map((scale) => mode === "nearest" && Number.isInteger(scale));
  const start = isBlocks.includes(true)
    ? x.device.apply(upsampleNearest, [x], {
        factors: scales.map((scale, axis) => (isBlocks[axis] ? scale : 1)),
      })
    : x;
  return targets.reduce((result, target, axis) => {
    if (isBlocks[axis]) return result;
    const size = sizes[axis] ?? 1;
    const step = scales === ratios ? size / target : 1 / (scales[axis] ?? 1);
    const source = { size, target, step, alignCorners };
    if (antialias) return weightedMeans(result, axis + 2, mode, source);
    return combine(result, axis + 2, tapsOf(mode, source));
  }, start);
}

function requireMode(mode: InterpolationMode, antialias: boolean): void {
  if (!(mode in ranks)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `interpolate: mode is "${String(mode)}"; it must be one of ${Object.keys(ranks).join(", ")}.`,
    );
  }
  if (antialias && mode !== "bilinear" && mode !== "bicubic") {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `interpolate: antialias is for the modes "bilinear" and "bicubic", not "${mode}".`,
    );
  }
}

const areaPools = [adaptiveAvgPool1d, adaptiveAvgPool2d, adaptiveAvgPool3d];

/** Where the elements along an axis come from. */
interface Resampling {
  readonly size: number;
  readonly target: number;
  readonly step: number;
  readonly alignCorners: boolean;
}

/** For each element of the result: the index of an element, and its weight. */
interface Tap {
  readonly indices: Int32Array<ArrayBuffer>;
  readonly weights?: Float64Array<ArrayBuffer>;
}

function tapsOf(mode: InterpolationMode, resampling: Resampling): readonly Tap[] {
  const { size, target, step, alignCorners } = resampling;
  if (mode === "nearest" || mode === "nearest-exact") {
    const shift = mode === "nearest" ? 0 : 0.5;
    const indices = Int32Array.from({ length: target }, (_, at) =>
      Math.min(size - 1, Math.floor((at + shift) * step)),
    );
    return [{ indices }];
  }
  const isCubic = mode === "bicubic";
  const alignedStep = target > 1 ? (size - 1) / (target - 1) : 0;
  const positions = Array.from({ length: target }, (_, at) => {
    const position = alignCorners ? at * alignedStep : (at + 0.5) * step - 0.5;
    return isCubic || alignCorners ? position : Math.max(0, position);
  });
  const offsets = isCubic ? [-1, 0, 1, 2] : [0, 1];
  return offsets.map((offset) => ({
    indices: Int32Array.from(positions, (position) =>
      Math.max(0, Math.min(size - 1, Math.floor(position) + offset)),
    ),
    weights: Float64Array.from(positions, (position) => {
      const distance = Math.abs(position - Math.floor(position) - offset);
      return isCubic ? cubicWeight(distance) : 1 - distance;
    }),
  }));
}

/** The cubic convolution kernel. Its constant is −0.75, and −0.5 with antialiasing, as in PyTorch. */
function cubicWeight(distance: number, a = -0.75): number {
  if (distance <= 1) return ((a + 2) * distance - (a + 3)) * distance * distance + 1;
  return ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a;
}

/** Means along an axis, weighted by a kernel that is as wide as the step between results: a product with a matrix. */
function weightedMeans(x: Tensor, axis: number, mode: InterpolationMode, resampling: Resampling): Tensor {
  const { size, target, alignCorners } = resampling;
  const step = alignCorners ? (target > 1 ? (size - 1) / (target - 1) : 0) : resampling.step;
  const width = Math.max(1, step);
  const radius = (mode === "bicubic" ? 2 : 1) * width;
  const weights = new Float64Array(target * size);
  for (let to = 0; to < target; to++) {
    const center = (to + 0.5) * step;
    const first = Math.max(0, Math.trunc(center - radius + 0.5));
    const last = Math.min(size, Math.trunc(center + radius + 0.5));
    const row = weights.subarray(to * size + first, to * size + last);
    for (const index of row.keys()) {
      const distance = Math.abs(first + index + 0.5 - center) / width;
      row[index] =
        mode === "bilinear" ? Math.max(0, 1 - distance) : distance < 2 ? cubicWeight(distance, -0.5) : 0;
    }
    const total = row.reduce((sum, weight) => sum + weight, 0);
    for (const [index, weight] of row.entries()) row[index] = weight / total;
  }
  const matrix = fromTyped(x.dtype === "f64" ? weights : Float32Array.from(weights), [target, size], {
    device: x.device,
  });
  return x.movedim(axis, -1).matmul(matrix.to(x.dtype).t()).movedim(-1, axis);
}

/** The weighted sum of selections along an axis. */
function combine(x: Tensor, axis: number, taps: readonly Tap[]): Tensor {
  const trailing = x.shape.slice(axis + 1).map(() => 1);
  const terms = taps.map(({ indices, weights }) => {
    const { device } = x;
    const selected = x.indexSelect(axis, fromTyped(indices, [indices.length], { device }));
    if (!weights) return selected;
    const factors = x.dtype === "f64" ? weights : Float32Array.from(weights);
    return selected.mul(fromTyped(factors, [weights.length, ...trailing], { device }).to(x.dtype));
  });
  return terms.reduce((sum, term) => sum.add(term));
}

/**
 * The p-norm of every window along [N, C, L] or [C, L]. Default stride: the kernel's size.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.lpPool1d(tensor([[3, 4]]), 2, 2).tolist()); // → [ [ 5 ] ]
 * cpu.close();
 * ```
 */
export function lpPool1d(x: Tensor, p: number, kernel: number, options: LpPoolOptions = {}): Tensor {
  const window = checkOptions("lpPool1d", options, lpPoolOptionNames);
  return rootOfSums(avgPool1d(x.pow(p), kernel, window), p, kernel);
}

/**
 * The p-norm of every window over [N, C, H, W] or [C, H, W]. Default stride: the kernel's size.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.lpPool2d(tensor([[[2, 2], [2, 2]]]), 2, 2).tolist()); // → [ [ [ 4 ] ] ]
 * cpu.close();
 * ```
 */
export function lpPool2d(x: Tensor, p: number, kernel: PerAxis, options: LpPoolOptions = {}): Tensor {
  const window = checkOptions("lpPool2d", options, lpPoolOptionNames);
  const count = each(kernel, 2).reduce((product, size) => product * size, 1);
  return rootOfSums(avgPool2d(x.pow(p), kernel, window), p, count);
}

/** Options of `lpPool1d` and `lpPool2d`. */
export type LpPoolOptions = Pick<PoolOptions, "stride" | "ceilMode">;

export const lpPoolOptionNames: OptionNames<LpPoolOptions> = { stride: true, ceilMode: true };

function rootOfSums(means: Tensor, p: number, count: number): Tensor {
  return means
    .sign()
    .mul(means.abs().relu())
    .mul(count)
    .pow(1 / p);
}

/**
 * Moves channels to pixels: [N, C · r², H, W] becomes [N, C, H · r, W · r].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([1, 2, 3, 4]).reshape([1, 4, 1, 1]);
 * console.log(nn.functional.pixelShuffle(x, 2).flatten(1).tolist()); // → [ [ 1, 2, 3, 4 ] ]
 * cpu.close();
 * ```
 */
export function pixelShuffle(x: Tensor, factor: number): Tensor {
  const [batch, channels, height, width] = imageOf("pixelShuffle", x, factor);
  requireMultiple("pixelShuffle", channels, factor * factor, "channels");
  const kept = channels / (factor * factor);
  return x
    .reshape([...batch, kept, factor, factor, height, width])
    .permute([...batch.keys(), ...[0, 3, 1, 4, 2].map((axis) => batch.length + axis)])
    .reshape([...batch, kept, height * factor, width * factor]);
}

/**
 * Moves pixels to channels: [N, C, H · r, W · r] becomes [N, C · r², H, W].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[[[1, 2], [3, 4]]]]);
 * console.log(nn.functional.pixelUnshuffle(x, 2).shape); // → [ 1, 4, 1, 1 ]
 * cpu.close();
 * ```
 */
export function pixelUnshuffle(x: Tensor, factor: number): Tensor {
  const [batch, channels, height, width] = imageOf("pixelUnshuffle", x, factor);
  requireMultiple("pixelUnshuffle", height, factor, "rows");
  requireMultiple("pixelUnshuffle", width, factor, "columns");
  const [rows, columns] = [height / factor, width / factor];
  return x
    .reshape([...batch, channels, rows, factor, columns, factor])
    .permute([...batch.keys(), ...[0, 2, 4, 1, 3].map((axis) => batch.length + axis)])
    .reshape([...batch, channels * factor * factor, rows, columns]);
}

/**
 * Mixes the channels of groups: the first channel of each group comes first, then the second of each.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[1, 2, 3, 4]]);
 * console.log(nn.functional.channelShuffle(x, 2).tolist()); // → [ [ 1, 3, 2, 4 ] ]
 * cpu.close();
 * ```
 */
export function channelShuffle(x: Tensor, groups: number): Tensor {
  const channels = x.shape[1] ?? 0;
  requireMultiple("channelShuffle", channels, groups, "channels");
  return x
    .unflatten(1, [groups, channels / groups])
    .transpose(1, 2)
    .reshape(x.shape);
}

function imageOf(
  name: string,
  x: Tensor,
  factor: number,
): readonly [batch: readonly number[], channels: number, height: number, width: number] {
  if (x.ndim >= 3 && Number.isSafeInteger(factor) && factor >= 1) {
    const [channels = 0, height = 0, width = 0] = x.shape.slice(-3);
    return [x.shape.slice(0, -3), channels, height, width];
  }
  throw new HoldfastError(
    "BAD_SHAPE",
    `${name}: a factor of ${factor} for ${formatShape(x.shape)}. Pass a whole number, and an input [N, C, H, W] or [C, H, W].`,
  );
}

function requireMultiple(name: string, size: number, divisor: number, unit: string): void {
  if (Number.isSafeInteger(divisor) && divisor >= 1 && size % divisor === 0) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${name}: ${size} ${unit} are no multiple of ${divisor}. Choose another factor.`,
    {
      numbers: { size, divisor },
    },
  );
}

function each(value: PerAxis, rank: number): readonly number[] {
  if (typeof value === "number") return new Array<number>(rank).fill(value);
  if (value.length === rank) return value;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${formatShape(value)}: pass one number, or one for each of ${rank} axes.`,
  );
}
