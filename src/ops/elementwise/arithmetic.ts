/** Arithmetic of two operands: add, sub, mul, div, pow, maximum, minimum. They broadcast, and meet by promotion. */

import { type Dtype, dtypes, type Expression, term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { GradientRule, Gradients, KernelOp, SavedPlaces } from "../op.js";
import { elementwise } from "./elementwise.js";

type Pair = readonly Expression[];
const none = term.constant(0, "f32");

/** One gradient for each of two operands, made only where it is wanted and fitted to its operand. */
function bothSides<V, A>(rule: GradientRule<V, A>, left: () => V, right: () => V): Gradients<V> {
  return [left, right].map((make, index) =>
    rule.needs(index) ? fitToOperand(rule, make(), index) : undefined,
  );
}

/** Each side's gradient reads the other. */
const savesTheOther = ([left, right]: readonly boolean[]): SavedPlaces => ({
  operands: [...(right ? [0] : []), ...(left ? [1] : [])],
});

/** For gradients made by formula: an elementwise op of the upstream gradient and both operands. */
function formula(
  name: string,
  value: (upstream: Expression, a: Expression, b: Expression) => Expression,
): KernelOp {
  return elementwise({
    name,
    operands: 3,
    value: ([upstream = none, a = none, b = none]) => value(upstream, a, b),
    noGradient: "gradients of gradients are not recorded",
  });
}

const noBooleans = (dtype: Dtype): string | undefined =>
  dtype === "bool" ? "booleans have no difference; use logicalXor or convert them first." : undefined;

export const add: KernelOp = elementwise({
  name: "add",
  operands: 2,
  value: ([a = none, b = none]: Pair) => term.add(a, b),
  gradient: (rule) =>
    bothSides(
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
    bothSides(
      rule,
      () => rule.upstream,
      () => rule.apply(mul, [rule.upstream, -1]),
    ),
});

export const mul: KernelOp = elementwise({
  name: "mul",
  operands: 2,
  value: ([a = none, b = none]: Pair) => term.mul(a, b),
  saves: savesTheOther,
  gradient: (rule) =>
    bothSides(
      rule,
      () => rule.apply(mul, [rule.upstream, rule.operand(1)]),
      () => rule.apply(mul, [rule.upstream, rule.operand(0)]),
    ),
});

const divRight = formula("divGradient", (upstream, a, b) =>
  term.neg(term.div(term.mul(upstream, term.div(a, b)), b)),
);

export const div: KernelOp = elementwise({
  name: "div",
  operands: 2,
  result: "float",
  value: ([a = none, b = none]: Pair) => term.div(a, b),
  saves: ([left, right]) => ({ operands: right ? [0, 1] : left ? [1] : [] }),
  gradient: (rule) =>
    bothSides(
      rule,
      () => rule.apply(div, [rule.upstream, rule.operand(1)]),
      () => rule.apply(divRight, [rule.upstream, rule.operand(0), rule.operand(1)]),
    ),
});

/** x to the power of 0 is 1 everywhere, so its slope is 0, also where x is 0. */
const powLeft = formula("powBaseGradient", (upstream, a, b) =>
  term.select(
    term.eq(b, 0),
    term.constant(0, a.type),
    term.mul(upstream, term.mul(b, term.pow(a, term.sub(b, 1)))),
  ),
);
/** 0 to a power of 0 or more does not change with the power. */
const powRight = formula("powExponentGradient", (upstream, a, b) =>
  term.select(
    term.eq(a, 0),
    term.select(term.ge(b, 0), term.constant(0, a.type), term.constant(Number.NaN, a.type)),
    term.mul(upstream, term.mul(term.pow(a, b), term.log(a))),
  ),
);

/** Through f64, which holds every i32 exactly. What is no whole number is cut off; 0 to a negative power is 0, as in PyTorch. */
function wholePower(a: Expression, b: Expression): Expression {
  const power = term.convert(term.pow(term.convert(a, "f64"), term.convert(b, "f64")), "i32");
  return term.select(term.min(term.eq(a, 0), term.lt(b, 0)), 0, power);
}

export const pow: KernelOp = elementwise({
  name: "pow",
  operands: 2,
  value: ([a = none, b = none]: Pair) => (a.type === "i32" ? wholePower(a, b) : term.pow(a, b)),
  saves: () => ({ operands: [0, 1] }),
  gradient: (rule) =>
    bothSides(
      rule,
      () => rule.apply(powLeft, [rule.upstream, rule.operand(0), rule.operand(1)]),
      () => rule.apply(powRight, [rule.upstream, rule.operand(0), rule.operand(1)]),
    ),
});

/** Where both are equal each gets half, and where one is a NaN each gets all of it, as in PyTorch. */
function chosenShare(
  loses: "gt" | "lt",
): (upstream: Expression, own: Expression, other: Expression) => Expression {
  return (upstream, own, other) =>
    term.select(
      term[loses](own, other),
      term.constant(0, upstream.type),
      term.select(term.eq(own, other), term.mul(upstream, 0.5), upstream),
    );
}

function extreme(name: "maximum" | "minimum", pick: "max" | "min", loses: "gt" | "lt"): KernelOp {
  const share = formula(`${name}Gradient`, chosenShare(loses));
  return elementwise({
    name,
    operands: 2,
    value: ([a = none, b = none]: Pair) => term[pick](a, b),
    saves: () => ({ operands: [0, 1] }),
    gradient: (rule) =>
      bothSides(
        rule,
        () => rule.apply(share, [rule.upstream, rule.operand(0), rule.operand(1)]),
        () => rule.apply(share, [rule.upstream, rule.operand(1), rule.operand(0)]),
      ),
  });
}

/** The larger of two; NaN if either is. */
export const maximum = extreme("maximum", "max", "lt");
/** The smaller of two; NaN if either is. */
export const minimum = extreme("minimum", "min", "gt");

/** Is a dtype one that gradients can flow through? */
export function isFloat(dtype: Dtype): boolean {
  return dtypes[dtype].kind === "float";
}
