/**
 * The CUDA source of a depthwise convolution's weight gradient. A CTA sums the products of some channels and taps over a range of tiles: `run`
 * neighbouring elements of the output's gradient. A thread keeps the sums of its channels and taps in registers. Then the CTA adds those of
 * its threads: in each warp by a tree, and over the warps in their order. A second kernel adds the partial sums of all CTAs.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { constructDivisor, declareDivisor, divisorParameters } from "../divisor.js";
import { type ConvolutionDtype, declareElement, typeOf } from "../element.js";
import { declareOperands } from "./operands.js";
import { originOf, overlapsOf, type WindowSizes } from "./tap-overlaps.js";

/** Which code is printed. */
export interface WeightGradientVariant {
  readonly isChannelsLast: boolean;
  readonly image: ConvolutionDtype;
  readonly gradient: ConvolutionDtype;
  readonly rows: WindowSizes;
  readonly columns: WindowSizes;
  readonly vector: number;
  readonly lanes: number;
  readonly run: number;
  /** The taps of a CTA. */
  readonly tapRows: number;
  readonly tapColumns: number;
  readonly access: "out" | "partial-out";
}

export const weightGradientThreads = 128;
/** With more sums, three CTAs instead of four are resident. */
const maxSums = 36;

const sizes = {
  last: ["channels", "imageHeight", "imageWidth", "gradientWidth", "tiles", "splits"],
  first: ["channels", "imageHeight", "imageWidth", "gradientHeight", "gradientWidth", "tiles", "splits"],
} as const;

const divisors = ["perLine", "perImage"] as const;

export type WeightGradientSizes = Readonly<Record<(typeof sizes)["first"][number], number>>;

export function weightGradientParameters({
  isChannelsLast,
  access,
}: Pick<WeightGradientVariant, "isChannelsLast" | "access">): Readonly<Record<string, Parameter>> {
  return {
    ...{ gradient: "in", image: "in", partials: access },
    ...Object.fromEntries(
      sizes[isChannelsLast ? "last" : "first"].map((name): [string, Parameter] => [name, "i32"]),
    ),
    ...divisorParameters(divisors),
  };
}

export function weightGradientKernel(variant: WeightGradientVariant): KernelSource {
  const { isChannelsLast, image, gradient, vector, lanes, run, rows, columns } = variant;
  return cudaKernel({
    name: `convolution.depthwise.weight-gradient.${image}`,
    parameters: weightGradientParameters(variant),
    elements: typeOf(image),
    pointers: { gradient: typeOf(gradient), partials: "float" },
    threads: weightGradientThreads,
    blocksPerSm: variant.tapRows * variant.tapColumns * vector <= maxSums ? 4 : 3,
    declarations: `${declareOperands({ Image: { dtype: image, vector }, Gradient: { dtype: gradient, vector } })}
${declareDivisor}
static constexpr unsigned threads = ${weightGradientThreads}, vector = ${vector}, lanes = ${lanes}, run = ${run};
static constexpr unsigned kernelHeight = ${rows.kernel}, kernelWidth = ${columns.kernel}, taps = kernelHeight * kernelWidth;
// The taps of a CTA.
static constexpr unsigned tapRows = ${variant.tapRows}, tapColumns = ${variant.tapColumns};
static constexpr unsigned groupRows = (kernelHeight + tapRows - 1) / tapRows, groupColumns = (kernelWidth + tapColumns - 1) / tapColumns;`,
    body: `
  ${divisors.map(constructDivisor).join("\n  ")}
  const unsigned channelBlocks = ((unsigned)channels + lanes * vector - 1) / (lanes * vector);
  const unsigned group = blockIdx.x / channelBlocks % (groupRows * groupColumns);
  const unsigned split = blockIdx.x / channelBlocks / (groupRows * groupColumns);
  const unsigned firstTapRow = group / groupColumns * tapRows, firstTapColumn = group % groupColumns * tapColumns;
  const unsigned firstChannel = blockIdx.x % channelBlocks * (lanes * vector);
  const unsigned lane = threadIdx.x % lanes, channel = firstChannel + lane * vector;
  constexpr unsigned tilesPerPass = threads / lanes;
  const unsigned perSplit = ((unsigned)tiles + splits - 1) / splits, firstTile = split * perSplit;
  const unsigned lastTile = firstTile + perSplit < (unsigned)tiles ? firstTile + perSplit : tiles;
  const unsigned endTile = channel < (unsigned)channels ? lastTile : 0;
  float sums[tapRows][tapColumns][vector] = {};
  for (unsigned tile = firstTile + threadIdx.x / lanes; tile < endTile; tile += tilesPerPass) {
    const unsigned tileLine = perLine.divide(tile), inLine = tile - tileLine * perLine.divisor;
    const unsigned batch = perImage.divide(tileLine), inImage = tileLine - batch * perImage.divisor;
${isChannelsLast ? channelsLastTile(variant) : channelsFirstTile(variant)}
  }
${reduce}`,
  });
}

