/**
 * The CUDA source of a channels-last convolution, forward or of the input's gradient: C[positions, channels] = A · B. Rows of A are patches
 * of an image, gathered 16 bytes of channels at a time. K is taps × channels of the image.
 */

import type { KernelSource, Parameter } from "../../../../driver/index.js";
import { cudaKernel } from "../../../codegen/cuda/cuda-function.js";
import { sm90Capability } from "../../../gemm/sm90/index.js";
import type { ConvolutionEpilogue } from "../../problem.js";
import { constructDivisor, declareDivisor, divisorParameters } from "../divisor.js";
import { type ConvolutionDtype, declareElement, typeOf } from "../element.js";
import { declareEpilogue, epilogueParameters } from "../epilogue.js";
import type { Mainloop } from "./mainloop.js";
import { type MainloopVariant, mainloopOf } from "./select-mainloop.js";
import { stagedPadding } from "./tiles.js";

/** Which code is printed. */
export type GatherVariant = MainloopVariant & {
  readonly resultDtype: ConvolutionDtype;
  /** True if the filter's neighbours in memory are along K (forward), false if they are along N (input gradient). */
  readonly isFilterKMajor: boolean;
  /** True if the channels of the gathered image are whole k-tiles. Only the input gradient depends on it. */
  readonly hasWholeTaps: boolean;
  /** TF32: operands that are rounded in shared memory, because they are in f32. */
  readonly rounds: { readonly image: boolean; readonly filter: boolean };
  readonly hasBias: boolean;
  readonly epilogue?: ConvolutionEpilogue | undefined;
  /** True if rows of results can be stored 16 bytes at a time. */
  readonly storesVectors: boolean;
  readonly access: "out" | "partial-out";
};

const divisors = ["perImage", "perRow", "perTap", "perTapRow"] as const;

const sizes = [
  // C and K.
  ...(["m", "n", "taps"] as const),
  // The gathered image; position i and tap j of an axis meet at element origin + step · i + tapStep · j.
  ...(["imageHeight", "imageWidth", "imageChannels"] as const),
  ...(["rowStep", "rowOrigin", "rowTapStep", "columnStep", "columnOrigin", "columnTapStep"] as const),
  // Distances in the filter, from row to row and to its taps, and in the result.
  ...(["filterStride", "filterOrigin", "filterTapRow", "filterTapColumn"] as const),
  ...(["resultOrigin", "resultImage", "resultRow", "resultColumn"] as const),
] as const;

/** An N-major filter has a row for each channel of the image. */
const tapSizes = ["filterRows"] as const;

export type GatherSizes = Readonly<Record<(typeof sizes | typeof tapSizes)[number], number>>;
export type GatherDivisors = Readonly<Record<(typeof divisors)[number], number>>;

export function gatherParameters({
  hasBias,
  access,
  isFilterKMajor,
  epilogue,
}: Pick<GatherVariant, "hasBias" | "access" | "isFilterKMajor" | "epilogue">): Readonly<
  Record<string, Parameter>
> {
  return {
    ...{ image: "in", filter: "in", ...(hasBias && { bias: "in" }), result: access },
    ...Object.fromEntries(
      [...sizes, ...(isFilterKMajor ? [] : tapSizes)].map((name): [string, Parameter] => [name, "i32"]),
    ),
    ...divisorParameters(divisors),
    ...epilogueParameters(epilogue),
  };
}

export function gatherKernel(variant: GatherVariant): KernelSource {
  const { element, resultDtype, isFilterKMajor } = variant;
  const mainloop = mainloopOf(
    variant,
    { a: true, b: isFilterKMajor },
    { resultBytes: resultDtype === "f32" ? 4 : 2, roundsTiles: roundsTiles(variant) },
  );
  const { threads, sharedBytes, blocksPerSm } = mainloop;
  return cudaKernel({
    name: `convolution.channels-last.${isFilterKMajor ? "gather" : "input-gradient"}.${element}`,
    parameters: gatherParameters(variant),
    elements: element === "tf32" || element === "f32" ? "float" : "unsigned short",
    pointers: { result: typeOf(resultDtype), bias: "float" },
    ...{ threads, sharedBytes, blocksPerSm, requiredCapability: sm90Capability },
    declarations: `${declareElement(resultDtype)}
${mainloop.declarations}
${declareDivisor}
${declareEpilogue(variant.epilogue, element !== "f32")}
// An element of the gathered image: its offset in memory, its row and its column.
struct Place {
  unsigned offset;
  int row, column;
};
// Outside of every image, whatever the tap.
static constexpr int outsideRow = 1 << 29;`,
    body: bodyOf(variant, mainloop),
  });
}

