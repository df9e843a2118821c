/** maskedFill: sets elements to one value where a mask is true. */

import { HoldfastError } from "../../errors/index.js";
import { cast } from "../elementwise/cast.js";
import { where } from "../elementwise/comparisons.js";
import { type CompositeOp, type OperandType, typeAt } from "../op.js";
import { broadcastShapes } from "../shape.js";

/** Operands: the array, the mask, and the value, which is a number or an array without axes. The result has the array's dtype. */
export const maskedFill: CompositeOp = {
  kind: "composite",
  name: "maskedFill",
  infer(operands: readonly OperandType[]) {
    const { shape, dtype } = typeAt("maskedFill", operands, 0);
    const mask = typeAt("maskedFill", operands, 1);
    if (mask.dtype === "bool") {
      return [{ shape: broadcastShapes("maskedFill", [shape, mask.shape]), dtype }];
    }
    throw new HoldfastError(
      "BAD_DTYPE",
      `maskedFill got a mask of ${mask.dtype}; a mask is bool. Compare first: mask.ne(0).`,
      { numbers: { op: "maskedFill" } },
    );
  },
  compose({ apply, typeOf }, [x = 0, mask = 0, value = 0]) {
    const { dtype } = typeOf(x);
    const filled = apply(where, [mask, value, x]);
    return [typeOf(filled).dtype === dtype ? filled : apply(cast, [filled], { dtype })];
  },
};