function channelsLastTile({ rows, columns, run, tapColumns }: WeightGradientVariant): string {
  const overlaps = overlapsOf("weight-gradient", { ...columns, kernel: tapColumns }, run);
  return `    const unsigned firstColumn = inLine * run, row = inImage;
    const unsigned firstGradient = (tileLine * gradientWidth + firstColumn) * channels + channel;
    float gradients[run][vector] = {};
#pragma unroll
    for (unsigned r = 0; r < run; r++) {
      if (firstColumn + r < (unsigned)gradientWidth)
        Gradient::load(gradients[r], gradient + (firstGradient + r * channels));
    }
    const int origin = ${originOf("weight-gradient", columns, "firstColumn")} + (int)firstTapColumn * ${columns.dilation};
#pragma unroll
    for (unsigned i = 0; i < tapRows; i++) {
      const int imageRow = (int)row * ${rows.stride} - ${rows.padding} + (int)(firstTapRow + i) * ${rows.dilation};
      const bool isRow = (unsigned)imageRow < (unsigned)imageHeight;
      const Image::Element* const elements =
          image + (long long)(((int)batch * imageHeight + imageRow) * imageWidth + origin) * channels + channel;
${overlaps
  .map(
    ({ offset, products }) => `      {
        float values[vector] = {};
        if (isRow && (unsigned)(origin + ${offset}) < (unsigned)imageWidth) Image::load(values, elements + (long long)${offset} * channels);
#pragma unroll
        for (unsigned k = 0; k < vector; k++) {
${products.map(({ result, tap }) => `          sums[i][${tap}][k] = fmaf(gradients[${result}][k], values[k], sums[i][${tap}][k]);`).join("\n")}
        }
      }`,
  )
  .join("\n")}
    }`;
}

/** There is one channel, and the planes of its images are \`channels\` apart. */
function channelsFirstTile({ rows, columns, run, tapRows }: WeightGradientVariant): string {
  const overlaps = overlapsOf("weight-gradient", { ...rows, kernel: tapRows }, run);
  return `    const unsigned column = inLine, firstRow = inImage * run, plane = batch * channels + channel;
    const unsigned firstGradient = (plane * gradientHeight + firstRow) * gradientWidth + column;
    float gradients[run][vector] = {};
#pragma unroll
    for (unsigned r = 0; r < run; r++) {
      if (firstRow + r < (unsigned)gradientHeight) Gradient::load(gradients[r], gradient + (firstGradient + r * gradientWidth));
    }
    const int origin = ${originOf("weight-gradient", rows, "firstRow")} + (int)firstTapRow * ${rows.dilation};
    const int firstColumn = ${originOf("weight-gradient", columns, "column")} + (int)firstTapColumn * ${columns.dilation};
    const Image::Element* const elements = image + ((long long)((int)plane * imageHeight + origin) * imageWidth + firstColumn);
${overlaps
  .map(
    ({ offset, products }) => `    {
      const bool isRow = (unsigned)(origin + ${offset}) < (unsigned)imageHeight;
      const Image::Element* const row = elements + (long long)${offset} * imageWidth;
#pragma unroll
      for (unsigned j = 0; j < tapColumns; j++) {
        float values[1] = {};
        if (isRow && (unsigned)(firstColumn + (int)j * ${columns.dilation}) < (unsigned)imageWidth) Image::load(values, row + j * ${columns.dilation});
${products.map(({ result, tap }) => `        sums[${tap}][j][0] = fmaf(gradients[${result}][0], values[0], sums[${tap}][j][0]);`).join("\n")}
      }
    }`,
  )
  .join("\n")}`;
}

