/** The dtype of the result of an op with several operands. */

import { type Dtype, promote } from "../../ir/index.js";
import { isType, type OperandType } from "../op.js";

export function promotedDtype(operands: readonly OperandType[]): Dtype {
  const dtypes = operands.flatMap((operand) => (isType(operand) ? [operand.dtype] : []));
  return dtypes.reduce((result, dtype) => promote(result, dtype));
}
