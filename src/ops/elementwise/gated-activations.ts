/** Activations of two operands: a learned slope, and a gate. */

import { type Expression, term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { KernelOp } from "../op.js";
import { elementwise } from "./elementwise.js";

const none = term.constant(0, "f32");
type Values = readonly Expression[];

function gradientOp(name: string, operands: number, value: (values: Values) => Expression): KernelOp {
  return elementwise({
    name,
    operands,
    result: "float",
    value,
  });
}

/** Operands: upstream, x, weight. */
const preluInputGradient = gradientOp("preluInputGradient", 3, ([upstream = none, x = none, weight = none]) =>
  term.select(term.gt(x, 0), upstream, term.mul(weight, upstream)),
);

/** Operands: upstream, x. */
const preluWeightGradient = gradientOp("preluWeightGradient", 2, ([upstream = none, x = none]) =>
  term.select(term.gt(x, 0), term.constant(0, x.type), term.mul(x, upstream)),
);

/** x where it is positive, and weight · x elsewhere. Operands: x and a weight that broadcasts. */
export const prelu: KernelOp = elementwise({
  name: "prelu",
  operands: 2,
  result: "float",
  value: ([x = none, weight = none]) => term.select(term.gt(x, 0), x, term.mul(weight, x)),
  saves: ([needsX = false]) => ({ operands: needsX ? [0, 1] : [0] }),
  gradient: (rule) => [
    rule.needs(0)
      ? fitToOperand(
          rule,
          rule.apply(preluInputGradient, [rule.upstream, rule.operand(0), rule.operand(1)]),
          0,
        )
      : undefined,
    rule.needs(1)
      ? fitToOperand(rule, rule.apply(preluWeightGradient, [rule.upstream, rule.operand(0)]), 1)
      : undefined,
  ],
});

/** Operands: upstream, gate. */
const gatedGradient = gradientOp("gatedGradient", 2, ([upstream = none, gate = none]) =>
  term.mul(upstream, term.sigmoid(gate)),
);

/** Operands: upstream, x, gate. */
const gateGradient = gradientOp("gateGradient", 3, ([upstream = none, x = none, gate = none]) => {
  const s = term.sigmoid(gate);
  return term.mul(term.mul(upstream, x), term.mul(s, term.sub(1, s)));
});

/** x · sigmoid(gate) */
export const sigmoidGate: KernelOp = elementwise({
  name: "sigmoidGate",
  operands: 2,
  result: "float",
  value: ([x = none, gate = none]) => term.mul(x, term.sigmoid(gate)),
  saves: ([, needsGate = false]) => ({ operands: needsGate ? [0, 1] : [1] }),
  gradient: (rule) => [
    rule.needs(0)
      ? fitToOperand(rule, rule.apply(gatedGradient, [rule.upstream, rule.operand(1)]), 0)
      : undefined,
    rule.needs(1)
      ? fitToOperand(rule, rule.apply(gateGradient, [rule.upstream, rule.operand(0), rule.operand(1)]), 1)
      : undefined,
  ],
});
