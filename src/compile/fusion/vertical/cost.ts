/** What a value costs to compute once more, and how much one kernel may hold. */

import { type Expression, partsOf, type UnaryOp } from "../../../ir/index.js";

/** Operands of one kernel that move with its elements, and those that have one value for many of them besides. */
export const mostMoving = 16;
export const mostOperands = 32;
/** Parts of all its values together; and of a kernel that sums over its rows are added to, which make nothing else larger. */
export const mostParts = 800;
export const mostPartsWithSums = 1200;
/** Calls that may become one. */
export const mostMembers = 32;

/** What costs no more is computed again rather than stored and loaded. */
const cheap = 20;

const ofUnary: Partial<Record<UnaryOp, number>> = { neg: 1, abs: 1, floor: 1, ceil: 1, sqrt: 3, rsqrt: 3 };
/** A function that is a polynomial or worse. */
const ofFunction = 24;

/** `isFixed` tells which parts are computed once for a whole row, and so cost nothing to speak of. */
export function isCheap(value: Expression, isFixed?: (part: Expression) => boolean): boolean {
  let cost = 0;
  for (const part of partsOf(value)) if (!isFixed?.(part)) cost += costOf(part);
  return cost <= cheap;
}

function costOf(part: Expression): number {
  switch (part.kind) {
    case "unary":
      return ofUnary[part.op] ?? ofFunction;
    case "binary":
      return part.op === "pow" ? ofFunction : part.op === "div" ? 3 : 1;
    case "load":
      // An indexed load may go anywhere in memory.
      return part.at ? ofFunction : 1;
    case "compare":
    case "select":
    case "convert":
      return 1;
    default:
      return 0;
  }
}
