/**
 * C++: `Accumulators`, a warp's part of C in registers: how it is divided among lanes, and how a k-tile is multiplied. On tensor cores
 * operands are rounded when their fragments are loaded.
 */

import {
  cvtRnaTf32Movable,
  ldmatrixX4,
  mmaSyncHalf,
  mmaSyncTf32,
  packHalves,
} from "../../codegen/cuda/intrinsics/mma.js";
import { elementTags } from "../../codegen/cuda/intrinsics/wgmma.js";
import type { ConvolutionMath } from "./configs.js";

/** The PTX wrappers that the accumulators need. */
export const mathIntrinsics: Readonly<Record<ConvolutionMath, readonly string[]>> = {
  f32: [],
  tf32: [mmaSyncTf32, cvtRnaTf32Movable, ldmatrixX4],
  bf16: [elementTags, mmaSyncHalf("bf16"), packHalves("bf16"), ldmatrixX4],
};

export function declareAccumulators(math: ConvolutionMath): string {
  return math === "f32" ? fmaAccumulators : mmaAccumulators(math);
}

/** A lane has every eighth row and, of the columns, groups of four neighbours (N-major) or every fourth (K-major). */
const fmaAccumulators = `
struct Accumulators {
  static constexpr unsigned rows = warpTileM / 8, columns = warpTileN / 4;
  float acc[rows][columns] = {};
  const unsigned warpM, warpN, lane;

  __device__ __forceinline__ Accumulators(unsigned warpM, unsigned warpN, unsigned lane) : warpM(warpM), warpN(warpN), lane(lane) {}
  __device__ __forceinline__ float at(unsigned i, unsigned j) const { return acc[i][j]; }
  __device__ __forceinline__ unsigned rowOf(unsigned i) const { return warpM + lane / 4 + 8 * i; }
  __device__ __forceinline__ unsigned columnOf(unsigned j) const {
    return warpN + (isBKMajor ? lane % 4 + 4 * j : 4 * (lane % 4) + 16 * (j / 4) + j % 4);
  }

  // Adds the products of a k-tile, in the order of k.
  __device__ __forceinline__ void multiply(const float* tileA, const float* tileB) {
#pragma unroll 2
    for (unsigned k = 0; k < tileK; k += 4) {
      float a[rows][4], b[columns][4];
#pragma unroll
      for (unsigned i = 0; i < rows; i++) loadFloat4(a[i], tileA + rowOf(i) * strideA + k);
      if constexpr (isBKMajor) {
#pragma unroll
        for (unsigned j = 0; j < columns; j++) loadFloat4(b[j], tileB + columnOf(j) * strideB + k);
      } else {
#pragma unroll
        for (unsigned j = 0; j < columns; j += 4) {
#pragma unroll
          for (unsigned e = 0; e < 4; e++) {
            float row[4];
            loadFloat4(row, tileB + (k + e) * strideB + columnOf(j));
#pragma unroll
            for (unsigned next = 0; next < 4; next++) b[j + next][e] = row[next];
          }
        }
      }
#pragma unroll
      for (unsigned e = 0; e < 4; e++) {
#pragma unroll
        for (unsigned i = 0; i < rows; i++) {
#pragma unroll
          for (unsigned j = 0; j < columns; j++) acc[i][j] = fmaf(a[i][e], b[j][e], acc[i][j]);
        }
      }
    }
  }

  static __device__ __forceinline__ void loadFloat4(float (&values)[4], const float* smem) {
    const float4 vec = *reinterpret_cast<const float4*>(smem);
    values[0] = vec.x;
    values[1] = vec.y;
    values[2] = vec.z;
    values[3] = vec.w;
  }
};`;

