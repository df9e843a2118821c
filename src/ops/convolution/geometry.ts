/** The geometry of windows over an array's last axes: checked sizes, strides and paddings for each axis. */

import type { OptionNames } from "../../errors/index.js";
import { badShape, formatShape, type Shape } from "../shape.js";

/** One number for all axes, or one number for each axis. */
export type PerAxis = number | readonly number[];

/** The axes that windows move along, and those of a kernel, by their number. */
export const axesText: Readonly<Record<number, string>> = { 1: "L", 2: "H, W", 3: "D, H, W" };
export const kernelText: Readonly<Record<number, string>> = { 1: "k", 2: "kH, kW", 3: "kD, kH, kW" };

export type WindowOptions = {
  readonly stride?: PerAxis;
  readonly padding?: PerAxis;
  readonly dilation?: PerAxis;
};

export const windowOptionNames: OptionNames<WindowOptions> = { stride: true, padding: true, dilation: true };

/** `ceilMode`: a last window may reach beyond the padding, if it begins before the end of the input or in the padding before it. */
export type PoolWindowOptions = WindowOptions & { readonly ceilMode?: boolean };

/** Each field has one number for every axis that windows move along. */
export interface Windows {
  readonly kernel: readonly number[];
  readonly stride: readonly number[];
  readonly dilation: readonly number[];
  /** On both sides. */
  readonly padding: readonly number[];
  /** The number of windows. */
  readonly count: readonly number[];
}

/** Windows over the last axes of a shape, as many axes as the kernel has. */
export function windowsOver(
  op: string,
  shape: Shape,
  kernel: readonly number[],
  { stride = 1, padding = 0, dilation = 1, ceilMode = false }: PoolWindowOptions,
): Windows {
  const rank = kernel.length;
  const options = {
    kernel,
    stride: eachAxis(op, "stride", stride, rank, 1),
    dilation: eachAxis(op, "dilation", dilation, rank, 1),
    padding: eachAxis(op, "padding", padding, rank, 0),
  };
  const count = shape.slice(-rank).map((size, axis) => {
    const border = options.padding[axis] ?? 0;
    const step = options.stride[axis] ?? 1;
    const width = ((kernel[axis] ?? 1) - 1) * (options.dilation[axis] ?? 1) + 1;
    const steps = (size + 2 * border - width) / step;
    const windowCount = ceilMode
      ? Math.min(Math.ceil(steps), Math.ceil((size + border) / step) - 1) + 1
      : Math.floor(steps) + 1;
    if (windowCount < 1) {
      throw badShape(
        op,
        `a window of ${width} over axis ${axis - rank} of ${formatShape(shape)}, which has ${size}` +
          `${border > 0 ? ` and a border of ${border} on both sides` : ""}: it does not fit.`,
      );
    }
    return windowCount;
  });
  return { ...options, count };
}

/** A setting as one number for each axis. */
export function eachAxis(op: string, setting: string, value: PerAxis, rank: number, min: number): number[] {
  const numbers = typeof value === "number" ? new Array<number>(rank).fill(value) : [...value];
  if (numbers.length === rank && numbers.every((number) => Number.isSafeInteger(number) && number >= min)) {
    return numbers;
  }
  throw badShape(
    op,
    `${setting} is ${typeof value === "number" ? value : formatShape(value)}: pass one whole number, ${min} or more, or one for ` +
      `each of ${rank} axes.`,
  );
}

/** The `pads` of the op pad, so that every window over the last axes of a shape is inside. */
export function padsOf(
  shape: Shape,
  { kernel, stride, dilation, padding, count }: Windows,
): readonly number[] {
  const sizes = shape.slice(-kernel.length);
  const pads = sizes.map((size, axis) => {
    const border = padding[axis] ?? 0;
    const lastStart = ((count[axis] ?? 1) - 1) * (stride[axis] ?? 1) - border;
    const end = lastStart + ((kernel[axis] ?? 1) - 1) * (dilation[axis] ?? 1) + 1;
    return [border, Math.max(border, end - size)];
  });
  return pads.toReversed().flat();
}

/** The offsets in a window, in row-major order. */
export function offsetsIn(kernel: readonly number[]): readonly (readonly number[])[] {
  return kernel.reduce<readonly (readonly number[])[]>(
    (offsets, size) => offsets.flatMap((offset) => Array.from({ length: size }, (_, at) => [...offset, at])),
    [[]],
  );
}
