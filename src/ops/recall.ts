/**
 * Ops whose result is in memory already, while their operands are not. A recorded gradient uses them: it differentiates a value that the forward
 * pass has saved, and needs no operand that it has not.
 */

import { copyArray } from "./copy.js";
import { cast } from "./elementwise/cast.js";
import { type Attributes, arrayAt, type KernelOp, typeAt } from "./op.js";

/**
 * The given op, but its last operand is its result. The gradients go to the other operands, which may be links (`GradientRule.link`): the
 * lowering does not read them.
 */
export function recalled<A extends Attributes>({
  name,
  saves,
  gradient,
}: Pick<KernelOp<A>, "name" | "saves" | "gradient">): KernelOp<A> {
  return {
    kind: "kernel",
    name: `recalled ${name}`,
    infer(operands) {
      const { shape, dtype } = typeAt(name, operands, operands.length - 1);
      return [{ shape, dtype }];
    },
    ...(saves && { saves }),
    ...(gradient && { gradient }),
    lower(lowering, operands, [output]) {
      if (output?.storage) copyArray(lowering, arrayAt(operands, operands.length - 1), output);
    },
  };
}

/** Operands: a link to a value, and its elements, maybe in another dtype. */
export const recall = recalled({
  name: "value",
  gradient: (rule) => [rule.apply(cast, [rule.upstream], { dtype: rule.typeOf(0).dtype })],
});
