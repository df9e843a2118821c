/**
 * The CUDA source of a convolution by implicit GEMM: B's tiles are gathered from the image with the convolution's index arithmetic, in a
 * multistage cp.async pipeline. It runs on every GPU since Ampere.
 */

import type { KernelSource, Parameter } from "../../../driver/index.js";
import { cudaKernel } from "../../codegen/cuda/cuda-function.js";
import { cpAsyncIntrinsics } from "../../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../../codegen/cuda/intrinsics/intrinsic.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { ConvolutionDirection } from "../problem.js";
import { declareAccumulators, mathIntrinsics } from "./accumulators.js";
import { type ConvolutionMath, type ConvolutionTile, sharedBytesOf, tileFloats, tileK } from "./configs.js";
import { type ConvolutionDtype, declareElement, typeOf } from "./element.js";
import { constructWindows, declareWindows, geometryParameters } from "./geometry.js";
import { declareCopyElement, loadImage, loadMatrix } from "./tiles.js";

/** Which code is printed. */
export interface ImplicitGemmVariant {
  readonly direction: ConvolutionDirection;
  readonly dtype: ConvolutionDtype;
  readonly math: ConvolutionMath;
  readonly tile: ConvolutionTile;
  readonly hasBias: boolean;
  /** True if the results are partial sums in f32. */
  readonly isSplit: boolean;
  /** True if four neighbours along k of A are aligned neighbours in memory. */
  readonly copiesVectors: boolean;
  readonly access: "out" | "partial-out";
}

export function implicitGemmParameters({
  hasBias,
  access,
}: Pick<ImplicitGemmVariant, "hasBias" | "access">): Readonly<Record<string, Parameter>> {
  return {
    ...{ matrix: "in", image: "in", ...(hasBias && { bias: "in" }), result: access },
    ...geometryParameters,
    ...{ tilesN: "u32", splits: "u32" },
  };
}

/** So many threads have 170 registers each, which hold the accumulators and the fragments. */
const residentThreads = 384;

export function implicitGemmKernel(variant: ImplicitGemmVariant): KernelSource {
  const { direction, dtype, math, tile, isSplit } = variant;
  const { tileM, tileN, warpsM, warpsN, stages } = tile;
  const { strideA, strideB, floatsA, floatsB } = tileFloats(tile, direction);
  const sharedBytes = sharedBytesOf(tile, direction).dynamic;
  const threads = 32 * warpsM * warpsN;
  const declarations = `
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, tileK = ${tileK}, stages = ${stages};
static constexpr unsigned warpsN = ${warpsN}, warps = ${warpsM * warpsN};
static constexpr unsigned warpTileM = ${tileM / warpsM}, warpTileN = ${tileN / warpsN};
// In shared memory A is K-major, and B is K-major or N-major. Strides are those of a row, in floats.
static constexpr bool isBKMajor = ${direction === "weight-gradient"};
static constexpr unsigned strideA = ${strideA}, strideB = ${strideB}, floatsA = ${floatsA}, floatsB = ${floatsB};

${preludeOf(new Set(["dynamicSharedMemory"]))}${onlyOnDevice([cpAsyncIntrinsics, ...mathIntrinsics[math]].join("\n"))}
${declareElement(dtype)}
${declareWindows(direction)}
${declareCopyElement(dtype === "f32")}
${declareAccumulators(math)}`;
  return cudaKernel({
    name: `convolution.${direction}.${math}`,
    parameters: implicitGemmParameters(variant),
    elements: typeOf(dtype),
    ...(isSplit && { pointers: { result: "float" } }),
    ...{
      threads,
      sharedBytes,
      declarations,
      blocksPerSm: Math.max(1, Math.floor(residentThreads / threads)),
    },
    body: bodyOf(variant, sharedBytes),
  });
}

