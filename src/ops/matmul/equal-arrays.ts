/** Equal arrays, such as the parameters of equal modules, seen as one array with an axis more. */

import { dtypes, promote } from "../../ir/index.js";
import type { PersistentStorage, Region, Storage } from "../../runtime/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, isContiguous } from "../device-array.js";
import { viewStrided } from "../movement/part.js";
import type { Lowering } from "../op.js";

/** Equal arrays as one array with an axis more in front, each of `shape`: in place where they allow it, or copied. */
export function stackStrided(
  lowering: Lowering,
  arrays: readonly DeviceArray[],
  shape: readonly number[],
): DeviceArray {
  const whole = [arrays.length, ...shape];
  const [first] = arrays;
  const dtype = arrays.reduce<DeviceArray["dtype"]>(
    (meeting, one) => promote(meeting, one.dtype),
    first?.dtype ?? "f32",
  );
  const spaced = first && equallySpaced(lowering, arrays);
  if (spaced) {
    return {
      dtype,
      shape: whole,
      strides: [spaced.step, ...contiguousStrides(shape)],
      storage: spaced.storage,
    };
  }
  const copy = lowering.scratchArray(whole, dtype);
  const strides = contiguousStrides(whole);
  for (const [index, array] of arrays.entries()) {
    const part = viewStrided(lowering, copy, {
      shape: array.shape,
      strides: contiguousStrides(array.shape),
      offset: index * (strides[0] ?? 0),
    });
    copyArray(lowering, array, part);
  }
  return copy;
}

/** The memory from the first array's start to the last one's end, where each lies equally far behind the one before. */
function equallySpaced(
  lowering: Lowering,
  arrays: readonly DeviceArray[],
): { readonly storage: Storage; readonly step: number } | undefined {
  const [first, second] = arrays;
  const [start, next] = [placedIn(first), placedIn(second)];
  if (!first || !start || !next) return undefined;
  const stepBytes = next.span.address - start.span.address;
  const fits = arrays.every((array, index) => {
    const placed = placedIn(array);
    return (
      placed?.home === start.home &&
      array.dtype === first.dtype &&
      placed.span.address === start.span.address + index * stepBytes
    );
  });
  const { bytes } = dtypes[first.dtype];
  if (!fits || stepBytes < start.span.size || stepBytes % bytes !== 0) return undefined;
  const { whole } = start.home as Region;
  const size = (arrays.length - 1) * stepBytes + start.span.size;
  const storage = lowering.view(whole, start.span.address - whole.span.address, size);
  return { storage, step: stepBytes / bytes };
}

/** Where an array lies in a region of persistent memory, whole and in order. */
function placedIn(array: DeviceArray | undefined): PersistentStorage | undefined {
  const isPlaced = array?.storage?.kind === "persistent" && isContiguous(array);
  return isPlaced ? (array.storage as PersistentStorage) : undefined;
}
