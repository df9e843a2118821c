/**
 * The fragments of `mma.sync` in the flash attention kernels. A warp multiplies blocks of 16 rows with blocks of 8 columns. The product of
 * one GEMM is an operand of the next, and stays in registers: its accumulators are packed into fragments of A.
 *
 * f32 and f64: the lanes have the same accumulators, and multiply with FMA. A fragment of A has mmaK elements of a lane's two rows, and
 * one of B those of its two columns. Lanes get accumulators of others by shuffles.
 *
 * 16-bit elements: `ldmatrix` loads all fragments. TF32: the accumulators of a lane are columns 2t and 2t + 1 of a block, and a fragment
 * of A wants columns t and t + 4. K is summed in any order, so the rows of B are loaded in the order of the accumulators instead.
 */

import { cpAsyncIntrinsics } from "../../../codegen/cuda/intrinsics/cp-async.js";
import { ex2Approx } from "../../../codegen/cuda/intrinsics/fast-math.js";
import { onlyOnDevice } from "../../../codegen/cuda/intrinsics/intrinsic.js";
import {
  cvtRnaTf32,
  ldmatrixHalf,
  ldmatrixX4,
  mmaSyncHalf,
  mmaSyncTf32,
  packHalves,
} from "../../../codegen/cuda/intrinsics/mma.js";
import { elementTags, type MmaElement, mmaElements } from "../../../codegen/cuda/intrinsics/wgmma.js";

/** What the products are computed with: the tensor cores, or FMA in the full precision. */
export type FlashElement = MmaElement | "f32" | "f64";

/** Elements of K that one instruction multiplies, and the C++ type of an element in shared memory. */
export const flashElements = {
  bf16: { mmaK: 16, type: "unsigned short", bytes: 2 },
  f16: { mmaK: 16, type: "unsigned short", bytes: 2 },
  tf32: { mmaK: 8, type: "float", bytes: 4 },
  f32: { mmaK: 4, type: "float", bytes: 4 },
  f64: { mmaK: 2, type: "double", bytes: 8 },
} as const satisfies Record<FlashElement, { mmaK: number; type: string; bytes: number }>;

/** True if the products are FMA of lanes. */
export function isScalar(element: FlashElement): element is "f32" | "f64" {
  return element === "f32" || element === "f64";
}

/** Elements after each row in shared memory: 16 bytes, so that eight rows start in different banks. */
export function rowPadding(element: FlashElement): number {
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

const scalarFragments = `
struct Fragments {
  typedef Element A[2][mmaK];
  // Of two neighbouring blocks of 8 columns.
  typedef Element B[2][2][mmaK];

  template <unsigned stride>
  static __device__ __forceinline__ void loadA(A& a, const Element* tile, unsigned row, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned half = 0; half < 2; half++) load(a[half], tile + (row + 8 * half + lane / 4) * stride + k);
  }

  // Memory has the columns of B as rows, with k along them.
  template <unsigned stride>
  static __device__ __forceinline__ void loadB(B& b, const Element* tile, unsigned column, unsigned k) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned i = 0; i < 4; i++) load(b[i / 2][i % 2], tile + (column + i / 2 * 8 + lane % 4 * 2 + i % 2) * stride + k);
  }

  // Memory has the rows of B as rows, with columns along them.
  template <unsigned stride>
  static __device__ __forceinline__ void loadTransposedB(B& b, const Element* tile, unsigned k, unsigned column) {
    const unsigned lane = threadIdx.x % 32;
#pragma unroll
    for (unsigned i = 0; i < 2 * mmaK; i++) {
      Element two[2];
      load(two, tile + (k + i / 2) * stride + column + i % 2 * 8 + lane % 4 * 2);
      b[i % 2][0][i / 2] = two[0];
      b[i % 2][1][i / 2] = two[1];
    }
  }

  // The columns from mmaK · step on of accumulators, as A: of the lanes that share the rows.
  template <unsigned blocks>
  static __device__ __forceinline__ void pack(A& a, const Element (&acc)[blocks][4], unsigned step) {
    const unsigned firstLane = threadIdx.x % 32 / 4 * 4;
#pragma unroll
    for (unsigned k = 0; k < mmaK; k++) {
      const unsigned column = mmaK * step + k, owner = firstLane + column % 8 / 2;
#pragma unroll
      for (unsigned half = 0; half < 2; half++) a[half][k] = __shfl_sync(0xffffffffu, acc[column / 8][2 * half + column % 2], owner);
    }
  }

  static __device__ __forceinline__ void multiply(Element (&acc)[4], const A& a, const Element (&b)[2][mmaK]) {
#pragma unroll
    for (unsigned k = 0; k < mmaK; k++) {
#pragma unroll
      for (unsigned e = 0; e < 4; e++) acc[e] = multiplyAdd(a[e / 2][k], b[e % 2][k], acc[e]);
    }
  }

 private:
  static __device__ __forceinline__ float multiplyAdd(float a, float b, float c) { return fmaf(a, b, c); }
  static __device__ __forceinline__ double multiplyAdd(double a, double b, double c) { return fma(a, b, c); }

  template <unsigned count>
  static __device__ __forceinline__ void load(Element (&to)[count], const Element* from) {
    struct alignas(sizeof(Element) * count) Elements {
      Element element[count];
    };
    const Elements read = *reinterpret_cast<const Elements*>(from);
#pragma unroll
    for (unsigned i = 0; i < count; i++) to[i] = read.element[i];
  }
};`;

/** The C++ type in which scores are computed, and of numbers per row in memory. */
export function realOf(element: FlashElement): "float" | "double" {
  return element === "f64" ? "double" : "float";
}

/** Bytes of a row's statistics and delta in shared memory. */
export function factBytesOf(element: FlashElement): number {
  return element === "f64" ? 16 : 8;
}

/** C++: `Real`, in which scores are computed, and its functions. */
function declareReal(element: FlashElement): string {
  const isDouble = element === "f64";
  const power = isScalar(element) ? { f64: "exp2(x)", f32: "exp2f(x)" }[element] : "ex2Approx(x)";
  return `
typedef ${realOf(element)} Real;
static constexpr Real log2E = ${isDouble ? Math.LOG2E : "1.44269504f"};
static __device__ __forceinline__ Real power2(Real x) { return ${power}; }
static __device__ __forceinline__ Real infinity() {
  return ${isDouble ? "__longlong_as_double(0x7ff0000000000000ll)" : "__uint_as_float(0x7f800000u)"};
}
// log2 of the sum of a row's exponentials, and the row's delta: one load.
struct alignas(2 * sizeof(Real)) RowStatistics {
  Real statistics, delta;
};`;
}

/** C++: `Element`, `mmaK`, `Real`, `Fragments` and the PTX wrappers that they call. */
export function declareFragments(element: FlashElement): string {
  const { mmaK, type } = flashElements[element];
  return `
${onlyOnDevice([...(isScalar(element) ? [] : mmaIntrinsics(element)), cpAsyncIntrinsics].join("\n"))}
typedef ${type} Element;
${isScalar(element) ? "" : `typedef ${mmaElements[element].type} Tag;`}
static constexpr unsigned mmaK = ${mmaK};
${declareReal(element)}
${isScalar(element) ? scalarFragments : element === "tf32" ? tf32Fragments : halfFragments}`;
}

function mmaIntrinsics(element: MmaElement): readonly string[] {
  const ptx =
    element === "tf32"
      ? [mmaSyncTf32, ldmatrixX4, cvtRnaTf32]
      : [mmaSyncHalf(element), ldmatrixHalf, packHalves(element)];
  return [elementTags, ...ptx, ex2Approx];
}
