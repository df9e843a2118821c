/** The cost of recomputing a value, and the limits of one fused kernel. */

import { type BinaryOp, type Expression, subexpressionsOf, type UnaryOp } from "../../../ir/index.js";

/** Operands that vary along the row, and all operands: a kernel keeps a pointer for each in registers. */
export const maxMoving = 16;
export const maxOperands = 32;
/** Expression nodes of all stages; more with column accumulators, which need no further operands. */
export const maxExpressionNodes = 800;
export const maxNodesWithAccumulators = 1200;
/** Calls in one fused kernel. */
export const maxMembers = 32;

/** Cheaper values are recomputed instead of stored and loaded. */
const cheap = 20;

const ofUnary: Partial<Record<UnaryOp, number>> = {
  ...{ neg: 1, abs: 1, floor: 1, ceil: 1, round: 1, trunc: 1, sqrt: 3, rsqrt: 3 },
  ...{ roundTf32: 1, roundBf16: 1, roundF16: 1 },
};
/** A transcendental function. */
const ofFunction = 24;
const ofBinary: Partial<Record<BinaryOp, number>> = {
  ...{ pow: ofFunction, atan2: ofFunction, fmod: ofFunction, div: 3 },
};

/** `isInvariant` tells which subexpressions are computed once per row, and so cost next to nothing. */
export function isCheap(value: Expression, isInvariant?: (slice: Expression) => boolean): boolean {
  let cost = 0;
  for (const slice of subexpressionsOf(value)) if (!isInvariant?.(slice)) cost += costOf(slice);
  return cost <= cheap;
}

function costOf(slice: Expression): number {
  switch (slice.kind) {
    case "unary":
      return ofUnary[slice.op] ?? ofFunction;
    case "binary":
      return ofBinary[slice.op] ?? 1;
    case "load":
      // An indexed load may go anywhere in memory.
      return slice.at ? ofFunction : 1;
    case "compare":
    case "select":
    case "convert":
      return 1;
    default:
      return 0;
  }
}
