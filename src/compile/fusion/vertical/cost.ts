/** What a value costs to compute once more, and how much one kernel may hold. */

import { type Expression, subexpressionsOf, type UnaryOp } from "../../../ir/index.js";

/** Operands of one kernel that move with its elements, and those that have one value for many of them besides. */
export const maxMoving = 16;
export const maxOperands = 32;
/** Parts of all its values together; and of a kernel that sums over its rows are added to, which make nothing else larger. */
export const maxExpressionNodes = 800;
export const maxNodesWithAccumulators = 1200;
/** Calls that may become one. */
export const maxMembers = 32;

/** What costs no more is computed again rather than stored and loaded. */
const cheap = 20;

const ofUnary: Partial<Record<UnaryOp, number>> = { neg: 1, abs: 1, floor: 1, ceil: 1, sqrt: 3, rsqrt: 3 };
/** A function that is a polynomial or worse. */
const ofFunction = 24;

/** `isInvariant` tells which parts are computed once for a whole row, and so cost nothing to speak of. */
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
      return slice.op === "pow" ? ofFunction : slice.op === "div" ? 3 : 1;
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
