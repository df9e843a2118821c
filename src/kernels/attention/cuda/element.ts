/** The element types of attention as CUDA C++ knows them: one by one, and as vectors of 16 bytes. */

import { type Dtype, dtypes } from "../../../ir/index.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { GemmDtype } from "../../gemm/cpu/element.js";
import type { HalfInputs } from "../problem.js";

const vectorBytes = 16;

/** How many elements a vector holds. */
export function lanesOf(dtype: GemmDtype): number {
  return vectorBytes / dtypes[dtype].bytes;
}

const types = {
  f32: {
    scalar: "float",
    vector: "float4",
    parts: ["x", "y", "z", "w"],
    fused: "fmaf",
    exp: "expf",
    lowest: "__uint_as_float(0xff800000u)",
  },
  f64: {
    scalar: "double",
    vector: "double2",
    parts: ["x", "y"],
    fused: "fma",
    exp: "exp",
    lowest: "__longlong_as_double((long long)0xfff0000000000000ull)",
  },
} as const;

/** What a C++ pointer to elements points to. */
export function scalarOf(dtype: GemmDtype): string {
  return types[dtype].scalar;
}

const functions = {
  /** e^x */
  power: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar power(Scalar x) { return ${types[dtype].exp}(x); }`,
  /** The larger of two, and the first where the second is NaN. */
  larger: () => `
static __device__ __forceinline__ Scalar larger(Scalar a, Scalar b) { return a < b ? b : a; }`,
  /** −Infinity */
  lowest: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar lowest() { return ${types[dtype].lowest}; }`,
  fused: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar fused(Scalar a, Scalar b, Scalar c) { return ${types[dtype].fused}(a, b, c); }`,
  /** `sum + Σ a[i] · b[i]` */
  dot: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar dot(Vector a, Vector b, Scalar sum) {
${types[dtype].parts.map((part) => `  sum = fused(a.${part}, b.${part}, sum);`).join("\n")}
  return sum;
}`,
  /** `sum[i] += weight · from[i]` */
  addWeighted: (dtype: GemmDtype) => `
static __device__ __forceinline__ void addWeighted(Vector& sum, Scalar weight, Vector from) {
${types[dtype].parts.map((part) => `  sum.${part} = fused(weight, from.${part}, sum.${part});`).join("\n")}
}`,
  /** The element at a place; the place should be a constant, once loops are unrolled. */
  partOf: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar partOf(Vector a, unsigned place) {
  return ${types[dtype].parts.map((part, place, { length }) => (place + 1 < length ? `place == ${place} ? a.${part} : ` : `a.${part}`)).join("")};
}`,
  zero: (dtype: GemmDtype) => `
static __device__ __forceinline__ Vector zero() { return {${types[dtype].parts.map(() => "0").join(", ")}}; }`,
} as const;

/** What a kernel computes in, what its results are stored as, and which of its inputs are half floats. */
export interface Elements {
  readonly dtype: GemmDtype;
  readonly resultDtype: Dtype;
  readonly halves: HalfInputs;
}

/** A kernel's name, with what it computes in, and what it reads and stores where that is something else. */
export function nameOf(kernel: string, { dtype, resultDtype, halves }: Elements): string {
  const read = halves.dtype ? `${kernel}.${dtype} of ${halves.dtype}` : `${kernel}.${dtype}`;
  return resultDtype === dtype ? read : `${read} → ${resultDtype}`;
}

/** Tells apart the kernels that differ in nothing else. */
export function textOf({ dtype, resultDtype, halves }: Elements): string {
  return `${dtype} ${resultDtype} ${halves.dtype ?? ""} ${halves.names}`;
}

/** What C++ pointers to results and to inputs that are half floats point to; all others point to `Scalar`. */
export function pointersOf(
  { resultDtype, halves }: Elements,
  inputs: readonly string[],
  results: readonly string[],
): Readonly<Record<string, string>> {
  const read = halves.dtype ? elementTypes[halves.dtype].type : "";
  const halfInputs = inputs.filter((name) => halves.names.includes(name));
  return Object.fromEntries([
    ...halfInputs.map((name) => [name, read]),
    ...results.map((name) => [name, elementTypes[resultDtype].type]),
  ]);
}

/**
 * How results are stored: `Stored` is an element of them and `StoredVector` as many as a `Vector` has; `Rounding::of` makes
 * either, rounded where the dtype is another one. `Widening::of` goes the other way, from what was read: `Half` and
 * `HalfVector` are half floats, the latter two to a word, of which each is one instruction away. They are members, because no compiler asks for both to be used.
 */
export function declareMemory({ dtype, resultDtype, halves }: Elements): string {
  const { type, narrow } = elementTypes[resultDtype];
  const { widen, type: half } = elementTypes[halves.dtype ?? dtype];
  const each = types[dtype].parts.map((part) => `of(vector.${part})`).join(", ");
  const eachHalf = ["x", "y"]
    .map((word) => `of((Half)vector.${word}), of((Half)(vector.${word} >> 16))`)
    .join(", ");
  const prelude = new Set([narrow, widen].filter((name) => name !== undefined));
  return `
${preludeOf(prelude).trim()}
typedef ${type} Stored;
typedef ${narrow ? "ushort4" : "Vector"} StoredVector;
struct Rounding {
  static __device__ __forceinline__ Stored of(Scalar value) { return ${narrow ? `${narrow}(value)` : "value"}; }
  static __device__ __forceinline__ StoredVector of(Vector vector) { return ${narrow ? `{${each}}` : "vector"}; }
};
${widen ? `typedef ${half} Half;\ntypedef uint2 HalfVector;` : ""}
struct Widening {
  static __device__ __forceinline__ Scalar of(Scalar value) { return value; }
  static __device__ __forceinline__ Vector of(Vector vector) { return vector; }${
    widen
      ? `
  static __device__ __forceinline__ Scalar of(Half half) { return ${widen}(half); }
  static __device__ __forceinline__ Vector of(HalfVector vector) { return {${eachHalf}}; }`
      : ""
  }
};`.trimStart();
}

/** The names that a kernel's code may use: `Scalar`, `Vector`, `lanes`, and the functions that it asks for. */
export function declareElement(dtype: GemmDtype, ...names: readonly (keyof typeof functions)[]): string {
  const { scalar, vector } = types[dtype];
  return `
typedef ${scalar} Scalar;
typedef ${vector} Vector;
static constexpr unsigned lanes = ${lanesOf(dtype)};
${names.map((name) => functions[name](dtype).trim()).join("\n")}`;
}
