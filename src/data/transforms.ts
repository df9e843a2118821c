/** transforms: change images on the host before they are collated, as torchvision.transforms. Random ones depend only on the loader's seed, the epoch and the sample. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import type { ImageArray } from "./images/index.js";
import { resizeBilinear } from "./resize.js";
import type { SampleRandom } from "./sample-context.js";

/** Makes an image of another one. `random` has the random numbers of the sample. */
export type Transform = (image: ImageArray, random: SampleRandom) => ImageArray;

/** A side of a square, or the height and the width. */
export type ImageSize = number | readonly [height: number, width: number];

/**
 * Applies transforms one after the other.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const { centerCrop, compose, toFloat } = transforms;
 * const transform = compose([centerCrop([1, 2]), toFloat()]);
 * const image = { values: Uint8Array.of(9, 255, 0, 9), shape: [1, 1, 4] } as const;
 * console.log(transform(image, { uniform: () => 0, below: () => 0 }).values); // → Float32Array(2) [ 1, 0 ]
 * ```
 */
export function compose(steps: readonly Transform[]): Transform {
  return (image, random) => steps.reduce((changed, step) => step(changed, random), image);
}

/**
 * Resizes an image, bilinear with antialiasing. A number is the new length of the shorter side; the longer one keeps the ratio.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const resized = transforms.resize([1, 2])({ values: Uint8Array.of(0, 2, 4, 6), shape: [1, 1, 4] }, { uniform: () => 0, below: () => 0 });
 * console.log(resized.values, resized.shape); // → Uint8Array(2) [ 1, 5 ] [ 1, 1, 2 ]
 * ```
 */
export function resize(size: ImageSize): Transform {
  requireSize("resize", size);
  return (image) => {
    const [, height, width] = image.shape;
    if (typeof size !== "number") return resizeBilinear(image, size[0], size[1]);
    const long = Math.max(1, Math.floor((size * Math.max(height, width)) / Math.min(height, width)));
    return height <= width ? resizeBilinear(image, size, long) : resizeBilinear(image, long, size);
  };
}

/**
 * Takes the middle of an image. A smaller image gets a border of zeros.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const image = { values: Uint8Array.of(1, 2, 3), shape: [1, 1, 3] } as const;
 * console.log(transforms.centerCrop(1)(image, { uniform: () => 0, below: () => 0 }).values); // → Uint8Array(1) [ 2 ]
 * ```
 */
export function centerCrop(size: ImageSize): Transform {
  const [height, width] = requireSize("centerCrop", size);
  return (image) =>
    crop(image, [middle(image.shape[1] - height), middle(image.shape[2] - width)], [height, width]);
}

/** Half, rounded to the even number, as Python does. */
function middle(difference: number): number {
  const half = difference / 2;
  return half % 1 === 0 ? half : 2 * Math.round(half / 2);
}

/** Options of `randomCrop`. */
export interface RandomCropOptions {
  /** Zeros around the image before it is cropped. Default: 0. */
  readonly padding?: number;
}

/**
 * Takes a part of an image at a random place.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const image = { values: Uint8Array.of(1, 2, 3), shape: [1, 1, 3] } as const;
 * const cropped = transforms.randomCrop([1, 2])(image, { uniform: () => 0, below: (limit) => limit - 1 });
 * console.log(cropped.values); // → Uint8Array(2) [ 2, 3 ]
 * ```
 */
export function randomCrop(size: ImageSize, options: RandomCropOptions = {}): Transform {
  const { padding = 0 } = checkOptions("transforms.randomCrop", options, { padding: true });
  const [height, width] = requireSize("randomCrop", size);
  if (!Number.isSafeInteger(padding) || padding < 0)
    throw badArgument(`randomCrop: padding is ${padding}; it must be a whole number of at least 0.`);
  return (image, random) => {
    const [, rows, columns] = image.shape;
    const [down, across] = [rows + 2 * padding - height, columns + 2 * padding - width];
    if (down < 0 || across < 0) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `randomCrop: an image of ${rows} × ${columns} with a padding of ${padding} is smaller than ${height} × ${width}. Resize it first, or raise the padding.`,
      );
    }
    const top = random.below(down + 1) - padding;
    return crop(image, [top, random.below(across + 1) - padding], [height, width]);
  };
}

