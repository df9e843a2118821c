/** The identity elements of reductions. */

import type { Compute, ReduceOp } from "./kernels.js";

const infinite = { largest: Number.POSITIVE_INFINITY, smallest: Number.NEGATIVE_INFINITY };

/** The largest and the smallest value of a type. Constants of i64 saturate: the largest one is 2⁶³ − 1. */
const limits = {
  f32: infinite,
  f64: infinite,
  i32: { largest: 2 ** 31 - 1, smallest: -(2 ** 31) },
  i64: { largest: 2 ** 63, smallest: -(2 ** 63) },
} as const satisfies Record<Compute, { readonly largest: number; readonly smallest: number }>;

export function identityOf(op: ReduceOp, type: Compute): number {
  if (op === "add") return 0;
  if (op === "mul") return 1;
  const { largest, smallest } = limits[type];
  return op === "min" ? largest : smallest;
}
