/** flip: a copy with the elements along some axes in reverse order. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { axesOf } from "../shape.js";

export const flip: KernelOp<{ readonly axes: number | readonly number[] }> = {
  kind: "kernel",
  name: "flip",
  infer(operands, { axes }) {
    const { shape, dtype } = typeAt("flip", operands, 0);
    axesOf("flip", axes, shape.length);
    return [{ shape, dtype }];
  },
  gradient: (rule) => [rule.apply(flip, [rule.upstream], rule.attributes)],
  lower(lowering, operands, [output], { axes }) {
    const { shape, strides, dtype, storage } = arrayAt(operands, 0);
    if (!storage || !output?.storage) return;
    const flipped = axesOf("flip", axes, shape.length);
    // Reading starts at the last element of each flipped axis and goes back with negative strides.
    const start = flipped.reduce((sum, axis) => sum + ((shape[axis] ?? 1) - 1) * (strides[axis] ?? 0), 0);
    const readStrides = strides.map((stride, axis) => (flipped.includes(axis) ? -stride : stride));
    lowering.row({
      kernel: offsetCopy(dtype),
      iteration: iterateElements(shape, [readStrides, output.strides]),
      operands: [storage, output.storage],
      scalars: [start],
    });
  },
};

const kernels = new Map<Dtype, RowKernel>();

/** A copy that starts at an offset in the operand. Scalar: the offset in elements. */
function offsetCopy(dtype: Dtype): RowKernel {
  const { compute } = dtypes[dtype];
  const kernel: RowKernel = kernels.get(dtype) ?? {
    name: "flip",
    inputs: [dtype],
    outputs: [{ dtype, per: "element" }],
    scalars: ["i32"],
    stages: [{ kind: "store", output: 0, value: term.load(0, compute, term.scalar(0, "i32")) }],
  };
  kernels.set(dtype, kernel);
  return kernel;
}
