/**
 * Type promotion by PyTorch's rules: booleans promote to integers and integers to floats; within a kind the wider dtype wins; f16 with
 * bf16 gives f32, and i8 with u8 gives i32, because there is no i16.
 */

import { type Dtype, type DtypeKind, dtypes } from "./dtypes.js";

/** The dtype with the higher rank wins; bf16 and f16 have the same rank, and so have i8 and u8. */
const ranks = {
  bool: 0,
  u8: 1,
  i8: 1,
  i32: 2,
  i64: 3,
  bf16: 4,
  f16: 4,
  f32: 5,
  f64: 6,
} as const satisfies Record<Dtype, number>;

const kindRanks = { boolean: 0, integer: 1, float: 2 } as const satisfies Record<DtypeKind, number>;

/** The dtype of a scalar whose kind is above the tensor's. PyTorch's integer is i64; here it is i32, in which kernels are faster. */
const scalarDtypes = { boolean: "bool", integer: "i32", float: "f32" } as const satisfies Record<
  DtypeKind,
  Dtype
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
export function promoteWithScalar(tensor: Dtype, scalar: DtypeKind): Dtype {
  return kindRanks[scalar] > kindRanks[dtypes[tensor].kind] ? scalarDtypes[scalar] : tensor;
}
