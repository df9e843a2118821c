/**
 * The CUDA source of a channels-last weight gradient: C[output channels, taps × input channels] = Σ over output positions. Both operands are
 * MN-major. The sum is split over CTAs; a second kernel adds the partial sums in order and stores the weight's layout.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { sm90Capability } from "../../../gemm/sm90/index.js";
import { constructDivisor, declareDivisor, divisorParameters } from "../divisor.js";
import { type ConvolutionDtype, declareElement, typeOf } from "../element.js";
import type { Mainloop } from "./mainloop.js";
import { type MainloopVariant, mainloopOf } from "./select-mainloop.js";

export type WeightGradientVariant = MainloopVariant & { readonly access: "out" | "partial-out" };

const divisors = ["perImage", "perRow", "perTap", "perTapRow"] as const;

const sizes = [
  // m: output channels, n: taps × channels, k: positions.
  ...(["m", "n", "k", "splits"] as const),
  ...(["gradientChannels", "imageHeight", "imageWidth", "imageChannels"] as const),
  ...(["rowStep", "rowOrigin", "rowTapStep", "columnStep", "columnOrigin", "columnTapStep"] as const),
] as const;

export type WeightGradientSizes = Readonly<Record<(typeof sizes)[number], number>>;
export type WeightGradientDivisors = Readonly<Record<(typeof divisors)[number], number>>;

export function weightGradientParameters({
  access,
}: Pick<WeightGradientVariant, "access">): Readonly<Record<string, Parameter>> {
  return {
    ...{ gradient: "in", image: "in", partials: access },
    ...Object.fromEntries(sizes.map((name): [string, Parameter] => [name, "i32"])),
    ...divisorParameters(divisors),
  };
}

export function weightGradientKernel(variant: WeightGradientVariant): KernelSource {
  const { element } = variant;
  const mainloop = mainloopOf(variant, { a: false, b: false });
  const { threads, sharedBytes, blocksPerSm } = mainloop;
  return cudaKernel({
    name: `convolution.channels-last.weight-gradient.${element}`,
    parameters: weightGradientParameters(variant),
    elements: element === "tf32" || element === "f32" ? "float" : "unsigned short",
    pointers: { partials: "float" },
    ...{ threads, sharedBytes, blocksPerSm, requiredCapability: sm90Capability },
    declarations: `${mainloop.declarations}
${declareDivisor}`,
    body: bodyOf(mainloop),
  });
}

const bodyOf = (mainloop: Mainloop): string => `${mainloop.stages}
  ${divisors.map(constructDivisor).join("\n  ")}
  const unsigned tilesM = ((unsigned)m + tileM - 1) / tileM, tilesN = ((unsigned)n + tileN - 1) / tileN;
  // CTAs that read the same positions are neighbours.
  const unsigned firstM = blockIdx.x % tilesM * tileM, firstN = blockIdx.x / tilesM % tilesN * tileN;
  const unsigned split = blockIdx.x / tilesM / tilesN;
  const unsigned kTiles = ((unsigned)k + tileK - 1) / tileK, tilesPerSplit = (kTiles + splits - 1) / splits;
  const unsigned firstTile = split * tilesPerSplit, endTile = firstTile + tilesPerSplit < kTiles ? firstTile + tilesPerSplit : kTiles;

  // A thread copies the same chunk of channels, of every so many positions; for B its tap is fixed.
  constexpr unsigned chunksM = tileM / chunkElements, kPerPassM = threads / chunksM;
  const unsigned chunkM = threadIdx.x % chunksM, threadKM = threadIdx.x / chunksM, channelM = firstM + chunkM * chunkElements;
  constexpr unsigned chunksN = tileN / chunkElements, kPerPassN = threads / chunksN;
  const unsigned chunkN = threadIdx.x % chunksN, threadKN = threadIdx.x / chunksN, columnN = firstN + chunkN * chunkElements;
  const unsigned tap = perTap.divide(columnN / chunkElements), tapI = perTapRow.divide(tap), tapJ = tap - tapI * perTapRow.divisor;
  const int tapRow = (int)tapI * rowTapStep + rowOrigin, tapColumn = (int)tapJ * columnTapStep + columnOrigin;
  const unsigned tapOffset = (unsigned)((tapRow * imageWidth + tapColumn) * imageChannels) + columnN - tap * imageChannels;
  const bool isRow = channelM < (unsigned)gradientChannels, isColumn = columnN < (unsigned)n;
  typedef MnMajor<tileM> LayoutM;
  typedef MnMajor<tileN> LayoutN;
  static_assert(kPerPassM % LayoutM::period == 0 && tileK % kPerPassM == 0, "whole passes");
  static_assert(kPerPassN % LayoutN::period == 0 && tileK % kPerPassN == 0, "whole passes");
  const unsigned smemM = LayoutM::offset(threadKM, chunkM), smemN = bytesA + LayoutN::offset(threadKN, chunkN);
  auto loadTile = [&](unsigned char* tile, unsigned kTile) {
#pragma unroll
    for (unsigned i = 0; i < tileK / kPerPassM; i++) {
      const unsigned position = kTile * tileK + threadKM + i * kPerPassM;
      const bool isInside = isRow && position < (unsigned)k;
      cpAsync<16>(tile + smemM + i * kPerPassM * LayoutM::pitch, gradient + (isInside ? position * gradientChannels + channelM : 0), isInside ? 16 : 0);
    }
#pragma unroll
    for (unsigned i = 0; i < tileK / kPerPassN; i++) {
      const unsigned position = kTile * tileK + threadKN + i * kPerPassN;
      const unsigned imageIndex = perImage.divide(position), inImage = position - imageIndex * perImage.divisor;
      const unsigned rowIndex = perRow.divide(inImage), columnIndex = inImage - rowIndex * perRow.divisor;
      const int row = (int)rowIndex * rowStep, column = (int)columnIndex * columnStep;
      const bool isInside = isColumn && position < (unsigned)k && (unsigned)(row + tapRow) < (unsigned)imageHeight &&
                            (unsigned)(column + tapColumn) < (unsigned)imageWidth;
      const unsigned offset = (unsigned)(((int)imageIndex * imageHeight + row) * imageWidth + column) * imageChannels + tapOffset;
      cpAsync<16>(tile + smemN + i * kPerPassN * LayoutN::pitch, image + (isInside ? offset : 0), isInside ? 16 : 0);
    }
  };
${mainloop.multiply}
${mainloop.storePartials}`;

const sumThreads = 256;

/** Threads that share a weight: each adds every so many partial sums. Many splits have few weights, which leave most threads idle. */
export const sumGroupsFor = (splits: number): number => (splits > 64 ? 8 : 1);
/** Weights of a CTA of the second kernel. */
export const sumWeightsFor = (splits: number): number => sumThreads / sumGroupsFor(splits);

