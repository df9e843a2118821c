/** Copies elements at positions from an index: the lowering of indexSelect, gather and embedding, and of drawing batches. */

import { type Dtype, dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { type KernelCall, rowCalls } from "../../kernels/index.js";
import type { DeviceArray, Strides } from "../device-array.js";
import type { Lowering } from "../op.js";
import { fillCalls } from "../reduction/reduce.js";

export interface IndexedCopy {
  readonly source: DeviceArray;
  /** The source's strides along the output's axes; 0 along axes that the index selects from. */
  readonly sourceStrides: Strides;
  readonly index: DeviceArray;
  /** The index's strides along the output's axes. */
  readonly indexStrides: Strides;
  /** The source's stride along the indexed axis, and the axis' length. */
  readonly step: number;
  readonly length: number;
  readonly output: DeviceArray;
}

/** An index outside the axis gives NaN, or 0 for integers, and reads no memory: a compiled step can't reject it. */
export function indexedCopyCalls(copy: IndexedCopy): readonly KernelCall[] {
  const { source, sourceStrides, index, indexStrides, step, length, output } = copy;
  if (!index.storage || !output.storage) return [];
  if (!source.storage) return fillCalls(output, outOfRangeValue(source.dtype));
  return rowCalls({
    kernel: kernelFor(source.dtype, index.dtype),
    iteration: iterateElements(output.shape, [sourceStrides, indexStrides, output.strides]),
    operands: [source.storage, index.storage, output.storage],
    scalars: [step, length - 1],
  });
}

/** Emits the calls of an indexed copy. */
export function copyIndexed(lowering: Pick<Lowering, "emit">, copy: IndexedCopy): void {
  lowering.emit(indexedCopyCalls(copy));
}

/** The result for an index outside the axis. */
function outOfRangeValue(dtype: Dtype): number {
  return dtypes[dtype].kind === "float" ? Number.NaN : 0;
}

const kernels = new Map<string, RowKernel>();

function kernelFor(dtype: Dtype, indexDtype: Dtype): RowKernel {
  const key = `${dtype} ${indexDtype}`;
  const { compute } = dtypes[dtype];
  const index = term.index(1, indexDtype);
  const isInside = term.min(term.ge(index, 0), term.le(index, term.scalar(1, "i32")));
  const offset = term.mul(term.select(isInside, index, 0), term.scalar(0, "i32"));
  const fallback = term.constant(outOfRangeValue(dtype), compute);
  const kernel: RowKernel = kernels.get(key) ?? {
    name: "indexed copy",
    inputs: [dtype, indexDtype],
    outputs: [{ dtype, per: "element" }],
    scalars: ["i32", "i32"],
    stages: [
      { kind: "store", output: 0, value: term.select(isInside, term.load(0, compute, offset), fallback) },
    ],
  };
  kernels.set(key, kernel);
  return kernel;
}
