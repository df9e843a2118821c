/** Elements of images at positions between pixels, and grids of such positions: spatial transformers, warps by optical flow. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { promote } from "../../ir/index.js";
import { formatShape, indexSelect, type Shape } from "../../ops/index.js";
import { arange, linspace, stack, type Tensor } from "../../tensor/index.js";
import { hardtanh } from "./elementwise-activations.js";

/** Options of `gridSample`. */
export interface GridSampleOptions {
  /** Default: bilinear. */
  readonly mode?: "bilinear" | "nearest" | "bicubic";
  /** For positions outside of the image: zeros, the nearest pixel of the border, or the image mirrored at it. Default: zeros. */
  readonly paddingMode?: "zeros" | "border" | "reflection";
  /** True: −1 and 1 are the centers of the outermost pixels. False: they are the edges of the image. Default: false. */
  readonly alignCorners?: boolean;
}

const gridSampleOptionNames: OptionNames<GridSampleOptions> = {
  mode: true,
  paddingMode: true,
  alignCorners: true,
};

/**
 * Samples images [N, C, H, W] at positions [N, h, w, 2], as [N, C, h, w]. A position is x, y: from −1, −1 at the top left to 1, 1 at the bottom
 * right. Mode "nearest" gives the grid no gradient.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const image = tensor([[[[1, 2], [3, 4]]]]);
 * const grid = tensor([[[[-1, -1], [0, 0], [0, 1]]]]);
 * console.log(nn.functional.gridSample(image, grid, { alignCorners: true }).flatten().tolist()); // → [ 1, 2.5, 3.5 ]
 * cpu.close();
 * ```
 */
export function gridSample(x: Tensor, grid: Tensor, options: GridSampleOptions = {}): Tensor {
  const {
    mode = "bilinear",
    paddingMode = "zeros",
    alignCorners = false,
  } = checkOptions("gridSample", options, gridSampleOptionNames);
  requireName("mode", mode, ["bilinear", "nearest", "bicubic"]);
  requireName("paddingMode", paddingMode, ["zeros", "border", "reflection"]);
  const [batch = 0, channels = 0, height = 0, width = 0] = x.shape;
  const [grids = 0, rows = 0, columns = 0, coordinates = 0] = grid.shape;
  const isImage = x.ndim === 4 && height * width > 0;
  if (!isImage || grid.ndim !== 4 || grids !== batch || coordinates !== 2) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `gridSample: an input ${formatShape(x.shape)} with a grid ${formatShape(grid.shape)}. Pass images [N, C, H, W] with at least one ` +
        "pixel, and a grid [N, h, w, 2].",
    );
  }
  const dtype = promote(x.dtype, grid.dtype);
  const wide = dtype === "f64" ? "f64" : "f32";
  const positions = grid.to(wide).reshape([batch, rows * columns, 2]);
  const [across, down] = [width, height].map((size, axis) =>
    tapsOf(positions.select(-1, axis), { size, mode, paddingMode, alignCorners }),
  ) as [Taps, Taps];
  // All pairs of taps: [down, across, N, positions].
  const pairs = (pair: (y: Tensor, x: Tensor) => Tensor, name: "indices" | "isInside" | "weights"): Tensor =>
    pair(down[name].unsqueeze(1), across[name].unsqueeze(0)).flatten(0, 1);
  const firstOfImage = arange(0, batch, 1, { device: x.device })
    .mul(height * width)
    .unsqueeze(1);
  const indices = pairs((y, x) => y.mul(width).add(x), "indices").add(firstOfImage);
  // All channels share the indices, so that the gradient is one scatter of lists.
  const pixels = x
    .to(wide)
    .transpose(0, 1)
    .reshape([channels, batch * height * width]);
  // A pixel outside counts as 0 even if it has no finite weight, or the pixel that is read in its place is not finite.
  const isInside = pairs((y, x) => y.logicalAnd(x), "isInside");
  const taken = x.device
    .apply(indexSelect, [pixels, indices.flatten()], { axis: 1, isTrusted: true })
    .reshape([channels, ...indices.shape])
    .where(isInside, 0);
  const weights = (): Tensor => pairs((y, x) => y.mul(x), "weights").where(isInside, 0);
  const [first, ...others] = (mode === "nearest" ? taken : taken.mul(weights())).unbind(1) as [Tensor];
  const sampled = others.reduce((sum, term: Tensor) => sum.add(term), first);
  return sampled.to(dtype).transpose(0, 1).reshape([batch, channels, rows, columns]);
}

/** The pixels along an axis that a position is computed from; all tensors are [taps, N, positions]. */
interface Taps {
  /** i32, inside the axis. */
  readonly indices: Tensor;
  /** False for a pixel outside of the axis, which counts as 0. */
  readonly isInside: Tensor;
  readonly weights: Tensor;
}

type Axis = Required<GridSampleOptions> & { readonly size: number };

