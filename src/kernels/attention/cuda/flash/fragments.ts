/**
 * The fragments of `mma.sync` in the flash attention kernels. A warp multiplies blocks of 16 rows with blocks of 8 columns. The product of
 * one GEMM is an operand of the next, and stays in registers: its accumulators are packed into fragments of A.
 *
 * 16-bit elements: `ldmatrix` loads all fragments. TF32: the accumulators of a lane are columns 2t and 2t + 1 of a block, and a fragment
 * of A wants columns t and t + 4. K is summed in any order, so the rows of B are loaded in the order of the accumulators instead.
 */

import { cpAsyncIntrinsics } from "../../../codegen/cuda/intrinsics/cp-async.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import {
  cvtRnaTf32,
  ex2Approx,
  ldmatrixHalf,
  ldmatrixX4,
  mmaSyncHalf,
  mmaSyncTf32,
  packHalves,
} from "../../../codegen/cuda/intrinsics/mma.js";
import { elementTags, type MmaElement, mmaElements } from "../../../codegen/cuda/intrinsics/wgmma.js";

/** Elements of K that one instruction multiplies, and the C++ type of an element in shared memory. */
export const flashElements = {
  bf16: { mmaK: 16, type: "unsigned short", bytes: 2 },
  f16: { mmaK: 16, type: "unsigned short", bytes: 2 },
  tf32: { mmaK: 8, type: "float", bytes: 4 },
} as const satisfies Record<MmaElement, { mmaK: number; type: string; bytes: number }>;

/** Elements after each row in shared memory: 16 bytes, so that eight rows start in different banks. */
export function rowPadding(element: MmaElement): number {
  return 16 / flashElements[element].bytes;
}

const halfFragments = `
struct Fragments {
  typedef unsigned A[4];
  // Of two neighbouring blocks of 8 columns.
  typedef unsigned B[2][2];

  template <unsigned stride>
  static __device__ __forceinline__ void loadA(A& a, const Element* tile, unsigned row, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
    ldmatrixX4<false>(a, tile + (row + lane % 16) * stride + k + lane / 16 * 8);
  }

  // Memory has the columns of B as rows, with k along them.
  template <unsigned stride>
  static __device__ __forceinline__ void loadB(B& b, const Element* tile, unsigned column, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
    load<false>(b, tile + (column + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 8);
  }

  // Memory has the rows of B as rows, with columns along them.
  template <unsigned stride>
  static __device__ __forceinline__ void loadTransposedB(B& b, const Element* tile, unsigned k, unsigned column) {
    const unsigned lane = threadIdx.x % 32;
    load<true>(b, tile + (k + lane / 8 % 2 * 8 + lane % 8) * stride + column + lane / 16 * 8);
  }

  // The columns from mmaK · step on of accumulators, as A.
  template <unsigned blocks>
  static __device__ __forceinline__ void pack(A& a, const float (&acc)[blocks][4], unsigned step) {
    a[0] = packHalves<Tag>(acc[2 * step][0], acc[2 * step][1]);
    a[1] = packHalves<Tag>(acc[2 * step][2], acc[2 * step][3]);
    a[2] = packHalves<Tag>(acc[2 * step + 1][0], acc[2 * step + 1][1]);
    a[3] = packHalves<Tag>(acc[2 * step + 1][2], acc[2 * step + 1][3]);
  }

  static __device__ __forceinline__ void multiply(float (&acc)[4], const A& a, const unsigned (&b)[2]) { mmaSync<Tag>(acc, a, b); }

 private:
  template <bool isTransposed>
  static __device__ __forceinline__ void load(B& b, const Element* row) {
    unsigned four[4];
    ldmatrixX4<isTransposed>(four, row);
    b[0][0] = four[0];
    b[0][1] = four[1];
    b[1][0] = four[2];
    b[1][1] = four[3];
  }
};`;

const tf32Fragments = `
struct Fragments {
  typedef float A[4];
  // Of two neighbouring blocks of 8 columns.
  typedef float B[2][2];

  template <unsigned stride>
  static __device__ __forceinline__ void loadA(A& a, const Element* tile, unsigned row, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
    ldmatrixX4(a, tile + (row + lane % 16) * stride + k + lane / 16 * 4);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) a[i] = cvtRnaTf32(a[i]);
  }

  // Memory has the columns of B as rows, with k along them.
  template <unsigned stride>
  static __device__ __forceinline__ void loadB(B& b, const Element* tile, unsigned column, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
    float four[4];
    ldmatrixX4(four, tile + (column + lane / 16 * 8 + lane % 8) * stride + k + lane / 8 % 2 * 4);
#pragma unroll
    for (unsigned i = 0; i < 4; i++) b[i / 2][i % 2] = cvtRnaTf32(four[i]);
  }

  // Memory has the rows of B as rows, with columns along them. The order of the rows is that of accumulators.
  template <unsigned stride>
  static __device__ __forceinline__ void loadTransposedB(B& b, const Element* tile, unsigned k, unsigned column) {
    const unsigned lane = threadIdx.x % 32;
    const Element* const from = tile + (k + lane % 4 * 2) * stride + column + lane / 4;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) b[i / 2][i % 2] = cvtRnaTf32(from[i % 2 * stride + i / 2 * 8]);
  }

  // The columns from mmaK · step on of accumulators, as A.
  template <unsigned blocks>
  static __device__ __forceinline__ void pack(A& a, const float (&acc)[blocks][4], unsigned step) {
    a[0] = cvtRnaTf32(acc[step][0]);
    a[1] = cvtRnaTf32(acc[step][2]);
    a[2] = cvtRnaTf32(acc[step][1]);
    a[3] = cvtRnaTf32(acc[step][3]);
  }

  static __device__ __forceinline__ void multiply(float (&acc)[4], const A& a, const float (&b)[2]) { mmaSync(acc, a, b); }
};`;

/** C++: `Element`, `mmaK`, `Fragments` and the PTX wrappers that they call. */
export function declareFragments(element: MmaElement): string {
  const { mmaK, type } = flashElements[element];
  const ptx =
    element === "tf32"
      ? [mmaSyncTf32, ldmatrixX4, cvtRnaTf32]
      : [mmaSyncHalf(element), ldmatrixHalf, packHalves(element)];
  return `
${onlyOnDevice([elementTags, ...ptx, ex2Approx, cpAsyncIntrinsics].join("\n"))}
typedef ${type} Element;
typedef ${mmaElements[element].type} Tag;
static constexpr unsigned mmaK = ${mmaK};
${element === "tf32" ? tf32Fragments : halfFragments}`;
}
