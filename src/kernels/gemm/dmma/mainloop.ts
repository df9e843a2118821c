/** C++: the DMMA mainloop over k-tiles in shared memory: fragments are widened to f64 and multiplied by m16n8k8 mma.sync. */

import { cpAsyncIntrinsics } from "../../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../../codegen/cuda/intrinsics/intrinsic.js";
import { ldmatrixX4, mmaSyncF64 } from "../../codegen/cuda/intrinsics/mma.js";
import { accumulateByBits, declareWidening, type Widening } from "./widening.js";

/** CTA tile, its division among warps, and how floats become doubles. */
export interface DmmaShape {
  readonly tileM: number;
  readonly tileN: number;
  readonly tileK: number;
  readonly stages: number;
  readonly warpsM: number;
  readonly warpsN: number;
  /** Default: "convert". */
  readonly widening?: Widening;
}

/** `TileLayout`: the k-tile of one operand in shared memory, and its fragments. Rows are padded against bank conflicts. */
const tileLayout = `
template <unsigned size, bool isKMajor>
struct TileLayout {
  static constexpr unsigned rows = isKMajor ? size : tileK, columns = isKMajor ? tileK : size;
  static constexpr unsigned stride = columns + (isKMajor ? 4 : 8), floats = rows * stride;

  // Loads a 16 × 8 (M/N × K) fragment. Lane (group g, member t) gets elements (offsetOf(g, 0), t), (offsetOf(g, 1), t),
  // (offsetOf(g, 0), t + 4), (offsetOf(g, 1), t + 4).
  static __device__ __forceinline__ void loadFragment(float (&fragment)[4], const float* tile, unsigned mn, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
    if constexpr (isKMajor) {
      ldmatrixX4(fragment, tile + (mn + lane % 16) * stride + k + lane / 16 * 4);
    } else {
      const float* pair = tile + (k + lane % 4) * stride + mn + offsetOf(lane / 4, 0);
      const float2 low = *reinterpret_cast<const float2*>(pair);
      const float2 high = *reinterpret_cast<const float2*>(pair + 4 * stride);
      fragment[0] = low.x;
      fragment[1] = low.y;
      fragment[2] = high.x;
      fragment[3] = high.y;
    }
  }

  // The row (A) or column (B), among the 16 of the fragment, of a lane group's element. The order differs for faster loads.
  static __device__ __forceinline__ unsigned offsetOf(unsigned group, unsigned element) {
    return isKMajor ? group + 8 * element : 2 * group + element;
  }
};`;

/** C++: constants of the tile, the intrinsics, and the layout of operands in shared memory. */
export function declareDmma(shape: DmmaShape): string {
  const { tileM, tileN, tileK, stages, warpsM, warpsN, widening = "convert" } = shape;
  return `
static constexpr unsigned tileM = ${tileM}, tileN = ${tileN}, tileK = ${tileK}, stages = ${stages};
static constexpr unsigned warpsN = ${warpsN}, threads = ${32 * warpsM * warpsN};
// A warp accumulates blocksM × blocksN blocks of 16 × 16.
static constexpr unsigned blocksM = ${tileM / warpsM / 16}, blocksN = ${tileN / warpsN / 16};

${onlyOnDevice([mmaSyncF64, ldmatrixX4, cpAsyncIntrinsics].join("\n"))}
${tileLayout}
${declareWidening(widening)}`;
}

/**
 * C++: `acc`, the sum over the k-tiles from `firstTile` up to `endTile`, in the order of k. `loadStage(kTile)` starts the copies of a k-tile
 * and commits them, and `stageAt(kTile)` is where it copies them to: `TileA`, then `TileB`. Afterwards no warp reads the stages.
 */
export function dmmaLoop({ widening = "convert" }: DmmaShape): string {
  const accumulate = widening === "bits" ? accumulateByBits(accumulateWith) : accumulateWith("Convert");
  return `${declareAccumulators}${accumulate}`;
}

const declareAccumulators = `
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, member = lane % 4;
  const unsigned warpM = warp / warpsN * (16 * blocksM), warpN = warp % warpsN * (16 * blocksN);
  double acc[blocksM][blocksN][2][4];
  float probe = 0;`;

/** C++: a block with the mainloop. `probe` is what the widening adds to, if it needs it. */
const accumulateWith = (widening: string): string => `
  {
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
        for (unsigned e = 0; e < 8; e++) acc[i][j][e / 4][e % 4] = 0;
      }
    }
    // Double-buffered fragments: one set is multiplied while the next is loaded.
    float fragmentA[2][blocksM][4], fragmentB[2][blocksN][4];
    auto loadFragments = [&](unsigned buffer, const float* stageTile, unsigned kStep) {
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) TileA::loadFragment(fragmentA[buffer][i], stageTile, warpM + 16 * i, kStep);
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) TileB::loadFragment(fragmentB[buffer][j], stageTile + TileA::floats, warpN + 16 * j, kStep);
    };
    auto multiply = [&](unsigned buffer) {
      double columns[blocksN][2][2];
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
        ${widening}::probe(probe, fragmentB[buffer][j]);
#pragma unroll
        for (unsigned e = 0; e < 4; e++) columns[j][e % 2][e / 2] = ${widening}::ofB(fragmentB[buffer][j][e]);
      }
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
        ${widening}::probe(probe, fragmentA[buffer][i]);
        double rows[4];
#pragma unroll
        for (unsigned e = 0; e < 4; e++) rows[e] = ${widening}::ofA(fragmentA[buffer][i][e]);
#pragma unroll
        for (unsigned j = 0; j < blocksN; j++) {
          mmaSync(acc[i][j][0], rows, columns[j][0]);
          mmaSync(acc[i][j][1], rows, columns[j][1]);
        }
      }
    };

#pragma unroll
    for (unsigned stage = 0; stage + 1 < stages; stage++) loadStage(firstTile + stage);
    cpAsyncWait<stages - 2>();
    __syncthreads();
    loadFragments(0, stageAt(firstTile), 0);
    for (unsigned kTile = firstTile; kTile < endTile; kTile++) {
#pragma unroll
      for (unsigned kStep = 0; kStep < tileK; kStep += 8) {
        const unsigned buffer = kStep / 8 % 2;
        if (kStep + 8 < tileK) {
          loadFragments(1 - buffer, stageAt(kTile), kStep + 8);
        } else {
          cpAsyncWait<stages - 2>();
          __syncthreads();
          if (kTile + 1 < endTile) loadFragments(1 - buffer, stageAt(kTile + 1), 0);
        }
        if (kStep == 0) loadStage(kTile + stages - 1);
        multiply(buffer);
      }
    }
  }`;
