/** Copies elements from places that an index tells: what indexSelect, gather and embedding are lowered to, and batches drawn by. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { type KernelCall, rowCalls } from "../../kernels/index.js";
import type { DeviceArray, Strides } from "../device-array.js";
import type { Lowering } from "../op.js";
import { fillCalls } from "../reduction/reduce.js";

export interface IndexedCopy {
  readonly source: DeviceArray;
  /** The source's steps along the output's axes; 0 along those that the index tells. */
  readonly sourceStrides: Strides;
  readonly index: DeviceArray;
  /** The index's steps along the output's axes. */
  readonly indexStrides: Strides;
  /** Elements from one index to the next in the source, and how many there are. */
  readonly step: number;
  readonly length: number;
  readonly output: DeviceArray;
}

/** An index outside the axis reads nothing and gives NaN, or 0 where the dtype has none: a compiled step can't reject it. */
export function indexedCopyCalls(copy: IndexedCopy): readonly KernelCall[] {
  const { source, sourceStrides, index, indexStrides, step, length, output } = copy;
  if (!index.storage || !output.storage) return [];
  if (!source.storage) return fillCalls(output, valueOfNone(source.dtype));
  return rowCalls({
    kernel: kernelFor(source.dtype, index.dtype),
    iteration: iterateElements(output.shape, [sourceStrides, indexStrides, output.strides]),
    operands: [source.storage, index.storage, output.storage],
    scalars: [step, length - 1],
  });
}

/** As a part of a lowering. */
export function copyIndexed(lowering: Pick<Lowering, "emit">, copy: IndexedCopy): void {
  lowering.emit(indexedCopyCalls(copy));
}

/** What a bad index reads. */
function valueOfNone(dtype: Dtype): number {
  return dtypes[dtype].kind === "float" ? Number.NaN : 0;
}

const kernels = new Map<string, RowKernel>();

function kernelFor(dtype: Dtype, indexDtype: Dtype): RowKernel {
  const key = `${dtype} ${indexDtype}`;
  const { compute } = dtypes[dtype];
  const index = term.load(1, "i32");
  const isInside = term.min(term.ge(index, 0), term.le(index, term.scalar(1, "i32")));
  const at = term.mul(term.select(isInside, index, 0), term.scalar(0, "i32"));
  const none = term.constant(valueOfNone(dtype), compute);
  const kernel: RowKernel = kernels.get(key) ?? {
    name: "indexed copy",
    inputs: [dtype, indexDtype],
    outputs: [{ dtype, per: "element" }],
    scalars: ["i32", "i32"],
    stages: [{ kind: "store", output: 0, value: term.select(isInside, term.load(0, compute, at), none) }],
  };
  kernels.set(key, kernel);
  return kernel;
}
