/** amax and amin over any axes. The result is NaN if an element is NaN. The gradient is shared equally among equal elements. */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { sum } from "../broadcast.js";
import { div } from "../elementwise/arithmetic.js";
import { eq, where } from "../elementwise/comparisons.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type GradientRule, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { axesOf } from "../shape.js";
import { lowerReduction } from "./reduce.js";
import type { Reduction } from "./reduction.js";
import { type ReductionAttributes, reducedType, requireElements, restoreAxes } from "./rule.js";

interface SharedGradient {
  readonly name: string;
  /** The compared value of an element. */
  readonly compared: (x: Expression) => Expression;
  /** Its derivative. */
  readonly derivative?: (x: Expression) => Expression;
}

/** The same share, made of entries that have gradients too. */
export function recordedShare<V>(
  { apply }: Pick<GradientRule<V, ReductionAttributes>, "apply">,
  [upstream, x, result]: readonly [V, V | number, V],
  axes: readonly number[],
): V {
  const isExtreme = apply(eq, [x, result]);
  const count = apply(sum, [isExtreme], { axes, keepsAxes: true });
  return apply(where, [isExtreme, apply(div, [upstream, count]), 0]);
}

/** An op that shares each row's upstream gradient equally among the elements that equal the result. Operands: upstream, x, result. */
export function sharedGradientOp(definition: SharedGradient): KernelOp<{ readonly axes: readonly number[] }> {
  const { name, compared, derivative } = definition;
  const kernelFor = cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [upstream, x, result] = [term.load(0, compute), term.load(1, compute), term.load(2, compute)];
    const isExtreme = term.eq(compared(x), result);
    const share = term.div(
      term.mul(upstream, term.convert(isExtreme, compute)),
      term.convert(term.reduced(0, "i32"), compute),
    );
    return {
      name,
      inputs: [dtype, dtype, dtype],
      outputs: [{ dtype, per: "element" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "add", value: isExtreme },
        { kind: "store", output: 0, value: derivative ? term.mul(share, derivative(x)) : share },
      ],
    };
  });
  return {
    kind: "kernel",
    name,
    noGradient: "a recorded gradient is composed of other ops",
    infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { axes }) {
      const inputs = [0, 1, 2].map((index) => arrayAt(operands, index));
      const { shape, dtype } = arrayAt(operands, 1);
      lowerRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs, outputs });
    },
  };
}

function extreme(name: "amax" | "amin", op: "max" | "min"): KernelOp<ReductionAttributes> {
  const identity = op === "max" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const reduction: Reduction = { name, op, value: (x) => x, identity };
  const share = sharedGradientOp({ name: `${name}Gradient`, compared: (x) => x });
  return {
    kind: "kernel",
    name,
    infer(operands, attributes) {
      requireElements(name, typeAt(name, operands, 0).shape, attributes);
      return [reducedType(name, operands, attributes)];
    },
    saves: () => ({ operands: [0], outputs: [0] }),
    gradient(rule) {
      const axes = axesOf(name, rule.attributes.axes, rule.typeOf(0).shape.length);
      const upstream = restoreAxes(rule, name, rule.upstream);
      const result = restoreAxes(rule, name, rule.output(0));
      if (rule.isRecorded) {
        return [fitToOperand(rule, recordedShare(rule, [upstream, rule.operand(0), result], axes), 0)];
      }
      return [rule.apply(share, [upstream, rule.operand(0), result], { axes })];
    },
    lower(lowering, operands, [output], { axes }) {
      const input = arrayAt(operands, 0);
      if (output) lowerReduction(lowering, reduction, input, axesOf(name, axes, input.shape.length), output);
    },
  };
}

export const amax = extreme("amax", "max");
export const amin = extreme("amin", "min");