/** C++: the sizes of the GEMM, and the stride from row to row of A and of C. */
const sizes: Readonly<Record<ConvolutionDirection, string>> = {
  forward: `
  const unsigned m = outChannels, n = batch * outHeight * outWidth, k = channels * kernelHeight * kernelWidth;
  const unsigned matrixStride = k, resultStride = outHeight * outWidth;
  matrix += group * m * k;`,
  "input-gradient": `
  const unsigned m = channels, n = batch * (windows.rows.positions * windows.columns.positions), k = outChannels * (windows.rows.taps * windows.columns.taps);
  const unsigned matrixStride = kernelHeight * kernelWidth, resultStride = height * width;
  matrix += group * outChannels * m * matrixStride;`,
  "weight-gradient": `
  const unsigned m = outChannels, n = channels * kernelHeight * kernelWidth, k = batch * outHeight * outWidth;
  const unsigned matrixStride = outHeight * outWidth, resultStride = n;`,
};

/** C++: the element of C's row 0 in a column. */
const resultOffset: Readonly<Record<ConvolutionDirection, string>> = {
  forward: "windows.otherOffset(column)",
  "input-gradient": "windows.otherOffset(column)",
  "weight-gradient": "group * m * n + column",
};

/** C++: the number of results of all groups, which is the distance between the partial sums of two splits. */
const resultCount: Readonly<Record<ConvolutionDirection, string>> = {
  forward: "batch * groups * outChannels * outHeight * outWidth",
  "input-gradient": "batch * groups * channels * height * width",
  "weight-gradient": "groups * m * n",
};

function bodyOf({ direction, copiesVectors, hasBias, isSplit }: ImplicitGemmVariant, sharedBytes: number) {
  const value = `acc.at(i, j)${hasBias ? " + Conversion::widen(bias[group * m + row])" : ""}`;
  return `
  dynamicSharedMemory(smem, ${sharedBytes});
  float* const stageTiles = reinterpret_cast<float*>(smem);
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // CTAs that gather the same elements are neighbours.
  const unsigned tilesM = (${direction === "input-gradient" ? "channels" : "outChannels"} + tileM - 1) / tileM;
  const unsigned firstM = blockIdx.x % tilesM * tileM, firstN = blockIdx.x / tilesM % tilesN * tileN;
  const unsigned split = blockIdx.x / tilesM / tilesN % splits;
  const unsigned group = blockIdx.x / tilesM / tilesN / splits % groups;
${direction === "input-gradient" ? "  const unsigned residueClass = blockIdx.x / tilesM / tilesN / splits / groups;" : ""}
${constructWindows(direction)}
${sizes[direction]}
  if (firstN >= n) return;
${loadMatrix(direction, copiesVectors)}
${loadImage(direction)}
  const unsigned kTiles = (k + tileK - 1) / tileK, tilesPerSplit = (kTiles + splits - 1) / splits;
  const unsigned firstTile = split * tilesPerSplit, endTile = firstTile + tilesPerSplit < kTiles ? firstTile + tilesPerSplit : kTiles;
  auto loadStage = [&](unsigned kTile) {
    if (kTile < endTile) {
      float* const tileA = stageTiles + kTile % stages * (floatsA + floatsB);
      loadMatrix(tileA, kTile);
      loadImage(tileA + floatsA, kTile);
    }
    cpAsyncCommit();
  };

  Accumulators acc(warp / warpsN * warpTileM, warp % warpsN * warpTileN, lane);
#pragma unroll
  for (unsigned stage = 0; stage + 1 < stages; stage++) loadStage(firstTile + stage);
  for (unsigned kTile = firstTile; kTile < endTile; kTile++) {
    cpAsyncWait<stages - 2>();
    // The tile has landed for all threads, and none still reads the stage that is loaded next.
    __syncthreads();
    loadStage(kTile + stages - 1);
    const float* const tileA = stageTiles + kTile % stages * (floatsA + floatsB);
    acc.multiply(tileA, tileA + floatsA);
  }

${isSplit ? `  result += (unsigned long long)split * (${resultCount[direction]});` : ""}
#pragma unroll
  for (unsigned j = 0; j < Accumulators::columns; j++) {
    const unsigned column = firstN + acc.columnOf(j);
    if (column >= n) continue;
    const unsigned offset = ${resultOffset[direction]};
#pragma unroll
    for (unsigned i = 0; i < Accumulators::rows; i++) {
      const unsigned row = firstM + acc.rowOf(i);
      if (row < m) result[offset + row * resultStride] = ${isSplit ? "acc.at(i, j)" : `Conversion::narrow(${value})`};
    }
  }`;
}