/** Rows of the filter are rows of B. */
const loadKMajorFilter = `
    const unsigned filterChunk = filterOrigin + tapI * filterTapRow + tapJ * filterTapColumn + (kChunk - tap * perTap.divisor) * chunkElements;
#pragma unroll
    for (unsigned i = 0; i < tileN / rowsPerPass; i++) {
      const unsigned column = firstN + threadRow + i * rowsPerPass;
      const bool isInside = isTap && column < (unsigned)n;
      cpAsync<16>(tile + bytesA + smemOffset + i * rowsPerPass * KMajor::pitch, filter + (isInside ? column * filterStride + filterChunk : 0), isInside ? 16 : 0);
    }`;

/**
 * A row of B has the channels of one tap and one channel of the gathered image. If the image's channels are whole k-tiles, all rows of a
 * k-tile have the same tap.
 */
const loadNMajorFilter = (hasWholeTaps: boolean): string => `
    constexpr unsigned chunksN = tileN / chunkElements, kPerPass = threads / chunksN;
    const unsigned chunkN = threadIdx.x % chunksN, threadK = threadIdx.x / chunksN;
    typedef MnMajor<tileN> Layout;
    static_assert(kPerPass % Layout::period == 0 && tileK % kPerPass == 0, "whole passes");
    const unsigned smemN = bytesA + Layout::offset(threadK, chunkN);
    const bool isColumn = firstN + chunkN * chunkElements < (unsigned)n;
${hasWholeTaps ? findTap("kTile * KMajor::chunks", "    ") : ""}
#pragma unroll
    for (unsigned i = 0; i < tileK / kPerPass; i++) {
      const unsigned kRow = kTile * tileK + threadK + i * kPerPass;
${hasWholeTaps ? "" : findTap("kRow / chunkElements", "      ")}
      const unsigned channel = kRow - rowTap * (unsigned)imageChannels;
      const bool isInside = isColumn && ${hasWholeTaps ? "" : "rowTap < (unsigned)taps && "}channel < (unsigned)filterRows;
      cpAsync<16>(tile + smemN + i * kPerPass * Layout::pitch, filter + (isInside ? tapPlace + channel * filterStride : 0), isInside ? 16 : 0);
    }`;

const roundsTiles = ({ rounds }: GatherVariant): boolean => rounds.image || rounds.filter;

/**
 * A thread rounds the chunks that it has copied itself: these have landed, and no barrier is needed. It reads and writes shared memory
 * once more, while the wgmmas of the previous k-tile run.
 */
const roundTile = ({ rounds }: GatherVariant): string => `
  auto roundTile = [&](unsigned char* tile) {${rounds.image ? roundRows("tileM", "0") : ""}${rounds.filter ? roundRows("tileN", "bytesA") : ""}
  };`;

const roundRows = (rows: string, offset: string): string => `
#pragma unroll
    for (unsigned i = 0; i < ${rows} / rowsPerPass; i++) roundChunk(tile + ${offset} + smemOffset + i * rowsPerPass * KMajor::pitch);`;

/** C++: `rowTap`, the tap of a chunk of K, and `tapPlace`, its distance in the filter. */
const findTap = (chunk: string, indentation: string): string => `
${indentation}const unsigned rowTap = perTap.divide(${chunk}), rowI = perTapRow.divide(rowTap), rowJ = rowTap - rowI * perTapRow.divisor;
${indentation}const unsigned tapPlace = filterOrigin + rowI * filterTapRow + rowJ * filterTapColumn + firstN + chunkN * chunkElements;`;

