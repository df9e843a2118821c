/** A slow and simple interpreter of the loop IR in JavaScript numbers, the reference of the generated kernels. */

import { mathFunctions } from "../../src/driver/index.js";
import type { BinaryOp, CompareOp, Compute, Expression, UnaryOp } from "../../src/ir/index.js";
import { roundToBf16, roundToF16, roundToTf32 } from "./roundings.js";

export function roundHalfToEven(x: number): number {
  const rounded = Math.round(x);
  return rounded - x === 0.5 && rounded % 2 !== 0 ? rounded - 1 : rounded;
}

const unary: Record<UnaryOp, (a: number) => number> = {
  neg: (a) => -a,
  abs: Math.abs,
  sqrt: Math.sqrt,
  floor: Math.floor,
  ceil: Math.ceil,
  round: roundHalfToEven,
  trunc: Math.trunc,
  rsqrt: (a) => 1 / Math.sqrt(a),
  exp: Math.exp,
  exp2: mathFunctions.exp2,
  expm1: Math.expm1,
  log: Math.log,
  log2: Math.log2,
  log10: Math.log10,
  log1p: Math.log1p,
  sin: Math.sin,
  cos: Math.cos,
  tan: Math.tan,
  asin: Math.asin,
  acos: Math.acos,
  atan: Math.atan,
  sinh: Math.sinh,
  cosh: Math.cosh,
  tanh: Math.tanh,
  asinh: Math.asinh,
  acosh: Math.acosh,
  atanh: Math.atanh,
  sigmoid: (a) => 1 / (1 + Math.exp(-a)),
  erf: mathFunctions.erf,
  erfc: mathFunctions.erfc,
  lgamma: mathFunctions.lgamma,
  softplus: (a) => (a > 30 ? a : Math.log1p(Math.exp(a))),
  roundTf32: roundToTf32,
  roundBf16: roundToBf16,
  roundF16: roundToF16,
};

const binary: Record<BinaryOp, (a: number, b: number) => number> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  min: Math.min,
  max: Math.max,
  pow: (a, b) => a ** b,
  atan2: Math.atan2,
  fmod: (a, b) => a % b,
  and: (a, b) => a & b,
  shr: (a, b) => a >>> b,
};

const compare: Record<CompareOp, (a: number, b: number) => boolean> = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
};

/** Rounds a value to its type. */
export function rounded(type: Compute, value: number): number {
  if (type === "f32") return Math.fround(value);
  return type === "f64" ? value : value | 0;
}

export interface Environment {
  /** The element of an input `at` elements from its current position. */
  readonly load: (input: number, at: number) => number;
  readonly scalars: readonly number[];
  readonly reduced: ReadonlyMap<number, number>;
  readonly position?: number;
  readonly row?: number;
}

export function evaluate(expression: Expression, environment: Environment): number {
  const value = (operand: Expression): number => evaluate(operand, environment);
  switch (expression.kind) {
    case "load":
      return environment.load(expression.input, expression.at ? value(expression.at) : 0);
    case "scalar":
      return rounded(expression.type, environment.scalars[expression.index] ?? Number.NaN);
    case "constant":
      return rounded(expression.type, expression.value);
    case "reduced":
      return environment.reduced.get(expression.stage) ?? Number.NaN;
    case "position":
      return environment.position ?? 0;
    case "row":
      return environment.row ?? 0;
    case "unary":
      return rounded(expression.type, unary[expression.op](value(expression.a)));
    case "binary": {
      const [a, b] = [value(expression.a), value(expression.b)];
      const isIntegerMul = expression.type === "i32" && expression.op === "mul";
      return isIntegerMul ? Math.imul(a, b) : rounded(expression.type, binary[expression.op](a, b));
    }
    case "compare":
      return compare[expression.op](value(expression.a), value(expression.b)) ? 1 : 0;
    case "select":
      return value(expression.condition) !== 0 ? value(expression.a) : value(expression.b);
    case "convert":
      return convert(value(expression.a), expression.type);
  }
}

function convert(value: number, type: Compute): number {
  if (type !== "i32") return rounded(type, value);
  if (Number.isNaN(value)) return 0;
  // The sum with 0 turns -0 into 0, since no integer is -0.
  return Math.trunc(Math.min(2 ** 31 - 1, Math.max(-(2 ** 31), value))) + 0;
}
