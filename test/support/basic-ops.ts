/**
 * The basic kernels as functions over float32 storages: the regression tests compute with them below the op
 * table.
 */

import type { BudgetLabel } from "holdfast";
import { basicKernels, blockCount, type Runtime, type Storage, type Stream } from "holdfast/internals";
import { writeF32 } from "./runtimes.js";

export const f32Bytes = Float32Array.BYTES_PER_ELEMENT;

export function elementsOf(storage: Storage): number {
  return storage.span.size / f32Bytes;
}

/** `target[i] = value` */
export function setAll(runtime: Runtime, target: Storage, value: number, stream?: Stream): void {
  launch(runtime, "fill", target, [target, value], stream);
}

/** `target[i] = source[i]` */
export function copyValues(runtime: Runtime, target: Storage, source: Storage, stream?: Stream): void {
  launch(runtime, "copy", target, [source, target], stream);
}

/** `out[i] = a[i] + b[i]`; `out` may be `a` or `b`. */
export function add(runtime: Runtime, a: Storage, b: Storage, out: Storage, stream?: Stream): void {
  launch(runtime, "add", out, [a, b, out], stream);
}

/** `out[i] = source[i] · factor`, where the factor is one float in memory; `out` may be `source`. */
export function scale(
  runtime: Runtime,
  source: Storage,
  factor: Storage,
  out: Storage,
  stream?: Stream,
): void {
  launch(runtime, "scale", out, [source, out, factor], stream);
}

function launch(
  runtime: Runtime,
  name: keyof typeof basicKernels,
  over: Storage,
  operands: readonly (Storage | number)[],
  stream: Stream | undefined,
): void {
  const elements = elementsOf(over);
  runtime.launch({
    op: name,
    kernel: runtime.kernel(basicKernels[name]),
    blocks: blockCount(elements),
    arguments: [...operands, elements],
    ...(stream && { stream }),
  });
}

/** Places tensors in one region of persistent memory, with their values. */
export function placeValues<Name extends string>(
  runtime: Runtime,
  label: BudgetLabel,
  tensors: Readonly<Record<Name, readonly number[] | Float32Array>>,
): Record<Name, Storage> {
  const entries = Object.entries(tensors) as [Name, readonly number[] | Float32Array][];
  const region = runtime.persistent.place(
    label,
    label,
    entries.map(([name, values]) => ({ name, size: values.length * f32Bytes })),
  );
  const storages = entries.map(([name, values], index): [Name, Storage] => {
    const storage = region.storages[index]!;
    writeF32(runtime, storage, values);
    return [name, storage];
  });
  return Object.fromEntries(storages) as Record<Name, Storage>;
}
