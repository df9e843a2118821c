/** The largest and the smallest element over any axes. NaN wins; the gradient is shared among equal elements. */

import { dtypes, type Expression, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { forDtypes, passRows } from "../row-pass.js";
import { axesOf } from "../shape.js";
import { lowerReduction, type Reduction } from "./reduce.js";
import { type ReductionAttributes, reducedType, requireElements, restoreAxes } from "./rule.js";

interface SharedGradient {
  readonly name: string;
  /** What was compared, of one element. */
  readonly compared: (x: Expression) => Expression;
  /** Its slope. */
  readonly slope?: (x: Expression) => Expression;
}

/** Of [upstream, x, result]: each row's upstream gradient goes in equal parts to the elements that are the result. */
export function shareAmongEqual(definition: SharedGradient): KernelOp<{ readonly axes: readonly number[] }> {
  const { name, compared, slope } = definition;
  const kernelFor = forDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [upstream, x, result] = [term.load(0, compute), term.load(1, compute), term.load(2, compute)];
    const isTuned = term.eq(compared(x), result);
    const share = term.div(
      term.mul(upstream, term.convert(isTuned, compute)),
      term.convert(term.reduced(0, "i32"), compute),
    );
    return {
      name,
      inputs: [dtype, dtype, dtype],
      outputs: [{ dtype, per: "element" }],
      scalars: [],
      stages: [
        { kind: "reduce", op: "add", value: isTuned },
        { kind: "store", output: 0, value: slope ? term.mul(share, slope(x)) : share },
      ],
    };
  });
  return {
    kind: "kernel",
    name,
    noGradient: "gradients of gradients are not recorded",
    infer: (operands) => [typeAt(name, operands, 1)].map(({ shape, dtype }) => ({ shape, dtype })),
    lower(lowering, operands, outputs, { axes }) {
      const inputs = [0, 1, 2].map((index) => arrayAt(operands, index));
      const { shape, dtype } = arrayAt(operands, 1);
      passRows(lowering, { kernel: kernelFor(dtype), shape, axes, inputs, outputs });
    },
  };
}

function extreme(name: "amax" | "amin", op: "max" | "min"): KernelOp<ReductionAttributes> {
  const identity = op === "max" ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const reduction: Reduction = { name, op, value: (x) => x, identity };
  const share = shareAmongEqual({ name: `${name}Gradient`, compared: (x) => x });
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
