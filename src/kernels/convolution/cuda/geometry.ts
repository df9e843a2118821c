/**
 * The geometry of a convolution in the CUDA kernels: how a window's position and a tap select an element of an image. The input gradient
 * of a strided convolution is computed for each residue class of input elements modulo the stride: its elements meet the same taps, so
 * that no product is a multiplication by 0.
 */

import type { Parameter } from "../../../driver/index.js";
import { areaOf, type ConvolutionDirection, type ConvolutionShape } from "../problem.js";

const names = [
  ...(["batch", "groups", "channels", "outChannels", "height", "width", "outHeight", "outWidth"] as const),
  ...(["kernelHeight", "kernelWidth", "strideHeight", "strideWidth"] as const),
  ...(["paddingHeight", "paddingWidth", "dilationHeight", "dilationWidth"] as const),
] as const;

type GeometryName = (typeof names)[number];

/** The sizes that every kernel takes, in order. */
export const geometryParameters = Object.fromEntries(
  names.map((name): [GeometryName, Parameter] => [name, "i32"]),
) as Readonly<Record<GeometryName, "i32">>;

/** Their values. */
export function geometryArguments(shape: ConvolutionShape): Readonly<Record<GeometryName, number>> {
  const { batch, groups, channels, outChannels, size, outSize, kernel, stride, padding, dilation } = shape;
  const pairs = { "": size, out: outSize, kernel, stride, padding, dilation };
  const ofAxes = Object.entries(pairs).flatMap(([name, [height, width]]) => [
    [name ? `${name}Height` : "height", height],
    [name ? `${name}Width` : "width", width],
  ]);
  return { batch, groups, channels, outChannels, ...Object.fromEntries(ofAxes) };
}

/** The number of residue classes: 1 except for the input gradient of a strided convolution. */
export function residueClassesOf({ direction, stride }: ConvolutionShape): number {
  return direction === "input-gradient" ? areaOf(stride) : 1;
}

/** The largest number of positions of one residue class. */
export function positionsOf({ direction, batch, size, outSize, stride }: ConvolutionShape): number {
  if (direction !== "input-gradient") return batch * areaOf(outSize);
  return batch * Math.ceil(size[0] / stride[0]) * Math.ceil(size[1] / stride[1]);
}

/** C++: division by a number that is known at run time, for dividends below 2³¹. */
export const declareDivisor = `// Granlund and Montgomery: n / divisor = (high 32 bits of n · magic + n) >> shift, for n < 2^31.
struct Divisor {
  unsigned divisor, magic, shift;
  __device__ __forceinline__ explicit Divisor(unsigned value) : divisor(value > 0 ? value : 1), shift(0) {
    while (shift < 31 && (1u << shift) < divisor) shift++;
    magic = (unsigned)(((1ull << 32) * ((1ull << shift) - divisor)) / divisor + 1);
  }
  __device__ __forceinline__ unsigned divide(unsigned n) const { return (__umulhi(n, magic) + n) >> shift; }
};`;

const axis = `// Position i and tap j of an axis meet at element origin + step · i + tapStep · j of the gathered image. Position i is element
// first + stride · i of the other image, and tap j is tap firstTap + tapStride · j of the kernel.
struct Axis {
  int size, positions, step, origin, taps, tapStep, first, stride, firstTap, tapStride;
};`;

const windowAxis = `static __device__ __forceinline__ Axis windowAxis(int size, int positions, int kernel, int stride, int padding, int dilation) {
  return {size, positions, stride, -padding, kernel, dilation, 0, 1, 0, 1};
}`;

const residueAxis = `// The input elements whose distance from the padded border has this residue modulo the stride, and the taps that meet them.
static __device__ __forceinline__ Axis residueAxis(
    int residue, int inputSize, int outputSize, int kernel, int stride, int padding, int dilation) {
  int firstTap = 0, tapStride = 1;
  while (firstTap < stride && firstTap * dilation % stride != residue) firstTap++;
  while (tapStride * dilation % stride != 0) tapStride++;
  const int first = ((residue - padding) % stride + stride) % stride;
  const int positions = first < inputSize ? (inputSize - first + stride - 1) / stride : 0;
  const bool meets = firstTap < stride && firstTap < kernel;
  const int taps = meets ? (kernel - firstTap + tapStride - 1) / tapStride : 0;
  const int origin = meets ? (first + padding - firstTap * dilation) / stride : 0;
  return {outputSize, positions, 1, origin, taps, -(tapStride * dilation / stride), first, stride, firstTap, tapStride};
}`;

