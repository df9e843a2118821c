/**
 * Symbolic derivatives of expressions, in reverse mode: from the gradient of a value to the gradient of one of its subexpressions. The
 * result is an expression too, so it has derivatives of any order.
 */

import { HoldfastError } from "../errors/index.js";
import { term } from "./expression-builder.js";
import { operandsOf } from "./expression-walk.js";
import type { BinaryOp, Expression, UnaryOp } from "./kernels.js";

/**
 * The gradient of a subexpression, which is found by identity, if `upstream` is the gradient of `value`; undefined if it is 0 everywhere.
 * A part of `value` that a select does not choose gets a gradient of 0, even if the upstream gradient is infinite.
 */
export function gradientOf(
  value: Expression,
  variable: Expression,
  upstream: Expression,
): Expression | undefined {
  const known = new Map<Expression, boolean>();
  const reaches = (expression: Expression): boolean => {
    const existing = known.get(expression);
    if (existing !== undefined) return existing;
    const found = expression === variable || operandsOf(expression).some(reaches);
    known.set(expression, found);
    return found;
  };
  let sum: Expression | undefined;
  const visit = (expression: Expression, gradient: Expression): void => {
    if (!reaches(expression)) return;
    if (expression === variable) {
      sum = sum ? term.add(sum, gradient) : gradient;
      return;
    }
    for (const [operand, part] of operandGradients(expression, gradient)) visit(operand, part());
  };
  visit(value, upstream);
  return sum;
}

/** The operands that have a gradient, each with its own. */
type OperandGradients = readonly (readonly [operand: Expression, gradient: () => Expression])[];

function operandGradients(expression: Expression, gradient: Expression): OperandGradients {
  switch (expression.kind) {
    case "unary": {
      const rule = unaryRules[expression.op];
      return rule ? [[expression.a, () => rule(gradient, expression.a, expression)]] : [];
    }
    case "binary": {
      const { op, a, b } = expression;
      const [left, right] = binaryRules[op] ?? [];
      if (!left || !right) return [];
      return [
        [a, () => left(gradient, a, b)],
        [b, () => right(gradient, a, b)],
      ];
    }
    case "select": {
      const { condition, a, b } = expression;
      const none = zeroOf(gradient);
      return [
        [a, () => term.select(condition, gradient, none)],
        [b, () => term.select(condition, none, gradient)],
      ];
    }
    case "convert":
      return expression.a.type === "i32" || expression.a.type === "i64"
        ? []
        : [[expression.a, () => term.convert(gradient, expression.a.type)]];
    default:
      return [];
  }
}

function zeroOf({ type }: Expression): Expression {
  return term.constant(0, type);
}

function oneOf({ type }: Expression): Expression {
  return term.constant(1, type);
}

type UnaryRule = (gradient: Expression, a: Expression, result: Expression) => Expression;

