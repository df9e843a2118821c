/** Bitwise ops on integers and booleans. The loop IR has `and` and logical shifts by constants, of which the others are composed. */

import { type Dtype, dtypes, type Expression, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { elementwise } from "./elementwise.js";

const none = term.constant(0, "i32");

function bitwise(
  name: string,
  operands: 1 | 2,
  value: (a: Expression, b: Expression) => Expression,
  takesBooleans = true,
): KernelOp {
  const rejects = (dtype: Dtype): string | undefined => {
    if (dtypes[dtype].kind === "float")
      return `${dtype} has no bits to combine. Convert it first: to("i32").`;
    return dtype === "bool" && !takesBooleans
      ? 'booleans cannot be shifted. Convert them first: to("i32").'
      : undefined;
  };
  return elementwise({
    name,
    operands,
    rejects,
    value: ([a = none, b = none]) => value(a, b),
    noGradient: "integers have no derivative",
  });
}

export const bitwiseAnd = bitwise("bitwiseAnd", 2, term.and);
/** a + b counts the common bits twice. */
export const bitwiseOr = bitwise("bitwiseOr", 2, (a, b) => term.sub(term.add(a, b), term.and(a, b)));
export const bitwiseXor = bitwise("bitwiseXor", 2, (a, b) =>
  term.sub(term.add(a, b), term.mul(2, term.and(a, b))),
);
/** −1 − a */
export const bitwiseNot = bitwise("bitwiseNot", 1, (a) => term.sub(-1, a), false);

/** Applies a step for each of the bits of a shift count: five, or six of i64. */
function byBits(
  value: Expression,
  count: Expression,
  step: (value: Expression, bits: number) => Expression,
): Expression {
  const isLong = value.type === "i64";
  return [1, 2, 4, 8, 16, ...(isLong ? [32] : [])].reduce((shifted, bits) => {
    const bit = term.and(count, bits);
    return term.select(isLong ? term.ne(bit, 0) : bit, step(shifted, bits), shifted);
  }, value);
}

/** Counts are taken modulo 32, or 64 for i64. */
export const bitwiseLeftShift = bitwise(
  "bitwiseLeftShift",
  2,
  (a, count) => byBits(a, count, (value, bits) => term.mul(value, 2 ** bits)),
  false,
);
/** An arithmetic shift: of a negative number, the complement is shifted. */
export const bitwiseRightShift = bitwise(
  "bitwiseRightShift",
  2,
  (a, count) => {
    const isNegative = term.lt(a, 0);
    const complement = (value: Expression): Expression => term.sub(-1, value);
    const magnitude = term.select(isNegative, complement(a), a);
    const shifted = byBits(magnitude, count, term.shr);
    return term.select(isNegative, complement(shifted), shifted);
  },
  false,
);
