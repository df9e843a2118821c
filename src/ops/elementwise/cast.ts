/** cast: converts to another dtype. Floats are truncated to integers. Every value except 0 becomes true. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { keptStrides } from "../device-array.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";

export const cast: KernelOp<{ readonly dtype: Dtype }> = {
  kind: "kernel",
  name: "cast",
  infer(operands, { dtype }) {
    requireDtype("to", dtype);
    return [{ shape: typeAt("cast", operands, 0).shape, dtype }];
  },
  gradient: (rule) => [rule.apply(cast, [rule.upstream], { dtype: rule.typeOf(0).dtype })],
  outputStrides: (_, operands, [type]) => [type && keptStrides(operands, type.shape)],
  lower(lowering, operands, [output]) {
    if (output) copyArray(lowering, arrayAt(operands, 0), output);
  },
};

/** contiguous: a copy in row-major order. */
export const contiguous: KernelOp = {
  kind: "kernel",
  name: "contiguous",
  infer: (operands) => [typeAt("contiguous", operands, 0)].map(({ shape, dtype }) => ({ shape, dtype })),
  gradient: (rule) => [rule.upstream],
  lower(lowering, operands, [output]) {
    if (output) copyArray(lowering, arrayAt(operands, 0), output);
  },
};

/** Rejects unknown dtypes, for callers in JavaScript. */
export function requireDtype(op: string, dtype: Dtype): void {
  if (Object.hasOwn(dtypes, dtype)) return;
  throw new HoldfastError(
    "BAD_DTYPE",
    `${op}: unknown dtype "${dtype}". The dtypes are ${Object.keys(dtypes).join(", ")}.`,
    { numbers: { op, dtype } },
  );
}
