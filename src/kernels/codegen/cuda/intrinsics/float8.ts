/** Conversions of 8-bit floats. They use integers only, so they have the CPU's bits on every GPU. */

import { type Float8Dtype, float8Formats, float8Nan } from "../../../../ir/index.js";
import { device, type Intrinsic } from "./intrinsic.js";

const hex = (bits: number): string => `0x${(bits >>> 0).toString(16)}u`;

/** A normal number gets another exponent; a subnormal one is a whole number of units. */
export function widenFloat8(dtype: Float8Dtype): Intrinsic {
  const { mantissaBits, bias, maxFinite, specialF32 } = float8Formats[dtype];
  const unit = hex((128 - bias - mantissaBits) << 23);
  return {
    code: `${device} float widen_${dtype}(unsigned char bits) {
  const unsigned magnitude = bits & 0x7fu;
  unsigned wide = (magnitude << ${23 - mantissaBits}) + ${hex((127 - bias) << 23)};
  if (magnitude < ${hex(1 << mantissaBits)}) wide = __float_as_uint((float)magnitude * __uint_as_float(${unit}));
  if (magnitude > ${hex(maxFinite)}) wide = ${hex(specialF32)} | magnitude << ${23 - mantissaBits};
  return __uint_as_float(wide | (bits & 0x80u) << 24);
}`,
  };
}

/** Rounds to nearest even. */
export function narrowToFloat8(dtype: Float8Dtype): Intrinsic {
  const { mantissaBits, bias, lastFiniteF32, overflow } = float8Formats[dtype];
  const shift = 23 - mantissaBits;
  const magic = hex((151 - bias - mantissaBits) << 23);
  return {
    code: `${device} unsigned char narrow_${dtype}(float value) {
  const unsigned bits = __float_as_uint(value);
  const unsigned magnitude = bits & 0x7fffffffu;
  unsigned narrow = (magnitude - ${hex((127 - bias) << 23)} + ${hex(2 ** (shift - 1) - 1)} + (magnitude >> ${shift} & 1u)) >> ${shift};
  if (magnitude < ${hex((128 - bias) << 23)})
    narrow = __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(${magic})) - ${magic};
  if (magnitude > ${hex(lastFiniteF32)}) narrow = magnitude > 0x7f800000u ? ${hex(float8Nan)} : ${hex(overflow)};
  return (unsigned char)(narrow | (bits >> 24 & 0x80u));
}`,
  };
}
