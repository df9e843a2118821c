/**
 * Lowers a row kernel along any axes of any layout. The axes become the kernel's rows, and inputs broadcast to the iterated shape.
 * Operands without rows in memory go through a copy.
 */

import { type Dtype, iterateRows, type RowKernel } from "../ir/index.js";
import { copyArray } from "./copy.js";
import { broadcastStrides, contiguousStrides, type DeviceArray, mergeAxes } from "./device-array.js";
import type { Lowering } from "./op.js";
import { fillWith, rowsOf, splitAxes } from "./reduction/reduce.js";
import { type Shape, sizeOf } from "./shape.js";

export interface RowLowering {
  readonly kernel: RowKernel;
  /** The iterated shape, and which of its axes form a row. */
  readonly shape: Shape;
  readonly axes: readonly number[];
  /** Each broadcasts to the shape. An input with size 1 along the row's axes has one value for each row. */
  readonly inputs: readonly DeviceArray[];
  /** Contiguous. By the kernel's `per`: of the iterated shape, or one element for each row. */
  readonly outputs: readonly DeviceArray[];
  readonly scalars?: readonly number[];
  /** The result for rows without elements. Default: NaN. */
  readonly emptyValue?: number;
}

export function lowerRows(lowering: Lowering, rows: RowLowering): void {
  const { kernel, shape, axes, inputs, outputs, scalars = [], emptyValue: ofNothing = Number.NaN } = rows;
  if (sizeOf(shape) === 0) {
    for (const output of outputs) fillWith(lowering, output, ofNothing);
    return;
  }
  const sources = inputs.map((input) =>
    rowsOf(lowering, { ...input, shape, strides: broadcastStrides(input, shape) }, axes),
  );
  const targets = outputs.map((output, index) =>
    kernel.outputs[index]?.per === "row"
      ? rowTarget(output, shape, axes)
      : elementTarget(lowering, output, axes),
  );
  const { kept, reduced } = splitAxes({ shape, strides: contiguousStrides(shape) }, axes);
  const operands = [...sources, ...targets.map((target) => target.rows)];
  lowering.row({
    kernel,
    iteration: iterateRows(
      [...kept.shape, sizeOf(reduced.shape)],
      operands.map(({ strides }) => strides),
      1,
    ),
    operands: operands.flatMap(({ storage }) => storage ?? []),
    scalars,
  });
  for (const { copyBack } of targets) copyBack?.();
}

/** Calls `make` once for each combination of dtypes. A kernel's key is then computed once too. */
export function cacheByDtypes<T>(
  make: (...dtypes: readonly Dtype[]) => T,
): (...dtypes: readonly Dtype[]) => T {
  const cache = new Map<string, T>();
  return (...dtypes) => {
    const key = dtypes.join(" ");
    const value = cache.get(key) ?? make(...dtypes);
    cache.set(key, value);
    return value;
  };
}

interface Target {
  /** The memory that the kernel writes, as [kept…, row]. */
  readonly rows: DeviceArray;
  /** Copies the result from scratch memory to the output. */
  readonly copyBack?: () => void;
}

function rowTarget(output: DeviceArray, shape: Shape, axes: readonly number[]): Target {
  const kept = shape.filter((_, axis) => !axes.includes(axis));
  return { rows: { ...output, shape: [...kept, 1], strides: [...contiguousStrides(kept), 0] } };
}

function elementTarget(lowering: Lowering, output: DeviceArray, axes: readonly number[]): Target {
  const { kept, reduced } = splitAxes(output, axes);
  const shape = [...kept.shape, sizeOf(reduced.shape)];
  const merged = mergeAxes(reduced);
  if (merged && (merged.stride === 1 || merged.size === 1)) {
    return { rows: { ...output, shape, strides: [...kept.strides, merged.stride] } };
  }
  const rows = lowering.scratchArray(shape, output.dtype);
  const splitShape = [...kept.shape, ...reduced.shape];
  const source = { ...rows, shape: splitShape, strides: contiguousStrides(splitShape) };
  const target = { ...output, shape: splitShape, strides: [...kept.strides, ...reduced.strides] };
  return { rows, copyBack: () => copyArray(lowering, source, target) };
}
