/** Copies elements between arrays of the same shape, with any layouts and dtypes. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../ir/index.js";
import { backendOf, isInWords, type KernelCall, type PlainCopy, rowCalls, submit } from "../kernels/index.js";
import type { Runtime } from "../runtime/index.js";
import { broadcastStrides, type DeviceArray, isContiguous } from "./device-array.js";
import type { Lowering } from "./op.js";
import { sizeOf } from "./shape.js";

const kernels = new Map<string, RowKernel>();

/** To TF32: an f32 whose low bits are 0. Half floats are numbers of TF32 already. */
type Rounding = "tf32";

function copyKernel(from: Dtype, to: Dtype, rounding?: Rounding | undefined): RowKernel {
  const rounds = rounding !== undefined && from === "f32" && to === "f32";
  const key = `${from} ${rounds ? rounding : to}`;
  const cached = kernels.get(key);
  if (cached) return cached;
  const value = term.load(0, dtypes[from].compute);
  const converted =
    to === "bool" && from !== "bool" ? term.ne(value, 0) : rounds ? term.roundTf32(value) : value;
  const kernel: RowKernel = {
    name: rounds ? `${from} to ${rounding}` : from === to ? "copy" : `${from} to ${to}`,
    inputs: [from],
    outputs: [{ dtype: to, per: "element" }],
    scalars: [],
    stages: [{ kind: "store", output: 0, value: term.convert(converted, dtypes[to].compute) }],
  };
  kernels.set(key, kernel);
  return kernel;
}

/** Emits the calls of a copy. */
export function copyArray(
  lowering: Pick<Lowering, "emit">,
  source: DeviceArray,
  target: DeviceArray,
  rounding?: Rounding | undefined,
): void {
  lowering.emit(copyCalls(source, target, rounding));
}

/** The source is broadcast to the target's shape. */
export function copyCalls(
  source: DeviceArray,
  target: DeviceArray,
  rounding?: Rounding | undefined,
): readonly KernelCall[] {
  if (!source.storage || !target.storage || sizeOf(target.shape) === 0) return [];
  const plain = rounding ? undefined : plainCopy(source, target);
  if (plain) return [{ kind: "copy", ...plain }];
  return rowCalls({
    kernel: copyKernel(source.dtype, target.dtype, rounding),
    iteration: iterateElements(target.shape, [broadcastStrides(source, target.shape), target.strides]),
    operands: [source.storage, target.storage],
  });
}

export interface ArrayCopy {
  readonly source: DeviceArray;
  readonly target: DeviceArray;
}

/** Submits several copies in any order. A GPU does all plain copies in one launch. No target overlaps another target or a source. */
export function copyArrays(runtime: Runtime, copies: readonly ArrayCopy[]): void {
  const backend = backendOf(runtime);
  // In a trace the copies stay separate: a pass may remove some of them.
  const isCombined = backend.capabilities.combinesKernels && !runtime.isTracing;
  const combined: PlainCopy[] = [];
  const calls: KernelCall[] = [];
  for (const { source, target } of copies) {
    const plain = isCombined ? plainCopy(source, target) : undefined;
    if (plain && isInWords(plain)) combined.push(plain);
    else calls.push(...copyCalls(source, target));
  }
  submit(runtime, [...calls, ...backend.lowerCopies(combined)]);
}

/** The copy as a copy of bytes; undefined if it converts or reorders elements. */
function plainCopy(source: DeviceArray, target: DeviceArray): PlainCopy | undefined {
  if (!source.storage || !target.storage || source.dtype !== target.dtype) return undefined;
  if (source.storage.span.size !== target.storage.span.size) return undefined;
  if (!isContiguous(source) || !isContiguous(target)) return undefined;
  return { source: source.storage, target: target.storage };
}
