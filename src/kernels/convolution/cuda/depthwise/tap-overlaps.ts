/** Lists the products of elements and taps along one axis, for the results that a thread computes. Known when a kernel is printed. */

import type { ConvolutionDirection, ConvolutionShape } from "../../problem.js";

/** The windows of one axis. */
export interface WindowSizes {
  readonly kernel: number;
  readonly stride: number;
  readonly dilation: number;
  readonly padding: number;
}

/** An element of the gathered image, and its products with taps. */
export interface TapOverlap {
  /** The distance from the element `origin` of the thread's first result. */
  readonly offset: number;
  readonly products: readonly { readonly result: number; readonly tap: number }[];
}

export function windowSizes(
  { kernel, stride, dilation, padding }: Omit<ConvolutionShape, "direction">,
  axis: 0 | 1,
): WindowSizes {
  return { kernel: kernel[axis], stride: stride[axis], dilation: dilation[axis], padding: padding[axis] };
}

/**
 * The elements that `run` neighbouring results need. The first result is a multiple of `run`. In an input gradient, `run` is a multiple of the
 * stride. The taps of each result are in ascending order, whatever the run is.
 */
export function overlapsOf(
  direction: ConvolutionDirection,
  { kernel, stride, dilation, padding }: WindowSizes,
  run: number,
): readonly TapOverlap[] {
  const isGradient = direction === "input-gradient";
  const overlaps = new Map<number, { result: number; tap: number }[]>();
  for (let result = 0; result < run; result++) {
    for (let tap = 0; tap < kernel; tap++) {
      const distance = isGradient
        ? result + (padding % stride) - tap * dilation
        : result * stride + tap * dilation;
      if (isGradient && distance % stride !== 0) continue;
      const offset = isGradient ? distance / stride : distance;
      overlaps.set(offset, [...(overlaps.get(offset) ?? []), { result, tap }]);
    }
  }
  const order = isGradient ? -1 : 1;
  return [...overlaps]
    .map(([offset, products]) => ({ offset, products }))
    .sort((a, b) => order * (a.offset - b.offset));
}

/** C++: the element of the gathered image from which `overlapsOf` counts, for the first result `first`. */
export function originOf(
  direction: ConvolutionDirection,
  { stride, padding }: WindowSizes,
  first: string,
): string {
  return direction === "input-gradient"
    ? `(int)(${first}) / ${stride} + ${Math.floor(padding / stride)}`
    : `(int)(${first}) * ${stride} - ${padding}`;
}

/**
 * C++: the element of the gathered image that a tap multiplies for one result, `at`; below zero if there is none. For the axis along which a
 * thread has one result; `overlapsOf` is for the other axis.
 */
export function elementAt(
  direction: ConvolutionDirection,
  { stride, dilation, padding }: WindowSizes,
  at: string,
  tap: string,
): string {
  if (direction !== "input-gradient")
    return `(int)(${at}) * ${stride} - ${padding} + (int)(${tap}) * ${dilation}`;
  const distance = `(int)(${at}) + ${padding} - (int)(${tap}) * ${dilation}`;
  return stride === 1 ? distance : `divideExactly<${stride}>(${distance})`;
}

/** C++: \`divideExactly\`, −1 for numbers below zero or with a remainder. */
export const declareDivideExactly = `template <int divisor>
static __device__ __forceinline__ int divideExactly(int value) {
  return value >= 0 && value % divisor == 0 ? value / divisor : -1;
}`;
