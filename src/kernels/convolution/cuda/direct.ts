/**
 * Convolutions without tiles, for groups with few channels: one thread sums one result in the order of channels,
 * then taps. A CTA sums one weight's gradient over a range of positions.
 */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import type { ConvolutionDirection } from "../problem.js";
import { directThreads } from "./configs.js";
import { type ConvolutionDtype, declareElement, typeOf } from "./element.js";
import { declareDivisor, geometryParameters } from "./geometry.js";

/** Which code is printed, besides the direction. */
export interface DirectVariant {
  readonly direction: ConvolutionDirection;
  readonly dtype: ConvolutionDtype;
  readonly hasBias: boolean;
  /** True if the results are partial sums in f32. */
  readonly isSplit: boolean;
  readonly access: "out" | "partial-out";
}

export function directParameters({
  direction,
  hasBias,
  access,
}: DirectVariant): Readonly<Record<string, Parameter>> {
  const bias = hasBias ? { bias: "in" as const } : {};
  const operands: Readonly<Record<ConvolutionDirection, Readonly<Record<string, Parameter>>>> = {
    forward: { x: "in", weight: "in", ...bias, y: access },
    "input-gradient": { y: "in", weight: "in", ...bias, x: access },
    "weight-gradient": { y: "in", x: "in", weight: access },
  };
  return {
    ...operands[direction],
    ...geometryParameters,
    ...(direction === "weight-gradient" && { splits: "u32" as const }),
  };
}

export function directKernel(variant: DirectVariant): KernelSource {
  const { direction, dtype, isSplit } = variant;
  return cudaKernel({
    name: `convolution.direct.${direction}.${dtype}`,
    parameters: directParameters(variant),
    elements: typeOf(dtype),
    ...(isSplit && { pointers: { weight: "float" } }),
    threads: directThreads,
    declarations: [...(direction === "weight-gradient" ? [declareDivisor] : []), declareElement(dtype)].join(
      "\n",
    ),
    body: bodyOf(variant),
  });
}

function bodyOf({ direction, hasBias, isSplit }: DirectVariant): string {
  const addBias = hasBias ? " + Conversion::widen(bias[channel])" : "";
  switch (direction) {
    case "forward":
      return `
  const unsigned index = blockIdx.x * ${directThreads} + threadIdx.x;
  const unsigned results = batch * groups * outChannels * outHeight * outWidth;
  if (index >= results) return;
  const int column = index % outWidth, row = index / outWidth % outHeight;
  const unsigned channel = index / (outWidth * outHeight) % (groups * outChannels), image = index / (outWidth * outHeight) / (groups * outChannels);
  const unsigned firstChannel = image * (groups * channels) + channel / outChannels * channels;
  float sum = 0;
  for (int c = 0; c < channels; c++) {
    const Element* const plane = x + (unsigned long long)(firstChannel + c) * (height * width);
    const Element* const taps = weight + (channel * channels + c) * (kernelHeight * kernelWidth);
    for (int i = 0; i < kernelHeight; i++) {
      const int h = row * strideHeight - paddingHeight + i * dilationHeight;
      if ((unsigned)h >= (unsigned)height) continue;
      for (int j = 0; j < kernelWidth; j++) {
        const int w = column * strideWidth - paddingWidth + j * dilationWidth;
        if ((unsigned)w >= (unsigned)width) continue;
        sum = fmaf(Conversion::widen(taps[i * kernelWidth + j]), Conversion::widen(plane[h * width + w]), sum);
      }
    }
  }
  y[index] = Conversion::narrow(sum${addBias});`;
    case "input-gradient":
      return `
  const unsigned index = blockIdx.x * ${directThreads} + threadIdx.x;
  const unsigned results = batch * groups * channels * height * width;
  if (index >= results) return;
  const int column = index % width, row = index / width % height;
  const unsigned channel = index / (width * height) % (groups * channels), image = index / (width * height) / (groups * channels);
  const unsigned firstOutput = channel / channels * outChannels;
  float sum = 0;
  for (int o = 0; o < outChannels; o++) {
    const Element* const plane = y + (unsigned long long)(image * (groups * outChannels) + firstOutput + o) * (outHeight * outWidth);
    const Element* const taps = weight + ((firstOutput + o) * channels + channel % channels) * (kernelHeight * kernelWidth);
    for (int i = 0; i < kernelHeight; i++) {
      const int h = row + paddingHeight - i * dilationHeight;
      if (h < 0 || h % strideHeight != 0 || h / strideHeight >= outHeight) continue;
      for (int j = 0; j < kernelWidth; j++) {
        const int w = column + paddingWidth - j * dilationWidth;
        if (w < 0 || w % strideWidth != 0 || w / strideWidth >= outWidth) continue;
        const Element gradient = plane[h / strideHeight * outWidth + w / strideWidth];
        sum = fmaf(Conversion::widen(taps[i * kernelWidth + j]), Conversion::widen(gradient), sum);
      }
    }
  }
  x[index] = Conversion::narrow(sum${addBias});`;
    case "weight-gradient":
      return `
  const unsigned count = groups * outChannels * channels * kernelHeight * kernelWidth;
  const unsigned index = blockIdx.x % count, split = blockIdx.x / count;
  const int j = index % kernelWidth, i = index / kernelWidth % kernelHeight;
  const unsigned c = index / (kernelWidth * kernelHeight) % channels, o = index / (kernelWidth * kernelHeight) / channels;
  const unsigned inputChannel = o / outChannels * channels + c;
  const unsigned positions = batch * outHeight * outWidth, perSplit = (positions + splits - 1) / splits;
  const unsigned first = split * perSplit, end = first + perSplit < positions ? first + perSplit : positions;
  const Divisor perImage(outHeight * outWidth), perRow(outWidth);
  float sum = 0;
  for (unsigned position = first + threadIdx.x; position < end; position += ${directThreads}) {
    const unsigned image = perImage.divide(position), inImage = position - image * perImage.divisor;
    const unsigned row = perRow.divide(inImage), column = inImage - row * perRow.divisor;
    const int h = (int)row * strideHeight - paddingHeight + i * dilationHeight;
    const int w = (int)column * strideWidth - paddingWidth + j * dilationWidth;
    if ((unsigned)h >= (unsigned)height || (unsigned)w >= (unsigned)width) continue;
    const Element gradient = y[(image * (groups * outChannels) + o) * perImage.divisor + inImage];
    const Element input = x[(image * (groups * channels) + inputChannel) * (height * width) + h * width + w];
    sum = fmaf(Conversion::widen(gradient), Conversion::widen(input), sum);
  }
  // A fixed binary tree: in each warp, then over the warps.
  __shared__ float warpSums[${directThreads / 32}];
  for (unsigned step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) warpSums[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned warp = 1; warp < ${directThreads / 32}; warp++) sum += warpSums[warp];
  weight[blockIdx.x] = ${isSplit ? "sum" : "Conversion::narrow(sum)"};`;
  }
}
