/** The identity elements of reductions. */

import type { Compute, ReduceOp } from "./kernels.js";

export function identityOf(op: ReduceOp, type: Compute): number {
  if (op === "add") return 0;
  if (op === "mul") return 1;
  const largest = type === "i32" ? 2 ** 31 - 1 : Number.POSITIVE_INFINITY;
  const smallest = type === "i32" ? -(2 ** 31) : Number.NEGATIVE_INFINITY;
  return op === "min" ? largest : smallest;
}
