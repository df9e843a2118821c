/**
 * Reductions of a few elements that are no row in memory, such as a window's: an elementwise kernel with an input for each of them. It
 * reads each element once. As rows, they would be copied first.
 */

import { dtypes, iterateElements, type RowKernel, term } from "../../ir/index.js";
import { contiguousStrides, type DeviceArray, type Layout } from "../device-array.js";
import { viewStrided } from "../movement/strided-view.js";
import type { Lowering } from "../op.js";
import { sizeOf } from "../shape.js";
import { applyFactor, type Reduction } from "./reduction.js";

/** A kernel has an address for each of its inputs. */
const maxInputs = 16;

/** True if the reduced axes have few enough elements. */
export function isShort({ shape }: Layout): boolean {
  return sizeOf(shape) <= maxInputs;
}

/** Reduces the axes of `reduced`. The output has those of `kept`, in order and contiguous. */
export function reduceShort(
  lowering: Lowering,
  reduction: Reduction,
  input: DeviceArray,
  { kept, reduced }: { readonly kept: Layout; readonly reduced: Layout },
  output: DeviceArray,
  factor: number,
): void {
  const inputs = offsetsOf(reduced).map((offset) => viewStrided(lowering, input, { ...kept, offset }));
  if (!output.storage) return;
  lowering.row({
    kernel: kernelOf(reduction, input, output, inputs.length),
    iteration: iterateElements(kept.shape, [
      ...inputs.map(({ strides }) => strides),
      contiguousStrides(kept.shape),
    ]),
    operands: [...inputs.flatMap(({ storage }) => storage ?? []), output.storage],
    scalars: [factor],
  });
}

/** The offsets of all elements from the first, in row-major order. */
function offsetsOf({ shape, strides }: Layout): readonly number[] {
  return shape.reduce<readonly number[]>(
    (offsets, size, axis) =>
      offsets.flatMap((offset) =>
        Array.from({ length: size }, (_, at) => offset + at * (strides[axis] ?? 0)),
      ),
    [0],
  );
}

const kernels = new Map<string, RowKernel>();

function kernelOf(
  reduction: Reduction,
  { dtype: from }: DeviceArray,
  { dtype: to }: DeviceArray,
  count: number,
): RowKernel {
  const key = `${reduction.name} ${from} ${to} ${count}`;
  const cached = kernels.get(key);
  if (cached) return cached;
  const { compute } = dtypes[to];
  const values = Array.from({ length: count }, (_, index) =>
    reduction.value(term.load(index, dtypes[from].compute)),
  );
  const total = values.reduce((reduced, value) => term[reduction.op](reduced, value));
  const kernel: RowKernel = {
    name: reduction.name,
    inputs: values.map(() => from),
    outputs: [{ dtype: to, per: "element" }],
    scalars: [compute],
    stages: [{ kind: "store", output: 0, value: applyFactor(reduction, term.convert(total, compute)) }],
  };
  kernels.set(key, kernel);
  return kernel;
}
