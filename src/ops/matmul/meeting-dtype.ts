/** The dtype in which the operands of products over several matrices meet. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes, promote } from "../../ir/index.js";
import { type OperandType, typeAt } from "../op.js";

/** Promoted over all operands; rejects what is no float. */
export function meetingDtype(op: string, operands: readonly OperandType[]): Dtype {
  const dtype = operands.map((_, index) => typeAt(op, operands, index).dtype).reduce(promote);
  if (dtypes[dtype].kind === "float") return dtype;
  throw new HoldfastError("BAD_DTYPE", `${op} of ${dtype}: products need floats. Convert with to("f32").`);
}
