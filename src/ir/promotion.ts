/**
 * Type promotion: in which dtype two operands meet. PyTorch's rules over our dtypes: booleans give way to integers and
 * integers to floats; within a kind the wider wins; of two unlike half floats neither holds the other, so they meet
 * in f32.
 */

import { type Dtype, type DtypeKind, dtypes } from "./dtypes.js";

/** The higher of two dtypes is where they meet. bf16 and f16 stand side by side. */
const heights = {
  bool: 0,
  u8: 1,
  i32: 2,
  bf16: 3,
  f16: 3,
  f32: 4,
  f64: 5,
} as const satisfies Record<Dtype, number>;

const kindHeights = { boolean: 0, integer: 1, float: 2 } as const satisfies Record<DtypeKind, number>;

/** What a scalar brings where its kind is above the tensor's. PyTorch's integer would be i64, which we don't have. */
const scalarDtypes = { boolean: "bool", integer: "i32", float: "f32" } as const satisfies Record<
  DtypeKind,
  Dtype
>;

/**
 * The dtype in which two tensors meet.
 *
 * @example
 * ```ts
 * import { promote } from "holdfast";
 * console.log(promote("u8", "i32")); // → i32
 * console.log(promote("i32", "bf16")); // → bf16
 * console.log(promote("f16", "bf16")); // → f32
 * ```
 */
export function promote(a: Dtype, b: Dtype): Dtype {
  if (a === b) return a;
  if (heights[a] === heights[b]) return "f32";
  return heights[a] > heights[b] ? a : b;
}

/**
 * The dtype in which a tensor meets a bare number or boolean. The scalar counts only where its kind is above the
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
  return kindHeights[scalar] > kindHeights[dtypes[tensor].kind] ? scalarDtypes[scalar] : tensor;
}