/** m16n8k8 in TF32. */
const multiplyTf32 = `
#pragma unroll
    for (unsigned k = 0; k < tileK; k += 8) {
      float a[blocksM][4], b[blocksN][2];
      loadFragments(a, b, tileA, tileB, k);
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
        for (unsigned e = 0; e < 4; e++) a[i][e] = cvtRnaTf32(a[i][e]);
      }
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
        for (unsigned e = 0; e < 2; e++) b[j][e] = cvtRnaTf32(b[j][e]);
      }
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
#pragma unroll
        for (unsigned j = 0; j < blocksN; j++) mmaSync(acc[i][j], a[i], b[j]);
      }
    }`;

/** m16n8k16 in bf16, from two fragments of 8 k. The instruction's k may have any order in which A and B agree. */
const multiplyBf16 = `
#pragma unroll
    for (unsigned k = 0; k < tileK; k += 16) {
      float a[2][blocksM][4], b[2][blocksN][2];
#pragma unroll
      for (unsigned half = 0; half < 2; half++) loadFragments(a[half], b[half], tileA, tileB, k + 8 * half);
      unsigned packedB[blocksN][2];
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
        for (unsigned half = 0; half < 2; half++) packedB[j][half] = packHalves<Bf16>(b[half][j][0], b[half][j][1]);
      }
#pragma unroll
      for (unsigned i = 0; i < blocksM; i++) {
        unsigned packedA[4];
#pragma unroll
        for (unsigned e = 0; e < 4; e++) packedA[e] = packHalves<Bf16>(a[e / 2][i][e % 2], a[e / 2][i][e % 2 + 2]);
#pragma unroll
        for (unsigned j = 0; j < blocksN; j++) mmaSync<Bf16>(acc[i][j], packedA, packedB[j]);
      }
    }`;

function mmaAccumulators(math: "tf32" | "bf16"): string {
  return `
struct Accumulators {
  // Blocks of 16 × 8. A lane has of each block two rows, and two neighbours in each.
  static constexpr unsigned blocksM = warpTileM / 16, blocksN = warpTileN / 8, rows = 2 * blocksM, columns = 2 * blocksN;
  float acc[blocksM][blocksN][4] = {};
  const unsigned warpM, warpN, lane;

  __device__ __forceinline__ Accumulators(unsigned warpM, unsigned warpN, unsigned lane) : warpM(warpM), warpN(warpN), lane(lane) {}
  __device__ __forceinline__ float at(unsigned i, unsigned j) const { return acc[i / 2][j / 2][i % 2 * 2 + j % 2]; }
  __device__ __forceinline__ unsigned rowOf(unsigned i) const { return warpM + 16 * (i / 2) + 8 * (i % 2) + lane / 4; }
  __device__ __forceinline__ unsigned columnOf(unsigned j) const { return warpN + 8 * (j / 2) + 2 * (lane % 4) + j % 2; }

  __device__ __forceinline__ void multiply(const float* tileA, const float* tileB) {${math === "tf32" ? multiplyTf32 : multiplyBf16}
  }

  // Fragments of 8 k: of A rows g and g + 8 at k = t, then at k = t + 4; of B column g at both (g = lane / 4, t = lane % 4).
  __device__ __forceinline__ void loadFragments(
      float (&a)[blocksM][4], float (&b)[blocksN][2], const float* tileA, const float* tileB, unsigned k) const {
#pragma unroll
    for (unsigned i = 0; i < blocksM; i++) ldmatrixX4(a[i], tileA + (warpM + 16 * i + lane % 16) * strideA + k + lane / 16 * 4);
    if constexpr (isBKMajor) {
#pragma unroll
      for (unsigned j = 0; j < blocksN; j += 2) {
        float pair[4];
        ldmatrixX4(pair, tileB + (warpN + 8 * j + lane % 16) * strideB + k + lane / 16 * 4);
#pragma unroll
        for (unsigned e = 0; e < 4; e++) b[j + e % 2][e / 2] = pair[e];
      }
    } else {
#pragma unroll
      for (unsigned j = 0; j < blocksN; j++) {
#pragma unroll
        for (unsigned e = 0; e < 2; e++) b[j][e] = tileB[(k + lane % 4 + 4 * e) * strideB + warpN + 8 * j + lane / 4];
      }
    }
  }
};`;
}
