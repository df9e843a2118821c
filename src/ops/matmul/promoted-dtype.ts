/** The dtype of a matrix product with more than two operands. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, promote } from "../../ir/index.js";
import { type OperandType, typeAt } from "../op.js";

/** The promoted dtype of all operands. Rejects it if it is not a float. */
export function promotedFloatDtype(op: string, operands: readonly OperandType[]): Dtype {
  const dtype = operands.map((_, index) => typeAt(op, operands, index).dtype).reduce(promote);
  if (dtypes[dtype].kind === "float") return dtype;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op} of ${dtype}: a matrix product needs floats. Convert with to("f32").`,
  );
}
