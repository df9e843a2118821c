/**
 * The wgmma mainloop of the channels-last convolutions: all threads gather k-tiles by cp.async into the 128-byte swizzle, several stages
 * ahead, and all warpgroups multiply them from shared memory.
 */

import { cpAsyncIntrinsics } from "../../../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import { cvtRnaTf32Movable } from "../../../codegen/cuda/intrinsics/mma.js";
import {
  elementTags,
  type MmaElement,
  mmaElements,
  tileAddress,
  wgmmaSs,
  wgmmaSync,
  zeroAccumulators,
} from "../../../codegen/cuda/intrinsics/wgmma.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import type { ConvolutionEpilogue } from "../../problem.js";
import { applyEpilogue } from "../epilogue.js";
import type { Mainloop, MainloopOptions, OperandMajors } from "./mainloop.js";
import {
  type ChannelsLastTile,
  kTileBytes,
  residentCtas,
  sharedBytesOf,
  smemAlignment,
  threadsOf,
  transposedStages,
} from "./tiles.js";

/** wgmma reads TF32 K-major only: other operands are transposed in shared memory. */
export function wgmmaMainloop(
  element: MmaElement,
  tile: ChannelsLastTile,
  isKMajor: OperandMajors,
  { resultBytes, roundsTiles }: Required<MainloopOptions>,
): Mainloop {
  const transposes = element === "tf32" && !isKMajor.a;
  const sharedBytes = sharedBytesOf(tile, resultBytes, transposes);
  return {
    ...{ threads: threadsOf(tile), sharedBytes },
    blocksPerSm: residentCtas(tile, resultBytes, transposes),
    declarations: `${declareMainloop(element, tile)}${transposes ? declareTranspose : ""}${roundsTiles ? declareRounding : ""}`,
    stages: alignStages(sharedBytes),
    multiply: transposes ? transposingMainloop : mainloop(tile, isKMajor, roundsTiles),
    ...{ stageResults, storePartials },
  };
}

/** C++: constants of the tile, the intrinsics, and addresses in shared memory. */
function declareMainloop(element: MmaElement, tile: ChannelsLastTile): string {
  const { tileM, tileN, warpgroupsM, warpgroupsN, stages } = tile;
  const [mmaM, mmaN] = [tileM / 64 / warpgroupsM, tileN / warpgroupsN];
  const rounding = element === "tf32" ? [cvtRnaTf32Movable] : [];
  const code = [elementTags, ...rounding, cpAsyncIntrinsics, wgmmaSs(element, mmaN), wgmmaSync].join("\n");
  return `${preludeOf(new Set(["dynamicSharedMemory"]))}${tileAddress}
${onlyOnDevice(code)}
typedef ${mmaElements[element].type} MmaElement;
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, stages = ${stages}, threads = ${threadsOf(tile)};
static constexpr unsigned warpgroupsN = ${warpgroupsN}, mmaM = ${mmaM}, mmaN = ${mmaN};
// A chunk is 16 bytes, the size of a copy. k-tiles have 128 bytes of K.
static constexpr unsigned chunkElements = 16 / MmaElement::bytes, tileK = ${kTileBytes} / MmaElement::bytes;
static constexpr unsigned bytesA = tileM * ${kTileBytes}, bytesB = tileN * ${kTileBytes}, stageBytes = bytesA + bytesB;

// The offset of a chunk in the 128-byte swizzle.
static __device__ __forceinline__ unsigned swizzledOffset(unsigned row, unsigned chunk) {
  return row * 128 + ((chunk ^ (row & 7)) << 4);
}

// MN-major tiles have a row for each k and boxes of ${kTileBytes} bytes along M or N.
static constexpr unsigned boxBytes = tileK * 128;

// Groups of eight rows repeat the swizzle.
struct KMajor {
  static constexpr unsigned chunks = tileK / chunkElements, pitch = 128, period = 8;
  static __device__ __forceinline__ unsigned offset(unsigned row, unsigned chunk) { return swizzledOffset(row, chunk); }
};
template <unsigned size>
struct MnMajor {
  static constexpr unsigned pitch = 128, period = 8;
  static __device__ __forceinline__ unsigned offset(unsigned row, unsigned chunk) {
    return chunk / 8 * boxBytes + swizzledOffset(row, chunk % 8);
  }
};

// The offset of the operand of one wgmma in its tile: from row or column \`mn\` on, and the \`kStep\`-th 32 bytes of K.
template <bool isKMajor>
static __device__ __forceinline__ constexpr unsigned operandOffset(unsigned mn, unsigned kStep) {
  return isKMajor ? mn * 128 + kStep * 32 : mn / (128 / MmaElement::bytes) * boxBytes + kStep * (32 / MmaElement::bytes * 128);
}`;
}