/** Lanes of a warp that have the same channels are \`lanes\` apart. */
const reduce = `
  __shared__ float warpSums[threads / 32][lanes][tapRows * tapColumns * vector];
#pragma unroll
  for (unsigned sum = 0; sum < tapRows * tapColumns * vector; sum++) {
    float value = sums[sum / vector / tapColumns][sum / vector % tapColumns][sum % vector];
#pragma unroll
    for (unsigned step = 16; step >= lanes; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 < lanes) warpSums[threadIdx.x / 32][lane][sum] = value;
  }
  __syncthreads();
  for (unsigned index = threadIdx.x; index < lanes * vector * tapRows * tapColumns; index += threads) {
    const unsigned inBlock = index / (tapRows * tapColumns), inGroup = index % (tapRows * tapColumns);
    const unsigned tapRow = firstTapRow + inGroup / tapColumns, tapColumn = firstTapColumn + inGroup % tapColumns;
    if (firstChannel + inBlock >= (unsigned)channels || tapRow >= kernelHeight || tapColumn >= kernelWidth) continue;
    float total = 0;
#pragma unroll
    for (unsigned warp = 0; warp < threads / 32; warp++) total += warpSums[warp][inBlock / vector][inGroup * vector + inBlock % vector];
    const unsigned weight = (firstChannel + inBlock) * taps + tapRow * kernelWidth + tapColumn;
    partials[(unsigned long long)split * channels * taps + weight] = total;
  }`;

export const sumThreads = 256;
/** Weights of a CTA of the second kernel. The other threads share each weight's partial sums. */
export const sumWeights = 16;

export function sumParameters(access: "out" | "partial-out"): Readonly<Record<string, Parameter>> {
  return { partials: "in", weight: access, count: "u32", splits: "u32" };
}

/** Adds the partial sums [splits, weights]. Each thread adds a strided subset; the sums of the threads are added in their order. */
export function sumKernel(dtype: ConvolutionDtype, access: "out" | "partial-out"): KernelSource {
  return cudaKernel({
    name: `convolution.depthwise.sum.${dtype}`,
    parameters: sumParameters(access),
    elements: typeOf(dtype),
    pointers: { partials: "float" },
    threads: sumThreads,
    declarations: `${declareElement(dtype)}
static constexpr unsigned weights = ${sumWeights}, groups = ${sumThreads / sumWeights};`,
    body: `
  __shared__ float sums[groups][weights];
  const unsigned inBlock = threadIdx.x % weights, group = threadIdx.x / weights, index = blockIdx.x * weights + inBlock;
  float sum = 0;
  if (index < count) {
#pragma unroll 8
    for (unsigned split = group; split < splits; split += groups) sum += partials[(unsigned long long)split * count + index];
  }
  sums[group][inBlock] = sum;
  __syncthreads();
  if (group > 0 || index >= count) return;
#pragma unroll
  for (unsigned other = 1; other < groups; other++) sum += sums[other][inBlock];
  weight[index] = Conversion::narrow(sum);`,
  });
}
