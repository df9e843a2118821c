/** Defines an elementwise op of one operand by two expressions: its value and its derivative. */

import type { Compute, Dtype, Expression } from "../../ir/index.js";
import { term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { Attributes, KernelOp, NoAttributes } from "../op.js";
import { elementwise, type ResultKind } from "./elementwise.js";

type ElementExpression = (saved: Expression, ...scalars: readonly Expression[]) => Expression;

type Derivative = { readonly of: "operand" | "output" } & (
  | { readonly value: ElementExpression }
  | { readonly passes: ElementExpression }
);

interface UnaryDefinition<A extends Attributes> {
  readonly name: string;
  readonly result?: ResultKind;
  readonly scalars?: (attributes: A, compute: Compute) => readonly number[];
  readonly value: (x: Expression, ...scalars: readonly Expression[]) => Expression;
  /**
   * dy/dx as an expression of the operand or of the output, which is then saved. "zero": the gradient is 0 everywhere. Absent: there
   * is no gradient. A derivative that is 1 or 0 is defined by the condition `passes`. Where it is false the gradient is 0, even if
   * the upstream gradient is infinite or NaN, as for sqrt(relu(x)) at 0.
   */
  readonly derivative?: Derivative | "zero";
  readonly rejects?: (dtype: Dtype, attributes: A) => string | undefined;
}

/** The op. Its gradient is a second elementwise op, defined here too. */
export function unary<A extends Attributes = NoAttributes>(definition: UnaryDefinition<A>): KernelOp<A> {
  const { name, result = "float", scalars, value, derivative, rejects } = definition;
  const common = {
    name,
    operands: 1,
    result,
    ...(scalars && { scalars }),
    ...(rejects && { rejects }),
    value: ([x = zero]: readonly Expression[], scalarTerms: readonly Expression[]) =>
      value(x, ...scalarTerms),
  };
  if (!derivative) return elementwise<A>({ ...common, noGradient: "its result has no derivative" });
  if (derivative === "zero") {
    return elementwise<A>({
      ...common,
      gradient: (rule) => [fitToOperand(rule, rule.apply(zeroGradient, [rule.upstream]), 0)],
    });
  }
  const gradientOp = elementwise<A>({
    name: `${name}Gradient`,
    operands: 2,
    result: "float",
    ...(scalars && { scalars }),
    value: ([upstream = zero, saved = zero], scalarTerms) =>
      "passes" in derivative
        ? term.select(derivative.passes(saved, ...scalarTerms), upstream, term.constant(0, upstream.type))
        : term.mul(upstream, derivative.value(saved, ...scalarTerms)),
  });
  const isOfOutput = derivative.of === "output";
  return elementwise<A>({
    ...common,
    saves: () => (isOfOutput ? { outputs: [0] } : { operands: [0] }),
    gradient: (rule) => {
      const saved = isOfOutput ? rule.output(0) : rule.operand(0);
      return [fitToOperand(rule, rule.apply(gradientOp, [rule.upstream, saved], rule.attributes), 0)];
    },
  });
}

const zero = term.constant(0, "f32");

const zeroGradient = elementwise({
  name: "zeroGradient",
  operands: 1,
  value: ([x = zero]) => term.constant(0, x.type),
  gradient: () => [undefined],
});
