/**
 * Runs a row kernel along any axes of any layout: the axes become the kernel's rows, operands stretch to the shape that
 * is walked, and what does not lie as rows in memory goes through a copy.
 */

import { type Dtype, iterateRows, type RowKernel } from "../ir/index.js";
import { copyArray } from "./copy.js";
import { broadcastStrides, contiguousStrides, type DeviceArray, joinAxes } from "./device-array.js";
import type { Lowering } from "./op.js";
import { fillWith, rowsOf, splitAxes } from "./reduction/reduce.js";
import { type Shape, sizeOf } from "./shape.js";

export interface RowPass {
  readonly kernel: RowKernel;
  /** What is walked, and which of its axes make a row. */
  readonly shape: Shape;
  readonly axes: readonly number[];
  /** Each stretches to the shape; one that has size 1 along the row's axes has one value for each row. */
  readonly inputs: readonly DeviceArray[];
  /** Contiguous: of the whole shape, or one element for each row, as the kernel says. */
  readonly outputs: readonly DeviceArray[];
  readonly scalars?: readonly number[];
  /** What is stored for rows of no elements. */
  readonly ofNothing?: number;
}

export function passRows(lowering: Lowering, pass: RowPass): void {
  const { kernel, shape, axes, inputs, outputs, scalars = [], ofNothing = Number.NaN } = pass;
  if (sizeOf(shape) === 0) {
    for (const output of outputs) fillWith(lowering, output, ofNothing);
    return;
  }
  const seen = inputs.map((input) =>
    rowsOf(lowering, { ...input, shape, strides: broadcastStrides(input, shape) }, axes),
  );
  const targets = outputs.map((output, index) =>
    kernel.outputs[index]?.per === "row"
      ? oneForEachRow(output, shape, axes)
      : targetFor(lowering, output, axes),
  );
  const { kept, reduced } = splitAxes({ shape, strides: contiguousStrides(shape) }, axes);
  const operands = [...seen, ...targets.map(({ rows }) => rows)];
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
  for (const { finish } of targets) finish?.();
}

/** Makes something once for each combination of dtypes, so that its key is worked out once. */
export function forDtypes<T>(make: (...dtypes: readonly Dtype[]) => T): (...dtypes: readonly Dtype[]) => T {
  const made = new Map<string, T>();
  return (...dtypes) => {
    const key = dtypes.join(" ");
    const one = made.get(key) ?? make(...dtypes);
    made.set(key, one);
    return one;
  };
}

interface Target {
  /** Seen as [kept…, row]. */
  readonly rows: DeviceArray;
  /** Brings what was written to where it belongs. */
  readonly finish?: () => void;
}

function oneForEachRow(output: DeviceArray, shape: Shape, axes: readonly number[]): Target {
  const kept = shape.filter((_, axis) => !axes.includes(axis));
  return { rows: { ...output, shape: [...kept, 1], strides: [...contiguousStrides(kept), 0] } };
}

function targetFor(lowering: Lowering, output: DeviceArray, axes: readonly number[]): Target {
  const { kept, reduced } = splitAxes(output, axes);
  const shape = [...kept.shape, sizeOf(reduced.shape)];
  const joined = joinAxes(reduced);
  if (joined && (joined.stride === 1 || joined.size === 1)) {
    return { rows: { ...output, shape, strides: [...kept.strides, joined.stride] } };
  }
  const rows = lowering.scratchArray(shape, output.dtype);
  const whole = [...kept.shape, ...reduced.shape];
  const source = { ...rows, shape: whole, strides: contiguousStrides(whole) };
  const target = { ...output, shape: whole, strides: [...kept.strides, ...reduced.strides] };
  return { rows, finish: () => copyArray(lowering, source, target) };
}
