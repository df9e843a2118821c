/**
 * Arithmetic of the loop IR for which CUDA C++ has no single function, with the semantics of WebAssembly: min and max return NaN if either
 * operand is NaN and order −0 before 0, integers wrap, and float-to-int conversion truncates and saturates.
 */

import { narrowToFloat8, widenFloat8 } from "./float8.js";
import { device, type Intrinsic } from "./intrinsic.js";

/**
 * f32 on Ampere and later: one instruction, with the same results. Otherwise equal operands may be zeros of different sign: min ORs their
 * bits, so that either −0 wins; max ANDs them.
 */
function floatMinMax(op: "min" | "max", type: "f32" | "f64"): Intrinsic {
  const real = type === "f32" ? "float" : "double";
  const [fromBits, bits] =
    type === "f32"
      ? ["__uint_as_float", "__float_as_uint"]
      : ["__longlong_as_double", "__double_as_longlong"];
  const portable = `  if (a != a || b != b) return a + b;
  if (a == b) return ${fromBits}(${bits}(a) ${op === "min" ? "|" : "&"} ${bits}(b));
  return a ${op === "min" ? "<" : ">"} b ? a : b;`;
  const ofAmpere = `#if __CUDA_ARCH__ >= 800
  float result;
  asm("${op}.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
#else
${portable}
#endif`;
  return {
    code: `${device} ${real} ${op}_${type}(${real} a, ${real} b) {
${type === "f32" ? ofAmpere : portable}
}`,
  };
}

function integerMinMax(op: "min" | "max", type: "i32" | "i64"): Intrinsic {
  const integer = type === "i32" ? "int" : "long long";
  return {
    code: `${device} ${integer} ${op}_${type}(${integer} a, ${integer} b) { return a ${op === "min" ? "<" : ">"} b ? a : b; }`,
  };
}

function truncate(type: "f32" | "f64"): Intrinsic {
  const [real, suffix] = type === "f32" ? ["float", "f"] : ["double", ""];
  return {
    code: `${device} int truncate_${type}(${real} x) {
  if (x != x) return 0;
  if (x >= 2147483648.0${suffix}) return 2147483647;
  return x < -2147483648.0${suffix} ? -2147483647 - 1 : (int)x;
}`,
  };
}

function truncateTo64Bits(type: "f32" | "f64"): Intrinsic {
  const [real, suffix] = type === "f32" ? ["float", "f"] : ["double", ""];
  return {
    code: `${device} long long truncate64_${type}(${real} x) {
  if (x != x) return 0;
  if (x >= 9223372036854775808.0${suffix}) return 9223372036854775807ll;
  return x < -9223372036854775808.0${suffix} ? -9223372036854775807ll - 1 : (long long)x;
}`,
  };
}