function bodyOf(variant: GatherVariant, mainloop: Mainloop): string {
  const { isFilterKMajor } = variant;
  return `${mainloop.stages}
  ${divisors.map(constructDivisor).join("\n  ")}
  const unsigned tilesN = ((unsigned)n + tileN - 1) / tileN;
  const unsigned firstM = blockIdx.x / tilesN * tileM, firstN = blockIdx.x % tilesN * tileN;

  // A thread copies one chunk of K, of every \`rowsPerPass\`-th row of A.
  constexpr unsigned rowsPerPass = threads / KMajor::chunks;
  static_assert(rowsPerPass % KMajor::period == 0 && tileM % rowsPerPass == 0, "whole passes");
  const unsigned chunk = threadIdx.x % KMajor::chunks, threadRow = threadIdx.x / KMajor::chunks;
  const unsigned smemOffset = KMajor::offset(threadRow, chunk);
  Place places[tileM / rowsPerPass];
#pragma unroll
  for (unsigned i = 0; i < tileM / rowsPerPass; i++) {
    const unsigned position = firstM + threadRow + i * rowsPerPass;
    const unsigned imageIndex = perImage.divide(position), inImage = position - imageIndex * perImage.divisor;
    const unsigned rowIndex = perRow.divide(inImage), columnIndex = inImage - rowIndex * perRow.divisor;
    const int row = (int)rowIndex * rowStep + rowOrigin, column = (int)columnIndex * columnStep + columnOrigin;
    places[i].offset = (unsigned)(((int)imageIndex * imageHeight + row) * imageWidth + column) * imageChannels;
    places[i].row = position < (unsigned)m ? row : outsideRow;
    places[i].column = column;
  }
  const unsigned kChunks = (unsigned)taps * perTap.divisor;
  auto loadTile = [&](unsigned char* tile, unsigned kTile) {
    const unsigned kChunk = kTile * KMajor::chunks + chunk;
    const unsigned tap = perTap.divide(kChunk), tapI = perTapRow.divide(tap), tapJ = tap - tapI * perTapRow.divisor;
    const int tapRow = (int)tapI * rowTapStep, tapColumn = (int)tapJ * columnTapStep;
    const unsigned tapOffset = (unsigned)((tapRow * imageWidth + tapColumn) * imageChannels) + (kChunk - tap * perTap.divisor) * chunkElements;
    const bool isTap = kChunk < kChunks;
#pragma unroll
    for (unsigned i = 0; i < tileM / rowsPerPass; i++) {
      const bool isInside = isTap && (unsigned)(places[i].row + tapRow) < (unsigned)imageHeight && (unsigned)(places[i].column + tapColumn) < (unsigned)imageWidth;
      cpAsync<16>(tile + smemOffset + i * rowsPerPass * KMajor::pitch, image + (isInside ? places[i].offset + tapOffset : 0), isInside ? 16 : 0);
    }
${isFilterKMajor ? loadKMajorFilter : loadNMajorFilter(variant.hasWholeTaps)}
  };
  const unsigned firstTile = 0, endTile = (kChunks + KMajor::chunks - 1) / KMajor::chunks;
${roundsTiles(variant) ? roundTile(variant) : ""}${mainloop.multiply}
${storeResults(variant, mainloop)}`;
}

/** Results go through shared memory, so that neighbouring threads store neighbouring channels. */
function storeResults({ hasBias, storesVectors, epilogue }: GatherVariant, mainloop: Mainloop): string {
  const vector = `
      const uint4 values = *reinterpret_cast<const uint4*>(staged + row * stagedStride + column);
      *reinterpret_cast<uint4*>(result + offset) = values;`;
  return `
  constexpr unsigned stagedStride = tileN + ${stagedPadding}, width = ${storesVectors ? "16 / sizeof(Element)" : "1"};
  Element* const staged = reinterpret_cast<Element*>(stageTiles);
${mainloop.stageResults(epilogue, hasBias)}
  __syncthreads();
  for (unsigned index = threadIdx.x; index < tileM * (tileN / width); index += threads) {
    const unsigned row = index / (tileN / width), column = index % (tileN / width) * width, position = firstM + row;
    if (position < (unsigned)m && firstN + column < (unsigned)n) {
      const unsigned imageIndex = perImage.divide(position), inImage = position - imageIndex * perImage.divisor;
      const unsigned rowIndex = perRow.divide(inImage), columnIndex = inImage - rowIndex * perRow.divisor;
      const unsigned offset = resultOrigin + imageIndex * resultImage + rowIndex * resultRow + columnIndex * resultColumn + firstN + column;
${storesVectors ? vector : "\n      result[offset] = staged[row * stagedStride + column];"}
    }
  }`;
}
