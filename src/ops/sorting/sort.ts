/** sort: the elements along an axis in ascending or descending order, and their indices. */

import { type Dtype, dtypes, iterateElements, iterateRows } from "../../ir/index.js";
import { type HostSortDtype, hostSortDtypes, hostSortKernel, maxMergedRow } from "../../kernels/index.js";
import { copyArray } from "../copy.js";
import { type DeviceArray, isContiguous } from "../device-array.js";
import { gatherGradient } from "../indexing/gather.js";
import { arrayAt, type KernelOp, type Lowering, typeAt } from "../op.js";
import { axisOf, type Shape, sizeOf } from "../shape.js";
import {
  firstPassKernel,
  firstRun,
  mergeKernel,
  positionKernel,
  positionRow,
  searchSteps,
} from "./sort-kernels.js";

export type SortAttributes = { readonly axis: number; readonly isDescending: boolean };

/** Outputs: values, and their indices as i32. Equal elements keep their order; NaN counts as the largest number. */
export const sort: KernelOp<SortAttributes> = {
  kind: "kernel",
  name: "sort",
  infer(operands, { axis }) {
    const { shape, dtype } = typeAt("sort", operands, 0);
    if (shape.length > 0) axisOf("sort", axis, shape.length);
    return [
      { shape, dtype },
      { shape, dtype: "i32" },
    ];
  },
  saves: () => ({ outputs: [1] }),
  gradient(rule) {
    const { shape } = rule.typeOf(0);
    if (shape.length === 0) return [rule.upstream];
    const axis = axisOf("sort", rule.attributes.axis, shape.length);
    return [rule.apply(gatherGradient, [rule.upstream, rule.output(1)], { shape, axis })];
  },
  lower(lowering, operands, [values, indices], { axis, isDescending }) {
    const input = arrayAt(operands, 0);
    const { shape } = input;
    if (!values?.storage || !indices?.storage || sizeOf(shape) === 0) return;
    const sortedAxis = shape.length === 0 ? 0 : axisOf("sort", axis, shape.length);
    const toLast = (array: DeviceArray): DeviceArray => ({
      ...array,
      shape: moveToEnd(array.shape, sortedAxis),
      strides: moveToEnd(array.strides, sortedAxis),
    });
    const result = { keys: toLast(values), order: toLast(indices) };
    const isOnHost = lowering.backend.capabilities.runsHostKernels && (shape[sortedAxis] ?? 1) > maxMergedRow;
    (isOnHost ? sortOnHost : sortRows)(lowering, toLast(input), result, isDescending);
  },
};

/** Sorts the last axis. Each pass reads one pair of arrays and writes another; the last one writes the result if that is contiguous. */
function sortRows(lowering: Lowering, input: DeviceArray, result: Run, isDescending: boolean): void {
  const { shape, dtype } = input;
  const length = shape.at(-1) ?? 1;
  const positions = positionsOf(lowering, shape);
  const distances = lowering.scratchArray(shape, "i32");
  const isDirect = isContiguous(result.keys) && isContiguous(result.order);
  const passes = 1 + Math.max(0, Math.ceil(Math.log2(length / firstRun)));
  const runs = Array.from({ length: Math.min(2, isDirect ? passes - 1 : passes) }, () =>
    makeRun(lowering, shape, dtype),
  );
  let from: Run = { keys: readableRows(lowering, input), order: positions };
  for (let pass = 0; pass < passes; pass++) {
    const to = (pass === passes - 1 && isDirect ? undefined : runs[pass % 2]) ?? result;
    const run = firstRun * 2 ** (pass - 1);
    const arrays = [from.keys, from.order, positions, distances, distances, to.keys, to.order];
    lowering.row({
      kernel:
        pass === 0
          ? firstPassKernel(dtype, isDescending)
          : mergeKernel(dtype, isDescending, searchSteps(run)),
      iteration: iterateElements(
        shape,
        arrays.map(({ strides }) => strides),
      ),
      operands: arrays.flatMap(({ storage }) => storage ?? []),
      scalars: pass === 0 ? [length] : [length, run, -2 * run],
    });
    from = to;
  }
  if (isDirect) return;
  copyArray(lowering, from.keys, result.keys);
  copyArray(lowering, from.order, result.order);
}

/** One launch of a kernel in JavaScript, with a block for each row. Narrow dtypes are sorted as f32 or i32. */
function sortOnHost(lowering: Lowering, input: DeviceArray, result: Run, isDescending: boolean): void {
  const { shape } = input;
  const length = shape.at(-1) ?? 1;
  const dtype = hostSortDtypes.find((sorted) => sorted === input.dtype) ?? narrowSortDtype(input.dtype);
  const matching = (array: DeviceArray, wanted: Dtype): DeviceArray =>
    array.dtype === wanted && isContiguous(array) ? array : lowering.scratchArray(shape, wanted);
  const [source, keys] = [matching(input, dtype), matching(result.keys, dtype)];
  const order = matching(result.order, "i32");
  if (source !== input) copyArray(lowering, input, source);
  lowering.launch({
    op: lowering.op,
    source: hostSortKernel(dtype, isDescending),
    blocks: sizeOf(shape) / length,
    arguments: [...[source, keys, order].flatMap(({ storage }) => storage ?? []), length],
  });
  if (keys !== result.keys) copyArray(lowering, keys, result.keys);
  if (order !== result.order) copyArray(lowering, order, result.order);
}

/** All values of a narrow dtype are values of this one. */
function narrowSortDtype(dtype: Dtype): HostSortDtype {
  return dtypes[dtype].kind === "float" ? "f32" : "i32";
}

/** The sorted elements so far, and their indices in their row. */
interface Run {
  readonly keys: DeviceArray;
  readonly order: DeviceArray;
}

function makeRun(lowering: Lowering, shape: Shape, dtype: Dtype): Run {
  return { keys: lowering.scratchArray(shape, dtype), order: lowering.scratchArray(shape, "i32") };
}

/** The array if the elements of its rows are neighbours, as indexed loads need; otherwise a copy. */
function readableRows(lowering: Lowering, array: DeviceArray): DeviceArray {
  if (array.strides.at(-1) === 1) return array;
  const copy = lowering.scratchArray(array.shape, array.dtype);
  copyArray(lowering, array, copy);
  return copy;
}

function moveToEnd(list: Shape, axis: number): Shape {
  return list.length === 0 ? [1] : [...list.toSpliced(axis, 1), list[axis] ?? 1];
}

/** 0, 1, … along the last axis, the same for all rows. */
function positionsOf(lowering: Lowering, shape: Shape): DeviceArray {
  const rows = Math.ceil((shape.at(-1) ?? 1) / positionRow);
  const storage = lowering.scratch(4 * rows * positionRow); // i32
  lowering.row({
    kernel: positionKernel,
    iteration: iterateRows([rows, positionRow], [[positionRow, 1]], 1),
    operands: [storage],
    scalars: [],
  });
  return {
    shape,
    strides: shape.map((_, axis) => (axis === shape.length - 1 ? 1 : 0)),
    dtype: "i32",
    storage,
  };
}
