/** How an elementwise op of one operand is defined: its value, and its derivative as an expression too. */

import type { Compute, Dtype, Expression } from "../../ir/index.js";
import { term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { Attributes, KernelOp, NoAttributes } from "../op.js";
import { elementwise, type ResultKind } from "./elementwise.js";

type AtElement = (at: Expression, ...scalars: readonly Expression[]) => Expression;

type Derivative = { readonly of: "operand" | "output" } & (
  | { readonly value: AtElement }
  | { readonly passes: AtElement }
);

interface UnaryDefinition<A extends Attributes> {
  readonly name: string;
  readonly result?: ResultKind;
  readonly scalars?: (attributes: A, compute: Compute) => readonly number[];
  readonly value: (x: Expression, ...scalars: readonly Expression[]) => Expression;
  /**
   * dy/dx, from the operand or from the result, whichever is named: that one is saved. Without it the gradient is zero
   * everywhere. A slope that is 1 or 0 is told by where it `passes`: what does not is 0 even if it is infinite or NaN, as the
   * root's slope at 0 is behind a relu.
   */
  readonly derivative?: Derivative | "zero";
  readonly rejects?: (dtype: Dtype, attributes: A) => string | undefined;
}

/** The op; its gradient is one more elementwise op, made here. */
export function unary<A extends Attributes = NoAttributes>(definition: UnaryDefinition<A>): KernelOp<A> {
  const { name, result = "float", scalars, value, derivative, rejects } = definition;
  const common = {
    name,
    operands: 1,
    result,
    ...(scalars && { scalars }),
    ...(rejects && { rejects }),
    value: ([x = zero]: readonly Expression[], own: readonly Expression[]) => value(x, ...own),
  };
  if (!derivative) return elementwise<A>({ ...common, noGradient: "its result has no slope" });
  if (derivative === "zero") {
    return elementwise<A>({
      ...common,
      gradient: (rule) => [fitToOperand(rule, rule.apply(timesZero, [rule.upstream]), 0)],
    });
  }
  const gradientOp = elementwise<A>({
    name: `${name}Gradient`,
    operands: 2,
    result: "float",
    ...(scalars && { scalars }),
    value: ([upstream = zero, at = zero], own) =>
      "passes" in derivative
        ? term.select(derivative.passes(at, ...own), upstream, term.constant(0, upstream.type))
        : term.mul(upstream, derivative.value(at, ...own)),
    noGradient: "gradients of gradients are not recorded",
  });
  const isOfOutput = derivative.of === "output";
  return elementwise<A>({
    ...common,
    saves: () => (isOfOutput ? { outputs: [0] } : { operands: [0] }),
    gradient: (rule) => {
      const at = isOfOutput ? rule.output(0) : rule.operand(0);
      return [fitToOperand(rule, rule.apply(gradientOp, [rule.upstream, at], rule.attributes), 0)];
    },
  });
}

const zero = term.constant(0, "f32");

const timesZero = elementwise({
  name: "zeroGradient",
  operands: 1,
  value: ([x = zero]) => term.constant(0, x.type),
  noGradient: "it is zero everywhere",
});
