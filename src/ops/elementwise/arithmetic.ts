/** Arithmetic of two operands: add, sub, mul, div, pow, maximum, minimum. Shapes broadcast, and dtypes are promoted. */

import { type Dtype, dtypes, type Expression, term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { GradientRule, Gradients, KernelOp, SavedIndices } from "../op.js";
import { elementwise } from "./elementwise.js";

type Pair = readonly Expression[];
const none = term.constant(0, "f32");

/** The gradients of two operands, computed only if needed, with the shapes and dtypes of their operands. */
function operandGradients<V, A>(rule: GradientRule<V, A>, left: () => V, right: () => V): Gradients<V> {
  return [left, right].map((gradient, index) =>
    rule.needs(index) ? fitToOperand(rule, gradient(), index) : undefined,
  );
}

/** The gradient of each operand reads the other operand. */
const saveOtherOperand = ([left, right]: readonly boolean[]): SavedIndices => ({
  operands: [...(right ? [0] : []), ...(left ? [1] : [])],
});

/** A gradient as an elementwise op of the upstream gradient and both operands. */
function gradientFormula(
  name: string,
  value: (upstream: Expression, a: Expression, b: Expression) => Expression,
): KernelOp {
  return elementwise({
    name,
    operands: 3,
    value: ([upstream = none, a = none, b = none]) => value(upstream, a, b),
  });
}

const noBooleans = (dtype: Dtype): string | undefined =>
  dtype === "bool" ? "booleans have no difference; use logicalXor or convert them first." : undefined;

export const add: KernelOp = elementwise({
  name: "add",
  operands: 2,
  value: ([a = none, b = none]: Pair) => term.add(a, b),
  gradient: (rule) =>
    operandGradients(
      rule,
      () => rule.upstream,
      () => rule.upstream,
    ),
});

export const sub: KernelOp = elementwise({
  name: "sub",
  operands: 2,
  rejects: noBooleans,
  value: ([a = none, b = none]: Pair) => term.sub(a, b),
  gradient: (rule) =>
    operandGradients(
      rule,
      () => rule.upstream,
      () => rule.apply(mul, [rule.upstream, -1]),
    ),
});

export const mul: KernelOp = elementwise({
  name: "mul",
  operands: 2,
  value: ([a = none, b = none]: Pair) => term.mul(a, b),
  saves: saveOtherOperand,
  gradient: (rule) =>
    operandGradients(
      rule,
      () => rule.apply(mul, [rule.upstream, rule.operand(1)]),
      () => rule.apply(mul, [rule.upstream, rule.operand(0)]),
    ),
});

const divisorGradient = gradientFormula("divGradient", (upstream, a, b) =>
  term.neg(term.div(term.mul(upstream, term.div(a, b)), b)),
);

export const div: KernelOp = elementwise({
  name: "div",
  operands: 2,
  result: "float",
  value: ([a = none, b = none]: Pair) => term.div(a, b),
  saves: ([left, right]) => ({ operands: right ? [0, 1] : left ? [1] : [] }),
  gradient: (rule) =>
    operandGradients(
      rule,
      () => rule.apply(div, [rule.upstream, rule.operand(1)]),
      () => rule.apply(divisorGradient, [rule.upstream, rule.operand(0), rule.operand(1)]),
    ),
});

/** x⁰ is 1 everywhere, so its derivative is 0, even at x = 0. */
const baseGradient = gradientFormula("powBaseGradient", (upstream, a, b) =>
  term.select(
    term.eq(b, 0),
    term.constant(0, a.type),
    term.mul(upstream, term.mul(b, term.pow(a, term.sub(b, 1)))),
  ),
);
/** 0 to a power of 0 or more does not depend on the power. */
const exponentGradient = gradientFormula("powExponentGradient", (upstream, a, b) =>
  term.select(
    term.eq(a, 0),
    term.select(term.ge(b, 0), term.constant(0, a.type), term.constant(Number.NaN, a.type)),
    term.mul(upstream, term.mul(term.pow(a, b), term.log(a))),
  ),
);

/** Computed in f64, which holds every i32 exactly, and truncated. 0 to a negative power is 0, as in PyTorch. */
function integerPower(a: Expression, b: Expression): Expression {
  const power = term.convert(term.pow(term.convert(a, "f64"), term.convert(b, "f64")), "i32");
  return term.select(term.min(term.eq(a, 0), term.lt(b, 0)), 0, power);
}

export const pow: KernelOp = elementwise({
  name: "pow",
  operands: 2,
  rejects: (dtype) =>
    dtype === "i64"
      ? 'integers of 64 bits have no power: the kernels compute powers in f64. Convert with to("i32") or to("f64").'
      : undefined,
  value: ([a = none, b = none]: Pair) => (a.type === "i32" ? integerPower(a, b) : term.pow(a, b)),
  saves: () => ({ operands: [0, 1] }),
  gradient: (rule) =>
    operandGradients(
      rule,
      () => rule.apply(baseGradient, [rule.upstream, rule.operand(0), rule.operand(1)]),
      () => rule.apply(exponentGradient, [rule.upstream, rule.operand(0), rule.operand(1)]),
    ),
});

/** Equal operands get half of the gradient each. If one operand is NaN, both get all of it, as in PyTorch. */
function extremeShare(
  losing: "gt" | "lt",
): (upstream: Expression, operand: Expression, other: Expression) => Expression {
  return (upstream, operand, other) =>
    term.select(
      term[losing](operand, other),
      term.constant(0, upstream.type),
      term.select(term.eq(operand, other), term.mul(upstream, 0.5), upstream),
    );
}

function extreme(name: "maximum" | "minimum", op: "max" | "min", losing: "gt" | "lt"): KernelOp {
  const share = gradientFormula(`${name}Gradient`, extremeShare(losing));
  return elementwise({
    name,
    operands: 2,
    value: ([a = none, b = none]: Pair) => term[op](a, b),
    saves: () => ({ operands: [0, 1] }),
    gradient: (rule) =>
      operandGradients(
        rule,
        () => rule.apply(share, [rule.upstream, rule.operand(0), rule.operand(1)]),
        () => rule.apply(share, [rule.upstream, rule.operand(1), rule.operand(0)]),
      ),
  });
}

/** The larger of two operands; NaN if either is NaN. */
export const maximum = extreme("maximum", "max", "lt");
/** The smaller of two operands; NaN if either is NaN. */
export const minimum = extreme("minimum", "min", "gt");

/** True if gradients can flow through a dtype. */
export function isFloat(dtype: Dtype): boolean {
  return dtypes[dtype].kind === "float";
}
