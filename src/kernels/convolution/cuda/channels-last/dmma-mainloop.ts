/** The mainloop of channels-last convolutions in f32: products of floats are exact in f64, on the FP64 tensor cores. */

import { preludeOf } from "../../../codegen/cuda/prelude.js";
import { type DmmaShape, declareDmma, dmmaLoop, residentDmmaCtas } from "../../../gemm/dmma/index.js";
import type { ConvolutionEpilogue } from "../../problem.js";
import { applyEpilogue } from "../epilogue.js";
import { dmmaSharedBytes } from "./dmma-tiles.js";
import type { Mainloop, OperandMajors } from "./mainloop.js";

export function dmmaMainloop(tile: DmmaShape, isKMajor: OperandMajors, resultBytes: number): Mainloop {
  const sharedBytes = dmmaSharedBytes(tile, isKMajor, resultBytes);
  return {
    ...{ threads: 32 * tile.warpsM * tile.warpsN, sharedBytes },
    blocksPerSm: residentDmmaCtas(tile, sharedBytes),
    declarations: declarationsOf(tile, isKMajor),
    stages: `
  dynamicSharedMemory(smem, ${sharedBytes});
  unsigned char* const stageTiles = smem;`,
    ...{ multiply: multiplyWith(tile), stageResults, storePartials },
  };
}

const declarationsOf = (
  tile: DmmaShape,
  isKMajor: OperandMajors,
): string => `${preludeOf(new Set(["dynamicSharedMemory"]))}${declareDmma(tile)}
typedef TileLayout<tileM, ${isKMajor.a}> TileA;
typedef TileLayout<tileN, ${isKMajor.b}> TileB;
// A chunk is 16 bytes, the size of a copy.
static constexpr unsigned chunkElements = 4;
static constexpr unsigned bytesA = 4 * TileA::floats, stageBytes = bytesA + 4 * TileB::floats;

struct KMajor {
  static constexpr unsigned chunks = tileK / chunkElements, pitch = 4 * TileLayout<tileM, true>::stride, period = 1;
  static __device__ __forceinline__ unsigned offset(unsigned row, unsigned chunk) { return row * pitch + chunk * 16; }
};
template <unsigned size>
struct MnMajor {
  static constexpr unsigned pitch = 4 * TileLayout<size, false>::stride, period = 1;
  static __device__ __forceinline__ unsigned offset(unsigned row, unsigned chunk) { return row * pitch + chunk * 16; }
};`;

const multiplyWith = (tile: DmmaShape): string => `
  auto stageAt = [&](unsigned kTile) { return reinterpret_cast<float*>(stageTiles + kTile % stages * stageBytes); };
  auto loadStage = [&](unsigned kTile) {
    if (kTile < endTile) loadTile(stageTiles + kTile % stages * stageBytes, kTile);
    cpAsyncCommit();
  };
${dmmaLoop(tile)}`;

/** A lane has four columns of each block, and two rows. The bias is added in f64, and the sum is rounded once. */
const stageResults = (epilogue: ConvolutionEpilogue | undefined, hasBias: boolean): string => `
#pragma unroll
  for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
    for (unsigned part = 0; part < 4; part++) {
      const unsigned column = warpN + 16 * j + TileB::offsetOf(2 * member + part % 2, part / 2);
      const double columnBias = ${hasBias ? "firstN + column < (unsigned)n ? bias[firstN + column] : 0.0f" : "0"};
#pragma unroll
      for (unsigned e = 0; e < 2 * blocksM; e++) {
        const float value = (float)(acc[e / 2][j][part / 2][2 * (e % 2) + part % 2] + columnBias);
        staged[(warpM + 16 * (e / 2) + TileA::offsetOf(group, e % 2)) * stagedStride + column] = Conversion::narrow(${applyEpilogue(epilogue, "value")});
      }
    }
  }`;

/** Both operands are MN-major: a lane has four neighbours of a row. */
const storePartials = `
#pragma unroll
  for (unsigned j = 0; j < blocksN; j++) {
    const unsigned column = firstN + warpN + 16 * j + 4 * member;
#pragma unroll
    for (unsigned e = 0; e < 2 * blocksM; e++) {
      const unsigned row = firstM + warpM + 16 * (e / 2) + TileA::offsetOf(group, e % 2);
      const double (&sums)[2][4] = acc[e / 2][j];
      const unsigned at = 2 * (e % 2);
      if (row < (unsigned)m && column < (unsigned)n) {
        *reinterpret_cast<float4*>(partials + (unsigned long long)split * m * n + row * n + column) =
            make_float4((float)sums[0][at], (float)sums[1][at], (float)sums[0][at + 1], (float)sums[1][at + 1]);
      }
    }
  }`;
