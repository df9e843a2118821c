/**
 * Type promotion by PyTorch's rules: booleans promote to integers and integers to floats; within a kind the wider dtype wins; f16 with
 * bf16 gives f32, and i8 with u8 gives i32, because there is no i16.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, type DtypeKind, dtypes } from "./dtypes.js";
import { type Float8Dtype, isFloat8 } from "./float8.js";

/** The dtype with the higher rank wins; bf16 and f16 have the same rank, and so have i8 and u8. */
const ranks: Readonly<Record<Exclude<Dtype, Float8Dtype>, number>> = {
  bool: 0,
  u8: 1,
  i8: 1,
  i32: 2,
  i64: 3,
  bf16: 4,
  f16: 4,
  f32: 5,
  f64: 6,
};

const kindRanks = { boolean: 0, integer: 1, float: 2, storage: 3 } as const satisfies Record<
  DtypeKind,
  number
>;

/** The dtype of a scalar whose kind is above the tensor's. PyTorch's integer is i64; here it is i32, in which kernels are faster. */
const scalarDtypes = { boolean: "bool", integer: "i32", float: "f32" } as const satisfies Partial<
  Record<DtypeKind, Dtype>
>;

/**
 * The result dtype of two tensors.
 *
 * @example
 * ```ts
 * import { promote } from "holdfast";
 * console.log(promote("u8", "i32"), promote("u8", "i8")); // → i32 i32
 * console.log(promote("i32", "i64")); // → i64
 * console.log(promote("i32", "bf16")); // → bf16
 * console.log(promote("f16", "bf16")); // → f32
 * ```
 */
export function promote(a: Dtype, b: Dtype): Dtype {
  if (a === b) return a;
  if (isFloat8(a) || isFloat8(b)) throw noPromotion(a, b);
  if (ranks[a] === ranks[b]) return dtypes[a].kind === "float" ? "f32" : "i32";
  return ranks[a] > ranks[b] ? a : b;
}

/**
 * The result dtype of a tensor and a bare number or boolean. The scalar counts only if its kind is above the
 * tensor's: 0.5 makes an i32 tensor f32, and leaves a bf16 tensor bf16.
 *
 * @example
 * ```ts
 * import { promoteWithScalar } from "holdfast";
 * console.log(promoteWithScalar("i32", "float")); // → f32
 * console.log(promoteWithScalar("bf16", "float")); // → bf16
 * console.log(promoteWithScalar("u8", "integer")); // → u8
 * ```
 */
export function promoteWithScalar(tensor: Dtype, scalar: Exclude<DtypeKind, "storage">): Dtype {
  return kindRanks[scalar] > kindRanks[dtypes[tensor].kind] ? scalarDtypes[scalar] : tensor;
}

function noPromotion(a: Dtype, b: Dtype): HoldfastError {
  return new HoldfastError(
    "BAD_DTYPE",
    `${a} and ${b} have no common dtype: 8-bit floats only store numbers. Convert first, for example with to("bf16").`,
    { numbers: { a, b } },
  );
}