/** C++: aligned stages in shared memory. */
const alignStages = (sharedBytes: number): string => `
  dynamicSharedMemory(smem, ${sharedBytes});
  unsigned char* const stageTiles = smem + (${smemAlignment} - reinterpret_cast<unsigned long long>(smem) % ${smemAlignment}) % ${smemAlignment};`;

/** C++: starts the copies of the first `ahead` k-tiles, and waits for one in each round of the loop that it opens. */
const startLoop = `  auto loadStage = [&](unsigned kTile) {
    if (kTile < endTile) loadTile(stageTiles + kTile % stages * stageBytes, kTile);
    cpAsyncCommit();
  };
#pragma unroll
  for (unsigned stage = 0; stage < ahead; stage++) loadStage(firstTile + stage);
  for (unsigned kTile = firstTile; kTile < endTile; kTile++) {
    cpAsyncWait<ahead - 1>();`;

const multiplyTile = (isKMajor: OperandMajors): string => `
    wgmmaFence();
#pragma unroll
    for (unsigned kStep = 0; kStep < 4; kStep++) {
#pragma unroll
      for (unsigned i = 0; i < mmaM; i++) {
        wgmmaSs<MmaElement, mmaN, ${isKMajor.a}, ${isKMajor.b}>(
            acc[i], advance(tileAddress(tileA), operandOffset<${isKMajor.a}>(warpgroupM + 64 * i, kStep)),
            advance(tileAddress(tileA), bytesA + operandOffset<${isKMajor.b}>(warpgroupN, kStep)));
      }
    }
    wgmmaCommit();`;

/**
 * C++: `acc`, the sum over the k-tiles from `firstTile` up to `endTile`, which `loadTile(smem, kTile)` copies, and `roundTile(smem)`
 * rounds if that is needed. Afterwards no thread reads the stages.
 */
const mainloop = ({ overlap }: ChannelsLastTile, isKMajor: OperandMajors, roundsTiles: boolean): string => `
${zeroAccumulators}
  constexpr unsigned overlap = ${overlap}, ahead = stages - 1 - overlap;
${startLoop}${roundsTiles ? "\n    roundTile(stageTiles + kTile % stages * stageBytes);" : ""}
    fenceProxyAsync();
    if constexpr (overlap == 0) wgmmaWait<0>();
    // The k-tile has landed for all threads, and no warpgroup still reads the stage that is loaded next.
    __syncthreads();
    const unsigned char* const tileA = stageTiles + kTile % stages * stageBytes;${multiplyTile(isKMajor)}
    loadStage(kTile + ahead);
    if constexpr (overlap == 1) wgmmaWait<1>();
  }
  wgmmaWait<0>();
  __syncthreads();`;

/** C++: `roundChunk`, to TF32: tensor cores drop the low bits of a float, which is a bias. */
const declareRounding = `
static __device__ __forceinline__ void roundChunk(unsigned char* chunk) {
  float4& floats = *reinterpret_cast<float4*>(chunk);
  floats = make_float4(cvtRnaTf32(floats.x), cvtRnaTf32(floats.y), cvtRnaTf32(floats.z), cvtRnaTf32(floats.w));
}`;