export function weightSumParameters(access: "out" | "partial-out"): Readonly<Record<string, Parameter>> {
  return {
    ...{
      partials: "in",
      weight: access,
      outChannels: "u32",
      channels: "u32",
      paddedChannels: "u32",
      taps: "u32",
      splits: "u32",
    },
    ...divisorParameters(["perChannel", "perTap"]),
  };
}

/** Adds the partial sums [splits, out, taps, padded channels] in a fixed order: weight [out, channels, taps]. */
export function weightSumKernel(
  dtype: ConvolutionDtype,
  access: "out" | "partial-out",
  groups: number,
): KernelSource {
  return cudaKernel({
    name: `convolution.channels-last.sum.${dtype}`,
    parameters: weightSumParameters(access),
    elements: typeOf(dtype),
    pointers: { partials: "float" },
    threads: sumThreads,
    declarations: `${declareElement(dtype)}\n${declareDivisor}
static constexpr unsigned groups = ${groups}, weights = ${sumThreads / groups};`,
    body: `
  __shared__ float sums[groups][weights];
  ${["perChannel", "perTap"].map(constructDivisor).join("\n  ")}
  const unsigned inBlock = threadIdx.x % weights, group = threadIdx.x / weights, index = blockIdx.x * weights + inBlock;
  const bool isInside = index < outChannels * taps * channels;
  const unsigned row = perChannel.divide(index), channel = index - row * channels;
  const unsigned long long count = (unsigned long long)outChannels * taps * paddedChannels;
  const float* const partial = partials + (unsigned long long)row * paddedChannels + channel;
  float sum = 0;
  if (isInside) {
#pragma unroll 8
    for (unsigned split = group; split < splits; split += groups) sum += partial[split * count];
  }
  sums[group][inBlock] = sum;
  __syncthreads();
  if (group > 0 || !isInside) return;
#pragma unroll
  for (unsigned other = 1; other < groups; other++) sum += sums[other][inBlock];
  const unsigned out = perTap.divide(row), tap = row - out * taps;
  weight[(out * channels + channel) * taps + tap] = Conversion::narrow(sum);`,
  });
}
