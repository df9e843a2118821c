/** Reads an array's elements to the host. */

import { type ElementArray, isFloat8, viewElements } from "../ir/index.js";
import { submit } from "../kernels/index.js";
import { allocateArray, copyCalls, type DeviceArray, isContiguous } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";

/** Elements on the host as numbers; half floats are widened to f32, and i64 is converted to f64. */
export type HostElements = ElementArray<"f32" | "f64" | "i32" | "i8" | "u8">;

/** The same, with i64 as it is. */
export type ExactElements = HostElements | BigInt64Array;

/** The elements in row-major order. */
export function readArray(runtime: Runtime, array: DeviceArray): ExactElements {
  const dtype =
    array.dtype === "bf16" || array.dtype === "f16" || isFloat8(array.dtype) ? "f32" : array.dtype;
  const isPlain = dtype === array.dtype && isContiguous(array);
  if (!array.storage) return viewElements(dtype, new Uint8Array(0)) as ElementArray<"f32">;
  if (isPlain) return viewElements(dtype, runtime.read(array.storage)) as ElementArray<"f32">;
  const copy = allocateArray(runtime, array.shape, dtype, "read-back");
  submit(runtime, copyCalls(array, copy));
  if (!copy.storage) return viewElements(dtype, new Uint8Array(0)) as ElementArray<"f32">;
  const bytes = runtime.read(copy.storage);
  runtime.arena.free(copy.storage);
  return viewElements(dtype, bytes) as ElementArray<"f32">;
}
