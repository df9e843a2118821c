/** mma.sync and ldmatrix: tensor core instructions of a single warp. */

/** m16n8k8 in TF32: A row-major, B column-major, f32 accumulators. The tensor core ignores the low 13 bits of each float. */
export const mmaSyncTf32 = `// acc[16, 8] += a[16, 8] · b[8, 8], distributed over a warp.
static __device__ __forceinline__ void mmaSync(float (&acc)[4], const float (&a)[4], const float (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
        "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
}`;

/** m16n8k8 in f64 (DMMA). */
export const mmaSyncF64 = `// acc[16, 8] += a[16, 8] · b[8, 8], distributed over a warp.
static __device__ __forceinline__ void mmaSync(double (&acc)[4], const double (&a)[4], const double (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+d"(acc[0]), "+d"(acc[1]), "+d"(acc[2]), "+d"(acc[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}`;

/** ldmatrix moves 16-byte rows of 16-bit elements; here each 32-bit register of a lane is one float of a row of four. */
export const ldmatrixX4 = `// Four 8 × 4 matrices of floats. Lanes 8 i to 8 i + 7 hold the row addresses of matrix i; a lane gets one float of each.
template <class Float>
static __device__ __forceinline__ void ldmatrixX4(Float (&fragment)[4], const Float* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=f"(fragment[0]), "=f"(fragment[1]), "=f"(fragment[2]), "=f"(fragment[3])
               : "r"((unsigned)__cvta_generic_to_shared(row)));
}`;

/** cvt.rna.tf32. */
const cvtRna = (statement: "asm" | "asm volatile"): string => `template <class Float>
static __device__ __forceinline__ Float cvtRnaTf32(Float value) {
  unsigned bits;
  ${statement}("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return __uint_as_float(bits);
}`;

/** Volatile, so that the float has arrived in its register before the instructions after it. */
export const cvtRnaTf32 = cvtRna("asm volatile");
/** The compiler may move it between other instructions. */
export const cvtRnaTf32Movable = cvtRna("asm");

/** m16n8k16 with 16-bit elements, two in a register. */
export function mmaSyncHalf(element: "bf16" | "f16"): string {
  return `// acc[16, 8] += a[16, 16] · b[16, 8], distributed over a warp.
template <class Element>
static __device__ __forceinline__ void mmaSync(float (&acc)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.${element}.${element}.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}`;
}

/** Four 8 × 8 matrices of 16-bit elements, as they are in shared memory or transposed. */
export const ldmatrixHalf = `// Lanes 8 i to 8 i + 7 hold the row addresses of matrix i; a lane gets two elements of each.
template <bool isTransposed>
static __device__ __forceinline__ void ldmatrixX4(unsigned (&fragment)[4], const unsigned short* row) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(row);
  if constexpr (isTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3]) : "r"(address));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3]) : "r"(address));
  }
}`;

/** The rounding of two floats to 16-bit elements in one register, the first in the lower half. */
export function packHalves(element: "bf16" | "f16"): string {
  return `template <class Element>
static __device__ __forceinline__ unsigned packHalves(float low, float high) {
  unsigned packed;
  asm("cvt.rn.${element}x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}`;
}

/** Four 8 × 8 matrices as a `Vec`, which is declared before: a lane has two elements of each, as of accumulators. */
export const ldmatrixVec = `// Lanes 8 i to 8 i + 7 hold the row addresses of matrix i.
static __device__ __forceinline__ void ldmatrixVec(Vec<unsigned short, 8>& fragment, const unsigned char* row) {
  unsigned short(&e)[8] = fragment.element;
  asm volatile("{\\n.reg .b32 a, b, c, d;\\nldmatrix.sync.aligned.m8n8.x4.shared.b16 {a, b, c, d}, [%8];\\n"
               "mov.b32 {%0, %1}, a;\\nmov.b32 {%2, %3}, b;\\nmov.b32 {%4, %5}, c;\\nmov.b32 {%6, %7}, d;\\n}"
               : "=h"(e[0]), "=h"(e[1]), "=h"(e[2]), "=h"(e[3]), "=h"(e[4]), "=h"(e[5]), "=h"(e[6]), "=h"(e[7])
               : "r"((unsigned)__cvta_generic_to_shared(row)) : "memory");
}`;

/** Stores them. */
export const stmatrixVec = `static __device__ __forceinline__ void stmatrixVec(unsigned char* row, const Vec<unsigned short, 8>& fragment) {
  const unsigned short(&e)[8] = fragment.element;
  asm volatile("{\\n.reg .b32 a, b, c, d;\\n"
               "mov.b32 a, {%1, %2};\\nmov.b32 b, {%3, %4};\\nmov.b32 c, {%5, %6};\\nmov.b32 d, {%7, %8};\\n"
               "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {a, b, c, d};\\n}"
               ::"r"((unsigned)__cvta_generic_to_shared(row)), "h"(e[0]), "h"(e[1]), "h"(e[2]), "h"(e[3]), "h"(e[4]), "h"(e[5]),
               "h"(e[6]), "h"(e[7]) : "memory");
}`;
