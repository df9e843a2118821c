/** cumsum: along an axis, the sum of each element and all before it, or in reverse all after it. Each is the other's gradient. */

import { dtypes } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { isContiguous } from "../device-array.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { axisOf, sizeOf } from "../shape.js";
import { sumDtype } from "./sum-dtype.js";

/** `isReversed`: sums from the end of the axis. */
export type CumsumAttributes = {
  readonly axis: number;
  readonly isReversed?: boolean;
};

/** Booleans and integers of up to 32 bits are summed in i32, half floats in f32. */
export const cumsum: KernelOp<CumsumAttributes> = {
  kind: "kernel",
  name: "cumsum",
  infer(operands, { axis }) {
    const { shape, dtype } = typeAt("cumsum", operands, 0);
    axisOf("cumsum", axis, shape.length);
    return [{ shape, dtype: sumDtype(dtype) }];
  },
  gradient({ apply, upstream, attributes: { axis, isReversed = false } }) {
    return [apply(cumsum, [upstream], { axis, isReversed: !isReversed })];
  },
  lower(lowering, operands, [output], { axis, isReversed = false }) {
    const input = arrayAt(operands, 0);
    if (!output?.storage || !input.storage) return;
    const dtype = dtypes[output.dtype].compute;
    const sums = output.dtype === dtype ? output : lowering.scratchArray(output.shape, dtype);
    const isReadDirectly = input.dtype === dtype && isContiguous(input);
    if (!isReadDirectly) copyArray(lowering, input, sums);
    const source = isReadDirectly ? input.storage : sums.storage;
    if (!source || !sums.storage) return;
    const { shape } = output;
    const scanAxis = axisOf("cumsum", axis, shape.length);
    const scan = {
      dtype,
      outer: sizeOf(shape.slice(0, scanAxis)),
      length: shape[scanAxis] ?? 1,
      inner: sizeOf(shape.slice(scanAxis + 1)),
      input: source,
      output: sums.storage,
      op: "add",
      isReversed,
    } as const;
    lowering.scan(scan);
    if (sums !== output) copyArray(lowering, sums, output);
  },
};
