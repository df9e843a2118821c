/** Lowers an op of linear algebra: one launch of a host kernel, with a block for each matrix of the batch. */

import type { KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";

export interface DenseCall {
  readonly kernel: KernelSource;
  readonly inputs: readonly DeviceArray[];
  readonly outputs: readonly DeviceArray[];
  /** The number of matrices. Each array has this many equal parts. */
  readonly batch: number;
  readonly numbers: readonly number[];
}

/** Half floats are computed by way of f32. Outputs of inputs without elements are zeros. */
export function lowerDense(lowering: Lowering, { kernel, inputs, outputs, batch, numbers }: DenseCall): void {
  if (!lowering.backend.capabilities.runsHostKernels) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `${lowering.op}: decompositions and solvers of linear algebra run on the CPU. Read the matrix with data(), and compute on a tensor of device("cpu").`,
      { numbers: { op: lowering.op } },
    );
  }
  const isSingle = [...inputs, ...outputs].every(({ dtype }) => dtype !== "f64");
  const float = isSingle ? "f32" : "f64";
  const sources = inputs.map((input) => {
    const dtype = input.dtype === "i32" ? "i32" : float;
    if (input.dtype === dtype && isContiguous(input)) return input;
    const copy = lowering.scratchArray(input.shape, dtype);
    copyArray(lowering, input, copy);
    return copy;
  });
  const targets = outputs.map((output) =>
    output.dtype === "i32" || output.dtype === float ? output : lowering.scratchArray(output.shape, float),
  );
  const memory = [...sources, ...targets].map(({ storage }) => storage);
  const counts = [...sources, ...targets].map(({ shape }) => sizeOf(shape) / Math.max(1, batch));
  const storages = memory.flatMap((storage) => (storage ? [storage] : []));
  if (storages.length < memory.length) {
    for (const { storage } of outputs) if (storage) lowering.fill(storage, 0);
    return;
  }
  lowering.launch({
    op: lowering.op,
    source: kernel,
    blocks: batch,
    arguments: [...storages, isSingle ? 1 : 0, ...counts, ...numbers],
  });
  for (const [index, target] of targets.entries()) {
    const output = outputs[index];
    if (output && output !== target) copyArray(lowering, target, output);
  }
}
