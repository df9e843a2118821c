/** Copies elements from one array to another of the same shape, whatever their layouts and dtypes. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../ir/index.js";
import { capabilitiesOf, isInWords, launchCopies, launchRows, type PlainCopy } from "../kernels/index.js";
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
  const plain = plainCopy(source, target);
  if (plain) {
    runtime.copy(plain.target, plain.source);
    return;
  }
  launchRows(runtime, {
    kernel: copyKernel(source.dtype, target.dtype),
    iteration: iterateElements(target.shape, [broadcastStrides(source, target.shape), target.strides]),
    operands: [source.storage, target.storage],
  });
}

export interface ArrayCopy {
  readonly source: DeviceArray;
  readonly target: DeviceArray;
}

/** Several copies, in no order; a GPU is asked once for all that are plain. No target overlaps another, or a source. */
export function copyArrays(runtime: Runtime, copies: readonly ArrayCopy[]): void {
  // A copy that is only imagined may yet turn out to be none.
  const isGathered = capabilitiesOf(runtime).combinesKernels && !runtime.isTracing;
  const together: PlainCopy[] = [];
  for (const { source, target } of copies) {
    const plain = isGathered ? plainCopy(source, target) : undefined;
    if (plain && isInWords(plain)) together.push(plain);
    else copyArray(runtime, source, target);
  }
  if (together.length > 0) launchCopies(runtime, together);
}

/** The bytes to copy, where it is nothing more than that. */
function plainCopy(source: DeviceArray, target: DeviceArray): PlainCopy | undefined {
  if (!source.storage || !target.storage || source.dtype !== target.dtype) return undefined;
  if (source.storage.span.size !== target.storage.span.size) return undefined;
  if (!isContiguous(source) || !isContiguous(target)) return undefined;
  return { source: source.storage, target: target.storage };
}