/** C++: `transposeTile`, from MN-major to K-major with rounding to TF32. wgmma reads TF32 K-major only. */
const declareTranspose = `
// A thread transposes blocks of 4 mn × 4 k; eight neighbouring threads store to different banks.
template <unsigned size>
static __device__ __forceinline__ void transposeTile(unsigned char* kMajor, const unsigned char* mnMajor) {
#pragma unroll
  for (unsigned block = threadIdx.x; block < size * tileK / 16; block += threads) {
    const unsigned lane = block % 32, group = block / 32;
    const unsigned mn = (group / 2 * 8 + (lane & 1) + lane / 8 * 2) * 4, k = (group % 2 * 4 + lane / 2 % 4) * 4;
    float4 rows[4];
#pragma unroll
    for (unsigned e = 0; e < 4; e++)
      rows[e] = *reinterpret_cast<const float4*>(mnMajor + mn / 32 * boxBytes + swizzledOffset(k + e, mn % 32 / 4));
    const float columns[4][4] = {{rows[0].x, rows[1].x, rows[2].x, rows[3].x}, {rows[0].y, rows[1].y, rows[2].y, rows[3].y},
                                 {rows[0].z, rows[1].z, rows[2].z, rows[3].z}, {rows[0].w, rows[1].w, rows[2].w, rows[3].w}};
#pragma unroll
    for (unsigned e = 0; e < 4; e++) {
      *reinterpret_cast<float4*>(kMajor + swizzledOffset(mn + e, k / 4)) = make_float4(
          cvtRnaTf32(columns[e][0]), cvtRnaTf32(columns[e][1]), cvtRnaTf32(columns[e][2]), cvtRnaTf32(columns[e][3]));
    }
  }
}`;

/** C++: as `mainloop`, with MN-major operands of TF32, which all threads transpose in shared memory. */
const transposingMainloop = `
${zeroAccumulators}
  constexpr unsigned ahead = stages - 1;
  unsigned char* const transposed = stageTiles + stages * stageBytes;
${startLoop}
    // The k-tile has landed for all threads, and no warpgroup still reads the transposed tile that is written next.
    __syncthreads();
    const unsigned char* const source = stageTiles + kTile % stages * stageBytes;
    unsigned char* const tileA = transposed + kTile % ${transposedStages} * stageBytes;
    transposeTile<tileM>(tileA, source);
    transposeTile<tileN>(tileA + bytesA, source + bytesA);
    loadStage(kTile + ahead);
    fenceProxyAsync();
    __syncthreads();${multiplyTile({ a: true, b: true })}
    wgmmaWait<1>();
  }
  wgmmaWait<0>();
  __syncthreads();`;

const stageResults = (epilogue: ConvolutionEpilogue | undefined, hasBias: boolean): string => `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (unsigned e = 0; e < mmaN / 2; e += 4) {
    const unsigned column = warpgroupN + e * 2 + lane % 4 * 2;
${
  hasBias
    ? `    const float bias0 = firstN + column < (unsigned)n ? bias[firstN + column] : 0.0f;
    const float bias1 = firstN + column + 1 < (unsigned)n ? bias[firstN + column + 1] : 0.0f;`
    : "    const float bias0 = 0, bias1 = 0;"
}
#pragma unroll
    for (unsigned i = 0; i < mmaM; i++) {
#pragma unroll
      for (unsigned half = 0; half < 2; half++) {
        Element* const pair = staged + (warpgroupM + 64 * i + warp * 16 + half * 8 + lane / 4) * stagedStride + column;
        pair[0] = Conversion::narrow(${applyEpilogue(epilogue, "acc[i][e + 2 * half] + bias0")});
        pair[1] = Conversion::narrow(${applyEpilogue(epilogue, "acc[i][e + 2 * half + 1] + bias1")});
      }
    }
  }`;

const storePartials = `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4, firstColumn = firstN + warpgroupN + lane % 4 * 2;
  float* const result = partials + (unsigned long long)split * m * n + firstColumn;
#pragma unroll
  for (unsigned half = 0; half < 2 * mmaM; half++) {
    const unsigned row = firstM + warpgroupM + 64 * (half / 2) + warp * 16 + half % 2 * 8 + lane / 4;
    if (row >= (unsigned)m) continue;
#pragma unroll
    for (unsigned e = 0; e < mmaN / 4; e += 2) {
      const float* const pair = &acc[half / 2][e * 2 + half % 2 * 2];
      if (firstColumn + e * 4 < (unsigned)n) *reinterpret_cast<float2*>(result + row * n + e * 4) = make_float2(pair[0], pair[1]);
    }
  }`;