export const mathIntrinsics = {
  min_f32: floatMinMax("min", "f32"),
  max_f32: floatMinMax("max", "f32"),
  min_f64: floatMinMax("min", "f64"),
  max_f64: floatMinMax("max", "f64"),
  min_i32: integerMinMax("min", "i32"),
  max_i32: integerMinMax("max", "i32"),
  min_i64: integerMinMax("min", "i64"),
  max_i64: integerMinMax("max", "i64"),
  abs_i64: {
    code: `${device} long long abs_i64(long long a) { return a < 0 ? (long long)(0ull - (unsigned long long)a) : a; }`,
  },
  abs_i32: { code: `${device} int abs_i32(int a) { return a < 0 ? (int)(0u - (unsigned)a) : a; }` },
  truncate_f32: truncate("f32"),
  truncate_f64: truncate("f64"),
  truncate64_f32: truncateTo64Bits("f32"),
  truncate64_f64: truncateTo64Bits("f64"),

  /** With e = exp(−|x|) and t = e / (1 + e): 1 − t for x ≥ 0 and e (1 − t) for x < 0. Nothing overflows. */
  sigmoid_f32: {
    code: `${device} float sigmoid_f32(float x) {
  const float e = expf(-fabsf(x));
  const float t = e / (e + 1.0f);
  const float b = x < 0.0f ? e : 1.0f;
  return b - b * t;
}`,
  },
  sigmoid_f64: { code: `${device} double sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }` },
  softplus_f32: {
    code: `${device} float softplus_f32(float x) {
  return (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
}`,
  },
  softplus_f64: {
    code: `${device} double softplus_f64(double x) {
  return (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x)));
}`,
  },
  /** Two correctly rounded operations: the same bits as on the CPU. */
  rsqrt_f32: { code: `${device} float rsqrt_f32(float x) { return 1.0f / sqrtf(x); }` },
  rsqrt_f64: { code: `${device} double rsqrt_f64(double x) { return 1.0 / sqrt(x); }` },
  /** Adding half of the last kept bit carries exactly when rounding goes up. */
  roundTf32: {
    code: `${device} float roundTf32(float value) {
  unsigned bits;
#ifdef HOLDFAST_EMULATOR
  bits = __float_as_uint(value);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & 0xffffe000u;
#else
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
#endif
  return __uint_as_float(bits);
}`,
  },

  widen_i8: { code: `${device} int widen_i8(signed char value) { return value; }` },
  narrow_i8: { code: `${device} signed char narrow_i8(int value) { return (signed char)value; }` },
  widen_u8: { code: `${device} int widen_u8(unsigned char value) { return value; }` },
  narrow_u8: { code: `${device} unsigned char narrow_u8(int value) { return (unsigned char)value; }` },
  widen_bf16: {
    code: `${device} float widen_bf16(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }`,
  },
  /** Element k of a vector, widened from the register that it shares with a neighbour: one instruction. */
  widenElement_bf16: {
    needs: ["Vec"],
    code: `template <int N>
${device} float widenElement_bf16(const Vec<unsigned short, N>& vec, unsigned k) {
#ifdef HOLDFAST_EMULATOR
  return __uint_as_float((unsigned)vec.element[k] << 16);
#else
  unsigned pair;
  asm("mov.b32 %0, {%1, %2};" : "=r"(pair) : "h"(vec.element[k & ~1u]), "h"(vec.element[k | 1u]));
  return __uint_as_float(k % 2u == 0u ? pair << 16 : pair & 0xffff0000u);
#endif
}`,
  },
  /** The emulated form rounds to nearest even: bits + 0x7fff + the last kept bit carries exactly when rounding goes up. cvt.rn maps every NaN to 0x7fff. */
  narrow_bf16: {
    code: `${device} unsigned short narrow_bf16(float value) {
#ifdef HOLDFAST_EMULATOR
  const unsigned bits = __float_as_uint(value);
  return value != value ? 0x7fffu : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
#else
  unsigned short rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(value));
  return rounded;
#endif
}`,
  },
  /** Rounds a vector. The instruction for two elements leaves them in one register, where `widenElement_bf16` finds them. */
  narrowVec_bf16: {
    needs: ["Vec"],
    code: `template <int N>
${device} void narrowVec_bf16(const float (&values)[N], Vec<unsigned short, N>& vec) {
#pragma unroll
  for (int k = 0; k < N; k += 2) {
#ifdef HOLDFAST_EMULATOR
    for (int e = k; e < k + 2; e++) {
      const unsigned bits = __float_as_uint(values[e]);
      vec.element[e] = values[e] != values[e] ? 0x7fffu : (unsigned short)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
    }
#else
    asm("{\\n.reg .b32 pair;\\ncvt.rn.bf16x2.f32 pair, %3, %2;\\nmov.b32 {%0, %1}, pair;\\n}"
        : "=h"(vec.element[k]), "=h"(vec.element[k + 1]) : "f"(values[k]), "f"(values[k + 1]));
#endif
  }
}`,
  },
  ...{ widen_f8e4m3: widenFloat8("f8e4m3"), narrow_f8e4m3: narrowToFloat8("f8e4m3") },
  ...{ widen_f8e5m2: widenFloat8("f8e5m2"), narrow_f8e5m2: narrowToFloat8("f8e5m2") },
  /** Shifts the bits to their positions and scales by 2^112, which is exact for subnormals too; infinity and NaN get their exponent. */
  widen_f16: {
    code: `${device} float widen_f16(unsigned short bits) {
  const unsigned magnitude = bits & 0x7fffu;
  const unsigned scaled = __float_as_uint(__uint_as_float(magnitude << 13) * 5192296858534827628530496329220096.0f);
  return __uint_as_float(scaled | (magnitude > 0x7bffu ? 0x7f800000u : 0u) | (bits & 0x8000u) << 16);
}`,
  },
  /**
   * Normal results: rebias the exponent by −112 and round to nearest even at bit 13. Below 2^−14, adding 0.5 leaves the result in the low
   * bits of the significand, rounded by the adder. From 2^16 on the result is infinity, or NaN for NaN.
   */
  narrow_f16: {
    code: `${device} unsigned short narrow_f16(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7fffffffu;
  unsigned half = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13;
  if (magnitude < 0x38800000u) half = __float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000u;
  if (magnitude > 0x477fffffu) half = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return (unsigned short)(half | (bits >> 16 & 0x8000u));
}`,
  },
} satisfies Record<string, Intrinsic>;