/**
 * Mirrors an image with the probability p.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const image = { values: Uint8Array.of(1, 2, 3), shape: [1, 1, 3] } as const;
 * const flip = transforms.randomHorizontalFlip(0.5);
 * console.log(flip(image, { uniform: () => 0.2, below: () => 0 }).values); // → Uint8Array(3) [ 3, 2, 1 ]
 * ```
 */
export function randomHorizontalFlip(p = 0.5): Transform {
  if (!(p >= 0 && p <= 1))
    throw badArgument(`randomHorizontalFlip: p is ${p}; it must be a probability from 0 to 1.`);
  return (image, random) => {
    if (random.uniform() >= p) return image;
    const values = image.values.slice();
    const [channels, height, width] = image.shape;
    for (let row = 0; row < channels * height; row++)
      values.subarray(row * width, (row + 1) * width).reverse();
    return { values, shape: image.shape };
  };
}

/**
 * Makes float32 of bytes: 255 becomes 1.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const image = { values: Uint8Array.of(0, 51, 255), shape: [1, 1, 3] } as const;
 * console.log(transforms.toFloat()(image, { uniform: () => 0, below: () => 0 }).values[2]); // → 1
 * ```
 */
export function toFloat(): Transform {
  return ({ values, shape }) => ({
    values: values instanceof Uint8Array ? Float32Array.from(values, (value) => value / 255) : values,
    shape,
  });
}

/**
 * Subtracts each channel's mean and divides by its standard deviation. The image must be float32: use `toFloat` first.
 *
 * @example
 * ```ts
 * import { transforms } from "holdfast";
 * const image = { values: Float32Array.of(0, 0.5, 1), shape: [1, 1, 3] } as const;
 * console.log(transforms.normalize([0.5], [0.5])(image, { uniform: () => 0, below: () => 0 }).values); // → Float32Array(3) [ -1, 0, 1 ]
 * ```
 */
export function normalize(mean: readonly number[], std: readonly number[]): Transform {
  if (mean.length !== std.length || !mean.every(Number.isFinite) || !std.every((value) => value > 0)) {
    throw badArgument(
      `normalize: the means are [${mean.join(", ")}] and the deviations [${std.join(", ")}]; pass as many finite means as deviations above 0.`,
    );
  }
  return ({ values, shape }) => {
    const [channels, height, width] = shape;
    if (values instanceof Uint8Array)
      throw new HoldfastError("BAD_DTYPE", "normalize: the image has bytes. Apply toFloat first.");
    if (channels !== mean.length) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `normalize: the image has ${channels} channels, but there are ${mean.length} means.`,
      );
    }
    const size = height * width;
    const normalized = values.map((value, at) => {
      const channel = Math.floor(at / size);
      return (value - (mean[channel] ?? 0)) / (std[channel] ?? 1);
    });
    return { values: normalized, shape };
  };
}

/** A part of an image; zeros outside. */
function crop(
  { values, shape: [channels, rows, columns] }: ImageArray,
  [top, left]: readonly [number, number],
  [height, width]: readonly [number, number],
): ImageArray {
  const size = channels * height * width;
  const part = values instanceof Uint8Array ? new Uint8Array(size) : new Float32Array(size);
  const [from, to] = [Math.max(0, left), Math.min(columns, left + width)];
  for (let channel = 0; channel < channels; channel++) {
    for (let row = Math.max(0, -top); row < height && top + row < rows && from < to; row++) {
      const source = (channel * rows + top + row) * columns;
      part.set(values.subarray(source + from, source + to), (channel * height + row) * width + from - left);
    }
  }
  return { values: part, shape: [channels, height, width] };
}

function requireSize(name: string, size: ImageSize): readonly [number, number] {
  const [height, width] = typeof size === "number" ? [size, size] : size;
  if (Number.isSafeInteger(height) && Number.isSafeInteger(width) && height >= 1 && width >= 1)
    return [height, width];
  throw badArgument(`${name}: the size is ${height} × ${width}; the sides must be whole numbers above 0.`);
}

function badArgument(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", message);
}
