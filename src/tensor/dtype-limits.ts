/** The limits of dtypes: finfo and iinfo. */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";

/** The limits of a float dtype. */
export interface FloatLimits {
  readonly bits: number;
  /** The distance from 1 to the next larger number. */
  readonly eps: number;
  readonly min: number;
  readonly max: number;
  /** The smallest positive number with all of its digits. */
  readonly tiny: number;
}

/** The limits of an integer dtype. */
export interface IntegerLimits {
  readonly bits: number;
  readonly min: number | bigint;
  readonly max: number | bigint;
}

/** The bits of the fraction, the smallest exponent, and the largest number. */
const floats: Partial<Record<Dtype, readonly [digits: number, minExponent: number, max: number]>> = {
  f64: [52, -1022, Number.MAX_VALUE],
  f32: [23, -126, (2 - 2 ** -23) * 2 ** 127],
  bf16: [7, -126, (2 - 2 ** -7) * 2 ** 127],
  f16: [10, -14, 65_504],
  f8e4m3: [3, -6, 448],
  f8e5m2: [2, -14, 57_344],
};

/**
 * The limits of a float dtype.
 *
 * @example
 * ```ts
 * import { finfo } from "holdfast";
 * console.log(finfo("f16").max, finfo("f32").eps); // → 65504 1.1920928955078125e-7
 * ```
 */
export function finfo(dtype: Dtype): FloatLimits {
  const row = floats[dtype];
  if (!row) throw new HoldfastError("BAD_DTYPE", `finfo: ${dtype} is not a float. Use iinfo for integers.`);
  const [digits, minExponent, max] = row;
  return { bits: 8 * dtypes[dtype].bytes, eps: 2 ** -digits, min: -max, max, tiny: 2 ** minExponent };
}

/**
 * The limits of an integer dtype; bigints for i64.
 *
 * @example
 * ```ts
 * import { iinfo } from "holdfast";
 * console.log(iinfo("i8"), iinfo("i64").max); // → { bits: 8, min: -128, max: 127 } 9223372036854775807n
 * ```
 */
export function iinfo(dtype: Dtype): IntegerLimits {
  const bits = 8 * (dtypes[dtype]?.bytes ?? 0);
  if (dtypes[dtype]?.kind !== "integer")
    throw new HoldfastError("BAD_DTYPE", `iinfo: ${dtype} is not an integer dtype. Use finfo for floats.`);
  if (dtype === "i64") return { bits, min: -(2n ** 63n), max: 2n ** 63n - 1n };
  return dtype === "u8"
    ? { bits, min: 0, max: 255 }
    : { bits, min: -(2 ** (bits - 1)), max: 2 ** (bits - 1) - 1 };
}