function tapsOf(coordinate: Tensor, axis: Axis): Taps {
  const { size, mode, alignCorners } = axis;
  const scaled = coordinate.add(1);
  const raw = alignCorners ? scaled.mul((size - 1) / 2) : scaled.mul(size).sub(1).div(2);
  // As in PyTorch, cubic weights are those of the position itself, and only the pixels around it are moved into the image.
  const position = mode === "bicubic" ? raw : intoImage(raw, axis);
  const first = mode === "nearest" ? position.round() : position.floor();
  const offsets = { nearest: [0], bilinear: [0, 1], bicubic: [-1, 0, 1, 2] }[mode];
  const around = stack(offsets.map((offset) => first.detach().add(offset)));
  const places = mode === "bicubic" ? intoImage(around, axis) : around;
  const fraction = position.sub(first);
  return {
    indices: places.to("i32").clamp(0, size - 1),
    isInside: places.ge(0).logicalAnd(places.le(size - 1)),
    weights: stack(offsets.map((offset) => weightAt(fraction, offset, mode))),
  };
}

/** The weight of the pixel at an offset from the one before a position, by the fraction between the two. */
function weightAt(fraction: Tensor, offset: number, mode: Axis["mode"]): Tensor {
  const distance = offset > 0 ? fraction.mul(-1).add(offset) : fraction.sub(offset);
  return mode === "bicubic" ? cubicWeight(distance, offset === 0 || offset === 1) : distance.mul(-1).add(1);
}

/** The cubic convolution kernel with a = −0.75, as in PyTorch. */
function cubicWeight(distance: Tensor, isNear: boolean): Tensor {
  const a = -0.75;
  const [c3, c2, c1, c0] = isNear ? [a + 2, -(a + 3), 0, 1] : [a, -5 * a, 8 * a, -4 * a];
  return distance.mul(c3).add(c2).mul(distance).add(c1).mul(distance).add(c0);
}

/** Moves positions into the image, unless pixels outside count as 0. As in PyTorch, a position at the border or outside has no gradient. */
function intoImage(position: Tensor, { size, paddingMode, alignCorners }: Axis): Tensor {
  if (paddingMode === "zeros") return position;
  const [edge, length] = alignCorners ? [0, size - 1] : [-0.5, size];
  const reflects = paddingMode === "reflection" && length > 0;
  return hardtanh(reflects ? reflect(position, edge, length) : position, 0, size - 1);
}

/** Mirrors positions at an edge and at the one opposite, as often as needed. */
function reflect(position: Tensor, edge: number, length: number): Tensor {
  const fromEdge = position.sub(edge).abs();
  const rest = fromEdge.fmod(length);
  const isEven = fromEdge.div(length).floor().fmod(2).eq(0);
  return rest.where(isEven, rest.mul(-1).add(length)).add(edge);
}

function requireName(option: string, name: string, names: readonly string[]): void {
  if (names.includes(name)) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `gridSample: ${option} is "${name}"; it must be one of ${names.join(", ")}.`,
  );
}

/**
 * A grid for `gridSample` from affine maps [N, 2, 3], for images of the size [N, C, H, W]: the position [N, H, W, 2] of each pixel of the result in the
 * source.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const image = tensor([[[[1, 2], [3, 4]]]]);
 * const mirror = tensor([[[-1, 0, 0], [0, 1, 0]]]);
 * const grid = nn.functional.affineGrid(mirror, image.shape);
 * console.log(nn.functional.gridSample(image, grid).flatten().tolist()); // → [ 2, 1, 4, 3 ]
 * cpu.close();
 * ```
 */
export function affineGrid(
  theta: Tensor,
  size: Shape,
  options: { readonly alignCorners?: boolean } = {},
): Tensor {
  const { alignCorners = false } = checkOptions("affineGrid", options, { alignCorners: true });
  const [batch = 0, , height = 0, width = 0] = size;
  const fits = size.length === 4 && formatShape(theta.shape) === formatShape([batch, 2, 3]);
  if (!fits || !size.every((length) => Number.isSafeInteger(length) && length > 0)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `affineGrid: maps ${formatShape(theta.shape)} for images of ${formatShape(size)}. Pass maps [N, 2, 3] and a size [N, C, H, W].`,
    );
  }
  const centers = (length: number): Tensor => {
    const edge = length === 1 ? 0 : alignCorners ? 1 : (length - 1) / length;
    return linspace(-edge, edge, length, { device: theta.device, dtype: theta.dtype });
  };
  const coefficients = (axis: number): Tensor => theta.select(2, axis).reshape([batch, 1, 1, 2]);
  const x = centers(width).reshape([1, 1, width, 1]).mul(coefficients(0));
  const y = centers(height).reshape([1, height, 1, 1]).mul(coefficients(1));
  return x.add(y).add(coefficients(2));
}
