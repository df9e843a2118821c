/** Comparisons and logic, which return booleans, and where, which takes one. */

import { type CompareOp, type Expression, term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { KernelOp } from "../op.js";
import { elementwise } from "./elementwise.js";

const none = term.constant(0, "f32");
const noGradient = "a boolean has no derivative";

function comparison(name: CompareOp): KernelOp {
  return elementwise({
    name,
    operands: 2,
    result: "bool",
    value: ([a = none, b = none]) => term[name](a, b),
    noGradient,
  });
}

export const eq = comparison("eq");
export const ne = comparison("ne");
export const lt = comparison("lt");
export const le = comparison("le");
export const gt = comparison("gt");
export const ge = comparison("ge");

const isTrue = (x: Expression): Expression => term.ne(x, 0);

export const logicalAnd: KernelOp = elementwise({
  name: "logicalAnd",
  operands: 2,
  result: "bool",
  value: ([a = none, b = none]) => term.min(isTrue(a), isTrue(b)),
  noGradient,
});

export const logicalOr: KernelOp = elementwise({
  name: "logicalOr",
  operands: 2,
  result: "bool",
  value: ([a = none, b = none]) => term.max(isTrue(a), isTrue(b)),
  noGradient,
});

export const logicalXor: KernelOp = elementwise({
  name: "logicalXor",
  operands: 2,
  result: "bool",
  value: ([a = none, b = none]) => term.ne(isTrue(a), isTrue(b)),
  noGradient,
});

export const logicalNot: KernelOp = elementwise({
  name: "logicalNot",
  operands: 1,
  result: "bool",
  value: ([a = none]) => term.eq(a, 0),
  noGradient,
});

export const isnan: KernelOp = elementwise({
  name: "isnan",
  operands: 1,
  result: "bool",
  value: ([a = none]) => term.ne(a, a),
  noGradient,
});

export const isfinite: KernelOp = elementwise({
  name: "isfinite",
  operands: 1,
  result: "bool",
  // ∞ − ∞ and NaN − NaN are NaN, which equals nothing.
  value: ([a = none]) => term.eq(term.sub(a, a), 0),
  noGradient,
});

/** The second operand where the condition holds, elsewhere the third. The operand that is not selected gets no gradient. */
export const where: KernelOp = elementwise({
  name: "where",
  operands: 3,
  conditions: [0],
  value: ([condition = none, a = none, b = none]) =>
    term.select(condition.type === "i32" ? condition : term.ne(condition, 0), a, b),
  saves: () => ({ operands: [0] }),
  gradient: (rule) => [
    undefined,
    rule.needs(1) ? fitToOperand(rule, rule.apply(where, [rule.operand(0), rule.upstream, 0]), 1) : undefined,
    rule.needs(2) ? fitToOperand(rule, rule.apply(where, [rule.operand(0), 0, rule.upstream]), 2) : undefined,
  ],
});
