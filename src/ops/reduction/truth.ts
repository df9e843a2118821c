/** all and any: whether every element is true, and whether one is. Anything but 0 is true, and so is NaN. */

import { type Expression, term } from "../../ir/index.js";
import { arrayAt, type KernelOp } from "../op.js";
import { axesOf } from "../shape.js";
import { lowerReduction, type Reduction } from "./reduce.js";
import { type ReductionAttributes, reducedType } from "./rule.js";

function truth(name: "all" | "any", op: "min" | "max", identity: 0 | 1): KernelOp<ReductionAttributes> {
  const reduction: Reduction = { name, op, value: (x: Expression) => term.ne(x, 0), identity };
  return {
    kind: "kernel",
    name,
    noGradient: "a truth value has no slope",
    infer: (operands, attributes) => [reducedType(name, operands, attributes, "bool")],
    lower(lowering, operands, [output], { axes }) {
      const input = arrayAt(operands, 0);
      if (output) lowerReduction(lowering, reduction, input, axesOf(name, axes, input.shape.length), output);
    },
  };
}

/** True of nothing. */
export const all = truth("all", "min", 1);
/** False of nothing. */
export const any = truth("any", "max", 0);
