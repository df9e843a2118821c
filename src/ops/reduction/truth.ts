/** all and any: whether every element is true, and whether at least one is. Every value except 0 is true, also NaN. */

import { type Expression, term } from "../../ir/index.js";
import { arrayAt, type KernelOp } from "../op.js";
import { axesOf } from "../shape.js";
import { lowerReduction } from "./reduce.js";
import type { Reduction } from "./reduction.js";
import { type ReductionAttributes, reducedType } from "./rule.js";

function truthReduction(
  name: "all" | "any",
  op: "min" | "max",
  identity: 0 | 1,
): KernelOp<ReductionAttributes> {
  const reduction: Reduction = { name, op, value: (x: Expression) => term.ne(x, 0), identity };
  return {
    kind: "kernel",
    name,
    noGradient: "a boolean has no derivative",
    infer: (operands, attributes) => [reducedType(name, operands, attributes, "bool")],
    lower(lowering, operands, [output], { axes }) {
      const input = arrayAt(operands, 0);
      if (output) lowerReduction(lowering, reduction, input, axesOf(name, axes, input.shape.length), output);
    },
  };
}

/** True for no elements. */
export const all = truthReduction("all", "min", 1);
/** False for no elements. */
export const any = truthReduction("any", "max", 0);
