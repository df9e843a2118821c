/** The element types of the attention kernels in CUDA C++: scalars, and vectors of 16 bytes. */

import { type Dtype, dtypes } from "../../../ir/index.js";
import { elementTypes } from "../../codegen/cuda/element-types.js";
import { preludeOf } from "../../codegen/cuda/prelude.js";
import type { GemmDtype } from "../../gemm/cpu/element.js";
import type { HalfInputs } from "../problem.js";

const vectorBytes = 16;

/** Elements of a vector. */
export function lanesOf(dtype: GemmDtype): number {
  return vectorBytes / dtypes[dtype].bytes;
}

const types = {
  f32: {
    scalar: "float",
    vector: "float4",
    components: ["x", "y", "z", "w"],
    multiplyAdd: "fmaf",
    exp: "expf",
    negativeInfinity: "__uint_as_float(0xff800000u)",
  },
  f64: {
    scalar: "double",
    vector: "double2",
    components: ["x", "y"],
    multiplyAdd: "fma",
    exp: "exp",
    negativeInfinity: "__longlong_as_double((long long)0xfff0000000000000ull)",
  },
} as const;

/** The C++ type of an element. */
export function scalarOf(dtype: GemmDtype): string {
  return types[dtype].scalar;
}

const functions = {
  /** e^x */
  exponential: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar exponential(Scalar x) { return ${types[dtype].exp}(x); }`,
  /** The maximum; the first operand if the second is NaN. */
  maximum: () => `
static __device__ __forceinline__ Scalar maximum(Scalar a, Scalar b) { return a < b ? b : a; }`,
  /** −Infinity */
  negativeInfinity: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar negativeInfinity() { return ${types[dtype].negativeInfinity}; }`,
  multiplyAdd: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar multiplyAdd(Scalar a, Scalar b, Scalar c) { return ${types[dtype].multiplyAdd}(a, b, c); }`,
  /** `sum + Σ a[i] · b[i]` */
  dot: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar dot(Vector a, Vector b, Scalar sum) {
${types[dtype].components.map((component) => `  sum = multiplyAdd(a.${component}, b.${component}, sum);`).join("\n")}
  return sum;
}`,
  /** `sum[i] += weight · vector[i]` */
  axpy: (dtype: GemmDtype) => `
static __device__ __forceinline__ void axpy(Vector& sum, Scalar weight, Vector vector) {
${types[dtype].components.map((component) => `  sum.${component} = multiplyAdd(weight, vector.${component}, sum.${component});`).join("\n")}
}`,
  /** The lane at an index, which is a constant after loops are unrolled. */
  laneOf: (dtype: GemmDtype) => `
static __device__ __forceinline__ Scalar laneOf(Vector a, unsigned lane) {
  return ${types[dtype].components.map((component, lane, { length }) => (lane + 1 < length ? `lane == ${lane} ? a.${component} : ` : `a.${component}`)).join("")};
}`,
  zero: (dtype: GemmDtype) => `
static __device__ __forceinline__ Vector zero() { return {${types[dtype].components.map(() => "0").join(", ")}}; }`,
} as const;

/** The compute dtype of a kernel, the dtype of its results, and its 16-bit inputs. */
export interface Elements {
  readonly dtype: GemmDtype;
  readonly resultDtype: Dtype;
  readonly halves: HalfInputs;
}

/** A kernel's name with its compute dtype, and its input and result dtypes if they differ. */
export function nameOf(kernel: string, { dtype, resultDtype, halves }: Elements): string {
  const read = halves.dtype ? `${kernel}.${dtype} of ${halves.dtype}` : `${kernel}.${dtype}`;
  return resultDtype === dtype ? read : `${read} → ${resultDtype}`;
}

/** The dtypes as part of a cache key. */
export function dtypeKey({ dtype, resultDtype, halves }: Elements): string {
  return `${dtype} ${resultDtype} ${halves.dtype ?? ""} ${halves.names}`;
}

/** The C++ element types of results and of 16-bit inputs; all other pointers are to `Scalar`. */
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
 * Conversions between memory and compute dtypes. `Stored` and `StoredVector` are results in memory; `Rounding::of` converts to them.
 * `Half` and `HalfVector` are 16-bit inputs, the latter with two in a word; `Widening::of` converts from them. They are static members,
 * because compilers do not warn about unused members.
 */
export function declareMemory({ dtype, resultDtype, halves }: Elements): string {
  const { type, narrow } = elementTypes[resultDtype];
  const { widen, type: half } = elementTypes[halves.dtype ?? dtype];
  const each = types[dtype].components.map((component) => `of(vector.${component})`).join(", ");
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

/** Declares `Scalar`, `Vector`, `lanes`, and the functions that a kernel needs. */
export function declareElement(dtype: GemmDtype, ...names: readonly (keyof typeof functions)[]): string {
  const { scalar, vector } = types[dtype];
  return `
typedef ${scalar} Scalar;
typedef ${vector} Vector;
static constexpr unsigned lanes = ${lanesOf(dtype)};
${names.map((name) => functions[name](dtype).trim()).join("\n")}`;
}