/** Undefined: the derivative is 0 where it exists. */
const unaryRules: Readonly<Record<UnaryOp, UnaryRule | undefined>> = {
  neg: (gradient) => term.neg(gradient),
  // At 0 the derivative is 0, as in PyTorch.
  abs: (gradient, a) =>
    term.select(term.gt(a, 0), gradient, term.select(term.lt(a, 0), term.neg(gradient), zeroOf(gradient))),
  sqrt: (gradient, _, root) => term.mul(gradient, term.div(0.5, root)),
  rsqrt: (gradient, _, y) => term.mul(gradient, term.mul(-0.5, term.mul(y, term.mul(y, y)))),
  floor: undefined,
  ceil: undefined,
  round: undefined,
  trunc: undefined,
  exp: (gradient, _, y) => term.mul(gradient, y),
  exp2: (gradient, _, y) => term.mul(gradient, term.mul(Math.LN2, y)),
  expm1: (gradient, _, y) => term.mul(gradient, term.add(y, 1)),
  log: (gradient, a) => term.div(gradient, a),
  log2: (gradient, a) => term.div(gradient, term.mul(Math.LN2, a)),
  log10: (gradient, a) => term.div(gradient, term.mul(Math.LN10, a)),
  log1p: (gradient, a) => term.div(gradient, term.add(a, 1)),
  sin: (gradient, a) => term.mul(gradient, term.cos(a)),
  cos: (gradient, a) => term.neg(term.mul(gradient, term.sin(a))),
  tan: (gradient, _, y) => term.mul(gradient, term.add(1, term.mul(y, y))),
  asin: (gradient, a) => term.mul(gradient, term.rsqrt(term.sub(1, term.mul(a, a)))),
  acos: (gradient, a) => term.neg(term.mul(gradient, term.rsqrt(term.sub(1, term.mul(a, a))))),
  atan: (gradient, a) => term.div(gradient, term.add(1, term.mul(a, a))),
  sinh: (gradient, a) => term.mul(gradient, term.cosh(a)),
  cosh: (gradient, a) => term.mul(gradient, term.sinh(a)),
  asinh: (gradient, a) => term.mul(gradient, term.rsqrt(term.add(1, term.mul(a, a)))),
  acosh: (gradient, a) =>
    term.mul(gradient, term.mul(term.rsqrt(term.sub(a, 1)), term.rsqrt(term.add(a, 1)))),
  atanh: (gradient, a) => term.div(gradient, term.sub(1, term.mul(a, a))),
  tanh: (gradient, _, y) => term.mul(gradient, term.sub(1, term.mul(y, y))),
  sigmoid: (gradient, _, y) => term.mul(gradient, term.mul(y, term.sub(1, y))),
  erf: (gradient, a) =>
    term.mul(gradient, term.mul(2 / Math.sqrt(Math.PI), term.exp(term.neg(term.mul(a, a))))),
  erfc: (gradient, a) =>
    term.mul(gradient, term.mul(-2 / Math.sqrt(Math.PI), term.exp(term.neg(term.mul(a, a))))),
  lgamma: () => {
    throw new HoldfastError(
      "NO_GRADIENT",
      "The IR's lgamma has no derivative as an expression: define the gradient of the op that uses it.",
    );
  },
  softplus: (gradient, a) => term.mul(gradient, term.sigmoid(a)),
  roundTf32: (gradient) => gradient,
  roundBf16: (gradient) => gradient,
  roundF16: (gradient) => gradient,
};

function squares(a: Expression, b: Expression): Expression {
  return term.add(term.mul(a, a), term.mul(b, b));
}

type BinaryRule = (gradient: Expression, a: Expression, b: Expression) => Expression;

const binaryRules: Readonly<Record<BinaryOp, readonly [BinaryRule, BinaryRule] | undefined>> = {
  add: [(gradient) => gradient, (gradient) => gradient],
  sub: [(gradient) => gradient, (gradient) => term.neg(gradient)],
  mul: [(gradient, _, b) => term.mul(gradient, b), (gradient, a) => term.mul(gradient, a)],
  div: [
    (gradient, _, b) => term.div(gradient, b),
    (gradient, a, b) => term.neg(term.div(term.mul(gradient, term.div(a, b)), b)),
  ],
  // Of equal operands, the first gets the gradient.
  min: [
    (gradient, a, b) => term.select(term.gt(a, b), zeroOf(gradient), gradient),
    (gradient, a, b) => term.select(term.gt(a, b), gradient, zeroOf(gradient)),
  ],
  max: [
    (gradient, a, b) => term.select(term.lt(a, b), zeroOf(gradient), gradient),
    (gradient, a, b) => term.select(term.lt(a, b), gradient, zeroOf(gradient)),
  ],
  pow: [
    // x⁰ is 1 everywhere.
    (gradient, a, b) =>
      term.select(
        term.eq(b, 0),
        zeroOf(gradient),
        term.mul(gradient, term.mul(b, term.pow(a, term.sub(b, oneOf(b))))),
      ),
    // 0 to a power of 0 or more does not depend on the power.
    (gradient, a, b) =>
      term.select(
        term.min(term.eq(a, 0), term.ge(b, 0)),
        zeroOf(gradient),
        term.mul(gradient, term.mul(term.pow(a, b), term.log(a))),
      ),
  ],
  atan2: [
    (gradient, a, b) => term.mul(gradient, term.div(b, squares(a, b))),
    (gradient, a, b) => term.neg(term.mul(gradient, term.div(a, squares(a, b)))),
  ],
  // a − trunc(a / b) · b
  fmod: [
    (gradient) => gradient,
    (gradient, a, b) => term.neg(term.mul(gradient, term.trunc(term.div(a, b)))),
  ],
  and: undefined,
  shr: undefined,
};
