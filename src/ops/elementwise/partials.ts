/**
 * Defines an elementwise op of several operands by its value and its partial derivatives, all expressions. Each operand's gradient is one
 * more elementwise op: the upstream gradient times the partial derivative.
 */

import { type Dtype, type Expression, loadsOf, term } from "../../ir/index.js";
import { fitToOperand } from "../gradients.js";
import type { Attributes, KernelOp, NoAttributes } from "../op.js";
import { elementwise, type ResultKind } from "./elementwise.js";

type Formula = (operands: readonly Expression[], scalars: readonly Expression[]) => Expression;

interface PartialsDefinition<A extends Attributes> {
  readonly name: string;
  readonly result?: ResultKind;
  readonly scalars?: (attributes: A) => readonly number[];
  readonly rejects?: (dtype: Dtype, attributes: A) => string | undefined;
  readonly value: Formula;
  /** One for each operand. "zero": the derivative is 0 wherever it exists. */
  readonly partials: readonly (Formula | "zero")[];
}

export function withPartials<A extends Attributes = NoAttributes>({
  name,
  result = "float",
  scalars,
  rejects,
  value,
  partials,
}: PartialsDefinition<A>): KernelOp<A> {
  const leaves = partials.map((_, index) => term.load(index, "f32"));
  const gradients = partials.map((partial, index) => {
    const reads = partial === "zero" ? [] : operandsIn(partial(leaves, scalarLeaves));
    const op = elementwise<A>({
      name: `${name}Gradient${index}`,
      operands: reads.length + 1,
      result: "float",
      ...(scalars && { scalars }),
      value: ([upstream = none, ...read], scalarTerms) => {
        if (partial === "zero") return term.constant(0, upstream.type);
        const saved = partials.map((_, operand) => read[reads.indexOf(operand)] ?? upstream);
        return term.mul(upstream, partial(saved, scalarTerms));
      },
    });
    return { op, reads };
  });
  return elementwise<A>({
    name,
    operands: partials.length,
    result,
    ...(scalars && { scalars }),
    ...(rejects && { rejects }),
    value,
    saves: (needs) => ({
      operands: [...new Set(gradients.flatMap(({ reads }, index) => (needs[index] ? reads : [])))],
    }),
    gradient: (rule) =>
      gradients.map(({ op, reads }, index) => {
        if (!rule.needs(index)) return undefined;
        const saved = reads.map((operand) => rule.operand(operand));
        return fitToOperand(rule, rule.apply(op, [rule.upstream, ...saved], rule.attributes), index);
      }),
  });
}

const none = term.constant(0, "f32");
const scalarLeaves = [0, 1, 2].map((index) => term.scalar(index, "f32"));

/** The operands that a partial derivative reads, where operand n is load n: only these are saved. */
function operandsIn(partial: Expression): number[] {
  return [...new Set(loadsOf(partial).map(({ input }) => input))].sort((a, b) => a - b);
}
