/** Copies elements from one array to another of the same shape, whatever their layouts and dtypes. */

import { type Dtype, dtypes, iterateElements, launchRows, type RowKernel, term } from "../kernels/index.js";
import type { Runtime } from "../runtime/index.js";
import { broadcastStrides, type DeviceArray, isContiguous } from "./device-array.js";
import { sizeOf } from "./shape.js";

const kernels = new Map<string, RowKernel>();

function copyKernel(from: Dtype, to: Dtype): RowKernel {
  const key = `${from} ${to}`;
  const known = kernels.get(key);
  if (known) return known;
  const value = term.load(0, dtypes[from].compute);
  const truth = to === "bool" && from !== "bool" ? term.ne(value, 0) : value;
  const kernel: RowKernel = {
    name: from === to ? "copy" : `${from} to ${to}`,
    inputs: [from],
    outputs: [{ dtype: to, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: term.convert(truth, dtypes[to].compute) }],
  };
  kernels.set(key, kernel);
  return kernel;
}

/** The source is stretched to the target's shape where it broadcasts. */
export function copyArray(runtime: Runtime, source: DeviceArray, target: DeviceArray): void {
  if (!source.storage || !target.storage || sizeOf(target.shape) === 0) return;
  const isPlain = source.dtype === target.dtype && source.storage.span.size === target.storage.span.size;
  if (isPlain && isContiguous(source) && isContiguous(target)) {
    runtime.copy(target.storage, source.storage);
    return;
  }
  launchRows(runtime, {
    kernel: copyKernel(source.dtype, target.dtype),
    iteration: iterateElements(target.shape, [broadcastStrides(source, target.shape), target.strides]),
    operands: [source.storage, target.storage],
  });
}
