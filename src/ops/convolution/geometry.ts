/** How windows lie over an array's last axes: sizes, steps and borders, one for each axis, checked. */

import { badShape, formatShape, type Shape } from "../shape.js";

/** One number for all axes, or one for each. */
export type PerAxis = number | readonly number[];

export type WindowOptions = {
  readonly stride?: PerAxis;
  readonly padding?: PerAxis;
  readonly dilation?: PerAxis;
};

/** Each with one number for every axis that windows are moved along. */
export interface Windows {
  readonly kernel: readonly number[];
  readonly stride: readonly number[];
  readonly dilation: readonly number[];
  /** On both sides. */
  readonly padding: readonly number[];
  /** How many windows there are. */
  readonly count: readonly number[];
}

/** Windows over the last axes of a shape, as many axes as the kernel has. */
export function windowsOver(
  op: string,
  shape: Shape,
  kernel: readonly number[],
  { stride = 1, padding = 0, dilation = 1 }: WindowOptions,
): Windows {
  const rank = kernel.length;
  const spread = {
    kernel,
    stride: eachAxis(op, "stride", stride, rank, 1),
    dilation: eachAxis(op, "dilation", dilation, rank, 1),
    padding: eachAxis(op, "padding", padding, rank, 0),
  };
  const count = shape.slice(-rank).map((size, axis) => {
    const border = spread.padding[axis] ?? 0;
    const width = ((kernel[axis] ?? 1) - 1) * (spread.dilation[axis] ?? 1) + 1;
    if (width > size + 2 * border) {
      throw badShape(
        op,
        `a window of ${width} over axis ${axis - rank} of ${formatShape(shape)}, which has ${size}` +
          `${border > 0 ? ` and a border of ${border} on both sides` : ""}: it does not fit once.`,
      );
    }
    return Math.floor((size + 2 * border - width) / (spread.stride[axis] ?? 1)) + 1;
  });
  return { ...spread, count };
}

/** A setting with one number for each axis. */
export function eachAxis(op: string, what: string, value: PerAxis, rank: number, least: number): number[] {
  const numbers = typeof value === "number" ? new Array<number>(rank).fill(value) : [...value];
  if (numbers.length === rank && numbers.every((one) => Number.isSafeInteger(one) && one >= least)) {
    return numbers;
  }
  throw badShape(
    op,
    `${what} is ${typeof value === "number" ? value : formatShape(value)}: give one whole number of ${least} or more, or one for ` +
      `each of ${rank} axes.`,
  );
}

/** A pad's attribute for a border on both sides of the last axes. */
export function padsOf(padding: readonly number[]): readonly number[] {
  return padding.toReversed().flatMap((size) => [size, size]);
}

/** The places in a window, the last axis fastest. */
export function placesIn(kernel: readonly number[]): readonly (readonly number[])[] {
  return kernel.reduce<readonly (readonly number[])[]>(
    (places, size) => places.flatMap((place) => Array.from({ length: size }, (_, at) => [...place, at])),
    [[]],
  );
}
