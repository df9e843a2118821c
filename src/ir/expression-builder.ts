/** A builder for expressions of the loop IR: `term.mul(x, term.exp(y))`. Types follow from the operands. */

import { type Dtype, dtypes } from "./dtypes.js";
import type { BinaryOp, CompareOp, Compute, Expression, UnaryOp } from "./kernels.js";

/** A bare number takes the type of the other operand. */
type Operand = Expression | number;

function constant(value: number, type: Compute): Expression {
  return { kind: "constant", value, type };
}

function pair(a: Operand, b: Operand): readonly [Expression, Expression] {
  if (typeof a !== "number") return [a, typeof b === "number" ? constant(b, a.type) : b];
  if (typeof b !== "number") return [constant(a, b.type), b];
  return [constant(a, "f32"), constant(b, "f32")];
}

const unary =
  (op: UnaryOp) =>
  (a: Expression): Expression => ({ kind: "unary", op, a, type: a.type });

const binary =
  (op: BinaryOp) =>
  (left: Operand, right: Operand): Expression => {
    const [a, b] = pair(left, right);
    return { kind: "binary", op, a, b, type: a.type };
  };

const compare =
  (op: CompareOp) =>
  (left: Operand, right: Operand): Expression => {
    const [a, b] = pair(left, right);
    return { kind: "compare", op, a, b, type: "i32" };
  };

export const term = {
  load: (input: number, type: Compute, at?: Expression): Expression =>
    at ? { kind: "load", input, type, at } : { kind: "load", input, type },
  scalar: (index: number, type: Compute): Expression => ({ kind: "scalar", index, type }),
  /** The current element of an input of indices, as i32. An i64 outside the range of i32 saturates, so that it stays outside every axis. */
  index: (input: number, dtype: Dtype, at?: Expression): Expression => {
    const load = term.load(input, dtypes[dtype].compute, at);
    if (load.type !== "i64") return load;
    return term.convert(term.max(term.min(load, 2 ** 31 - 1), -(2 ** 31)), "i32");
  },
  reduced: (stage: number, type: Compute): Expression => ({ kind: "reduced", stage, type }),
  constant,
  position: { kind: "position", type: "i32" } as Expression,
  row: { kind: "row", type: "i32" } as Expression,
  convert: (a: Expression, type: Compute): Expression => (a.type === type ? a : { kind: "convert", a, type }),
  select: (condition: Expression, left: Operand, right: Operand): Expression => {
    const [a, b] = pair(left, right);
    return { kind: "select", condition, a, b, type: a.type };
  },

  neg: unary("neg"),
  abs: unary("abs"),
  sqrt: unary("sqrt"),
  floor: unary("floor"),
  ceil: unary("ceil"),
  round: unary("round"),
  trunc: unary("trunc"),
  rsqrt: unary("rsqrt"),
  exp: unary("exp"),
  exp2: unary("exp2"),
  expm1: unary("expm1"),
  log: unary("log"),
  log2: unary("log2"),
  log10: unary("log10"),
  log1p: unary("log1p"),
  sin: unary("sin"),
  cos: unary("cos"),
  tan: unary("tan"),
  asin: unary("asin"),
  acos: unary("acos"),
  atan: unary("atan"),
  sinh: unary("sinh"),
  cosh: unary("cosh"),
  tanh: unary("tanh"),
  asinh: unary("asinh"),
  acosh: unary("acosh"),
  atanh: unary("atanh"),
  sigmoid: unary("sigmoid"),
  erf: unary("erf"),
  erfc: unary("erfc"),
  lgamma: unary("lgamma"),
  softplus: unary("softplus"),
  roundTf32: unary("roundTf32"),
  roundBf16: unary("roundBf16"),
  roundF16: unary("roundF16"),

  add: binary("add"),
  sub: binary("sub"),
  mul: binary("mul"),
  div: binary("div"),
  min: binary("min"),
  max: binary("max"),
  pow: binary("pow"),
  atan2: binary("atan2"),
  fmod: binary("fmod"),
  and: binary("and"),
  shr: binary("shr"),

  eq: compare("eq"),
  ne: compare("ne"),
  lt: compare("lt"),
  le: compare("le"),
  gt: compare("gt"),
  ge: compare("ge"),
} as const;