/** C++: the windows of one group (and residue class), as positions and taps. */
export function declareWindows(direction: ConvolutionDirection): string {
  const isGradient = direction === "input-gradient";
  return `${declareDivisor}
${axis}
${isGradient ? residueAxis : windowAxis}
// An element of the gathered image, or the distance from it: its offset in memory, its row and its column.
struct Place {
  unsigned offset;
  int row, column;
};
// The sum of two such rows is outside of every image.
static constexpr int outsideRow = 1 << 29;
struct Windows {
  Axis rows, columns;
  // Of the gathered image and of the other one: the elements of an image with all channels, and the first element of the group.
  unsigned imageStride, imageGroup, otherStride, otherGroup, otherWidth;
  Divisor perImage, perRow, perChannel, perTapRow;

  __device__ __forceinline__ Windows(Axis rows, Axis columns, unsigned groups, unsigned group, unsigned imageChannels,
                                     unsigned otherChannels, unsigned otherHeight, unsigned otherWidth)
      : rows(rows), columns(columns),
        imageStride(groups * imageChannels * rows.size * columns.size), imageGroup(group * imageChannels * rows.size * columns.size),
        otherStride(groups * otherChannels * otherHeight * otherWidth), otherGroup(group * otherChannels * otherHeight * otherWidth),
        otherWidth(otherWidth), perImage(rows.positions * columns.positions), perRow(columns.positions),
        perChannel(rows.taps * columns.taps), perTapRow(columns.taps) {}

  __device__ __forceinline__ Place placeOf(unsigned position, unsigned end) const {
    if (position >= end) return {0, outsideRow, 0};
    const unsigned image = perImage.divide(position), inImage = position - image * perImage.divisor;
    const unsigned i = perRow.divide(inImage), j = inImage - i * perRow.divisor;
    const int row = (int)i * rows.step + rows.origin, column = (int)j * columns.step + columns.origin;
    return {image * imageStride + imageGroup + (unsigned)(row * columns.size + column), row, column};
  }

  __device__ __forceinline__ Place tapOf(unsigned tap, unsigned end) const {
    if (tap >= end) return {0, outsideRow, 0};
    const unsigned channel = perChannel.divide(tap), inChannel = tap - channel * perChannel.divisor;
    const unsigned i = perTapRow.divide(inChannel), j = inChannel - i * perTapRow.divisor;
    const int row = (int)i * rows.tapStep, column = (int)j * columns.tapStep;
    return {channel * (rows.size * columns.size) + (unsigned)(row * columns.size + column), row, column};
  }

  // True if the element of a position and a tap is inside of the image.
  __device__ __forceinline__ bool contains(const Place& place, const Place& tap) const {
    return (unsigned)(place.row + tap.row) < (unsigned)rows.size && (unsigned)(place.column + tap.column) < (unsigned)columns.size;
  }

  // A position's element of the other image, in the group's first channel.
  __device__ __forceinline__ unsigned otherOffset(unsigned position) const {
    const unsigned image = perImage.divide(position), inImage = position - image * perImage.divisor;
${
  isGradient
    ? `    const unsigned i = perRow.divide(inImage), j = inImage - i * perRow.divisor;
    const unsigned inChannel = (rows.first + i * rows.stride) * otherWidth + columns.first + j * columns.stride;
    return image * otherStride + otherGroup + inChannel;
  }

  // A tap's element of the weights of an output channel and input channel 0.
  __device__ __forceinline__ unsigned tapOffset(unsigned tap, unsigned channelSize, unsigned kernelWidth) const {
    const unsigned channel = perChannel.divide(tap), inChannel = tap - channel * perChannel.divisor;
    const unsigned i = perTapRow.divide(inChannel), j = inChannel - i * perTapRow.divisor;
    return channel * channelSize + (rows.firstTap + i * rows.tapStride) * kernelWidth + columns.firstTap + j * columns.tapStride;
  }`
    : `    return image * otherStride + otherGroup + inImage;
  }`
}
};`;
}

/** C++: `windows`, for the values of `group` and `residueClass`. */
export function constructWindows(direction: ConvolutionDirection): string {
  if (direction === "input-gradient") {
    return `  const Windows windows(
      residueAxis(residueClass / strideWidth, height, outHeight, kernelHeight, strideHeight, paddingHeight, dilationHeight),
      residueAxis(residueClass % strideWidth, width, outWidth, kernelWidth, strideWidth, paddingWidth, dilationWidth),
      groups, group, outChannels, channels, height, width);`;
  }
  return `  const Windows windows(
      windowAxis(height, outHeight, kernelHeight, strideHeight, paddingHeight, dilationHeight),
      windowAxis(width, outWidth, kernelWidth, strideWidth, paddingWidth, dilationWidth),
      groups, group, channels, outChannels, outHeight, outWidth);`;
}
