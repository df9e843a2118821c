/** The check of literal numbers for integer tensors. */

import { type Dtype, dtypes } from "../../ir/index.js";

/** Rejects fractions for integer tensors: they are not rounded. */
export function rejectFractions(dtype: Dtype, numbers: readonly number[]): string | undefined {
  const fraction = numbers.find(
    (number) => !Number.isInteger(number) && Math.abs(number) !== Number.POSITIVE_INFINITY,
  );
  if (dtypes[dtype].kind === "float" || fraction === undefined) return undefined;
  return `${fraction} with a tensor of ${dtype}, which holds whole numbers. Pass a whole number, or convert the tensor: to("f32").`;
}
