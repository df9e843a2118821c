/** oneHot: a row for each label, 1 at the label and 0 elsewhere. */

import { type Dtype, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp } from "../op.js";
import { requireSize } from "../shape.js";
import { indexTypeAt, requireIndicesInside } from "./index-values.js";

export const oneHot: KernelOp<{ readonly classes: number }> = {
  kind: "kernel",
  name: "oneHot",
  noGradient: "labels have no derivative",
  infer(operands, { classes }) {
    const { shape } = indexTypeAt("oneHot", operands, 0);
    requireSize("oneHot", classes, "the number of classes");
    return [{ shape: [...shape, classes], dtype: "i32" }];
  },
  check(lowering, operands, { classes }) {
    requireIndicesInside(lowering, arrayAt(operands, 0), classes, `there are ${classes} classes`);
  },
  lower(lowering, operands, [output]) {
    const { dtype, storage, strides } = arrayAt(operands, 0);
    if (!storage || !output?.storage) return;
    lowering.row({
      kernel: kernelFor(dtype),
      iteration: iterateRows(output.shape, [[...strides, 0], output.strides], 1),
      operands: [storage, output.storage],
    });
  },
};

const kernels = new Map<Dtype, RowKernel>();

function kernelFor(dtype: Dtype): RowKernel {
  const kernel: RowKernel = kernels.get(dtype) ?? {
    name: "oneHot",
    inputs: [dtype],
    outputs: [{ dtype: "i32", per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: term.eq(term.index(0, dtype), term.position) }],
  };
  kernels.set(dtype, kernel);
  return kernel;
}
