/** What printers of reductions share. */

import type { Compute, Expression, ReduceOp } from "../ir.js";
import { operandsOf } from "./expressions.js";

/** What a reduction starts from: the value that changes nothing. */
export function identityOf(op: ReduceOp, type: Compute): number {
  if (op === "add") return 0;
  if (op === "mul") return 1;
  const largest = type === "i32" ? 2 ** 31 - 1 : Number.POSITIVE_INFINITY;
  const least = type === "i32" ? -(2 ** 31) : Number.NEGATIVE_INFINITY;
  return op === "min" ? largest : least;
}

/** Does a value anywhere need 64-bit lanes? */
export function usesF64(expression: Expression): boolean {
  return expression.type === "f64" || operandsOf(expression).some(usesF64);
}
