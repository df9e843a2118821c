/**
 * Conversion of the 8-bit floats to f32 and back, on the host. Narrowing rounds to nearest even. e5m2 has infinities, like f16. e4m3 has none:
 * numbers beyond 464, which would round above the largest one, 448, become NaN, as in PyTorch and in the OCP standard (E4M3FN).
 */

import type { Dtype } from "./dtypes.js";
import { roundedShift } from "./half.js";

export type Float8Dtype = Extract<Dtype, "f8e4m3" | "f8e5m2">;

/** An 8-bit float: sign, exponent, mantissa. Bits of a magnitude are those without the sign. */
export interface Float8Format {
  readonly mantissaBits: number;
  /** Of the exponent. */
  readonly bias: number;
  /** The largest bits of a magnitude that is finite. */
  readonly maxFinite: number;
  /** Magnitudes with higher f32 bits do not round to a finite number. */
  readonly lastFiniteF32: number;
  /** The bits of such a number, if it is not NaN. */
  readonly overflow: number;
  /** The f32 bits that infinity and NaN have besides those of their mantissa. */
  readonly specialF32: number;
}

export const float8Formats: Readonly<Record<Float8Dtype, Float8Format>> = {
  f8e4m3: {
    ...{ mantissaBits: 3, bias: 7, maxFinite: 0x7e, overflow: 0x7f },
    ...{ lastFiniteF32: 0x43e8_0000, specialF32: 0x7fc0_0000 },
  },
  f8e5m2: {
    ...{ mantissaBits: 2, bias: 15, maxFinite: 0x7b, overflow: 0x7c },
    // Between 61440 and 2¹⁶ the rounding carries into infinity by itself.
    ...{ lastFiniteF32: 0x477f_ffff, specialF32: 0x7f80_0000 },
  },
};

/** The bits of NaN, without a sign. */
export const float8Nan = 0x7f;

export function isFloat8(dtype: Dtype): dtype is Float8Dtype {
  return dtype === "f8e4m3" || dtype === "f8e5m2";
}

/** Widens the bits of 8-bit floats to f32. */
export function widenFloat8(dtype: Float8Dtype, bytes: Uint8Array): Float32Array<ArrayBuffer> {
  const table = new Float32Array(256);
  const bits = new Uint32Array(table.buffer);
  for (let byte = 0; byte < 256; byte++) bits[byte] = toF32Bits(float8Formats[dtype], byte);
  const values = new Float32Array(bytes.length);
  const results = new Uint32Array(values.buffer);
  for (let index = 0; index < bytes.length; index++) results[index] = bits[bytes[index] ?? 0] ?? 0;
  return values;
}

/** Narrows f32 to the bits of 8-bit floats. */
export function narrowToFloat8(dtype: Float8Dtype, values: Float32Array): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(values.length);
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  const format = float8Formats[dtype];
  for (let index = 0; index < bits.length; index++) bytes[index] = fromF32Bits(format, bits[index] ?? 0);
  return bytes;
}

function toF32Bits({ mantissaBits, bias, maxFinite, specialF32 }: Float8Format, byte: number): number {
  const sign = (byte & 0x80) << 24;
  const magnitude = byte & 0x7f;
  const shift = 23 - mantissaBits;
  if (magnitude > maxFinite) return sign | specialF32 | (magnitude << shift);
  if (magnitude >> mantissaBits > 0) return sign | ((magnitude << shift) + ((127 - bias) << 23));
  if (magnitude === 0) return sign;
  // Subnormal, normal in f32: the leading one becomes the implicit bit.
  const leading = Math.clz32(magnitude) - (31 - mantissaBits);
  return sign | ((128 - bias - leading) << 23) | ((magnitude << (shift + leading)) & 0x7f_ffff);
}

function fromF32Bits({ mantissaBits, bias, lastFiniteF32, overflow }: Float8Format, bits: number): number {
  const sign = (bits >>> 24) & 0x80;
  const magnitude = bits & 0x7fff_ffff;
  if (magnitude > 0x7f80_0000) return sign | float8Nan;
  if (magnitude > lastFiniteF32) return sign | overflow;
  const exponent = magnitude >>> 23;
  const shift = 23 - mantissaBits;
  if (exponent >= 128 - bias) return sign | roundedShift(magnitude - ((127 - bias) << 23), shift);
  // Subnormal. Far below the smallest number everything is nearer to zero.
  const wideShift = shift + 128 - bias - exponent;
  if (wideShift > 24) return sign;
  return sign | roundedShift((magnitude & 0x7f_ffff) | 0x80_0000, wideShift);
}
