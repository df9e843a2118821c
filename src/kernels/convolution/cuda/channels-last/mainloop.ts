/**
 * The wgmma mainloop of the channels-last convolutions: all threads gather k-tiles by cp.async into the 128-byte swizzle, several stages
 * ahead, and all warpgroups multiply them from shared memory.
 */

import { cpAsyncIntrinsics } from "../../../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import {
  elementTags,
  type MmaElement,
  mmaElements,
  smemDescriptor,
  wgmmaSs,
  wgmmaSync,
} from "../../../codegen/cuda/intrinsics/wgmma.js";
import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { type ChannelsLastTile, kTileBytes, smemAlignment, threadsOf } from "./tiles.js";

/** C++: constants of the tile, the intrinsics, and addresses in shared memory. */
export function declareMainloop(element: MmaElement, tile: ChannelsLastTile): string {
  const { tileM, tileN, warpgroupsM, warpgroupsN, stages, overlap } = tile;
  const [mmaM, mmaN] = [tileM / 64 / warpgroupsM, tileN / warpgroupsN];
  const code = [elementTags, cpAsyncIntrinsics, smemDescriptor, wgmmaSs(element, mmaN), wgmmaSync].join("\n");
  return `${preludeOf(new Set(["dynamicSharedMemory"]))}${onlyOnDevice(code)}
typedef ${mmaElements[element].type} MmaElement;
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, stages = ${stages}, overlap = ${overlap}, threads = ${threadsOf(tile)};
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

// The operand of one wgmma: from row or column \`mn\` on, and the \`kStep\`-th 32 bytes of K.
template <bool isKMajor>
static __device__ __forceinline__ const unsigned char* operandAt(const unsigned char* tile, unsigned mn, unsigned kStep) {
  return isKMajor ? tile + mn * 128 + kStep * 32 : tile + mn / (128 / MmaElement::bytes) * boxBytes + kStep * (32 / MmaElement::bytes * 128);
}`;
}

/** C++: aligned stages in shared memory. */
export const alignStages = (sharedBytes: number): string => `
  dynamicSharedMemory(smem, ${sharedBytes});
  unsigned char* const stageTiles = smem + (${smemAlignment} - reinterpret_cast<unsigned long long>(smem) % ${smemAlignment}) % ${smemAlignment};`;

/**
 * C++: `acc`, the sum over the k-tiles from `firstTile` up to `endTile`, which `loadTile(smem, kTile)` copies. Afterwards no thread reads
 * the stages.
 */
export const mainloop = (isKMajor: { readonly a: boolean; readonly b: boolean }): string => `
  const unsigned warpgroup = threadIdx.x / 128, warpgroupM = warpgroup / warpgroupsN * (64 * mmaM), warpgroupN = warpgroup % warpgroupsN * mmaN;
  float acc[mmaM][mmaN / 2];
#pragma unroll
  for (unsigned i = 0; i < mmaM; i++) {
#pragma unroll
    for (unsigned e = 0; e < mmaN / 2; e++) {
      acc[i][e] = 0;
      fenceOperand(acc[i][e]);
    }
  }
  constexpr unsigned ahead = stages - 1 - overlap;
  auto loadStage = [&](unsigned kTile) {
    if (kTile < endTile) loadTile(stageTiles + kTile % stages * stageBytes, kTile);
    cpAsyncCommit();
  };
#pragma unroll
  for (unsigned stage = 0; stage < ahead; stage++) loadStage(firstTile + stage);
  for (unsigned kTile = firstTile; kTile < endTile; kTile++) {
    cpAsyncWait<ahead - 1>();
    fenceProxyAsync();
    if constexpr (overlap == 0) wgmmaWait<0>();
    // The k-tile has landed for all threads, and no warpgroup still reads the stage that is loaded next.
    __syncthreads();
    const unsigned char* const tileA = stageTiles + kTile % stages * stageBytes;
    wgmmaFence();
#pragma unroll
    for (unsigned kStep = 0; kStep < 4; kStep++) {
#pragma unroll
      for (unsigned i = 0; i < mmaM; i++) {
        wgmmaSs<MmaElement, mmaN, ${isKMajor.a}, ${isKMajor.b}>(
            acc[i], operandAt<${isKMajor.a}>(tileA, warpgroupM + 64 * i, kStep), operandAt<${isKMajor.b}>(tileA + bytesA, warpgroupN, kStep));
      }
    }
    wgmmaCommit();
    loadStage(kTile + ahead);
    if constexpr (overlap == 1) wgmmaWait<1>();
  }
  wgmmaWait<0>();
  __syncthreads();`;
