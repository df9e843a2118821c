/** Views equal arrays, such as the parameters of equal modules, as one array with a leading axis. */

import { dtypes, promote } from "../../ir/index.js";
import type { PersistentStorage, Region, Storage } from "../../runtime/index.js";
import { copyArray } from "../copy.js";
import { contiguousStrides, type DeviceArray, isContiguous } from "../device-array.js";
import { viewStrided } from "../movement/strided-view.js";
import type { Lowering } from "../op.js";

/** Stacks equal arrays along a new leading axis, each with `shape`: a view if they are at equal distances, otherwise a copy. */
export function stackStrided(
  lowering: Lowering,
  arrays: readonly DeviceArray[],
  shape: readonly number[],
): DeviceArray {
  const stackedShape = [arrays.length, ...shape];
  const [first] = arrays;
  const dtype = arrays.reduce<DeviceArray["dtype"]>(
    (promoted, array) => promote(promoted, array.dtype),
    first?.dtype ?? "f32",
  );
  const spaced = first && equallySpaced(lowering, arrays);
  if (spaced) {
    return {
      dtype,
      shape: stackedShape,
      strides: [spaced.step, ...contiguousStrides(shape)],
      storage: spaced.storage,
    };
  }
  const copy = lowering.scratchArray(stackedShape, dtype);
  const strides = contiguousStrides(stackedShape);
  for (const [index, array] of arrays.entries()) {
    const target = viewStrided(lowering, copy, {
      shape: array.shape,
      strides: contiguousStrides(array.shape),
      offset: index * (strides[0] ?? 0),
    });
    copyArray(lowering, array, target);
  }
  return copy;
}

/** The memory from the first array to the last, if they are at equal distances in one region. `step`: that distance in elements. */
function equallySpaced(
  lowering: Lowering,
  arrays: readonly DeviceArray[],
): { readonly storage: Storage; readonly step: number } | undefined {
  const [first, second] = arrays;
  const [start, next] = [regionStorage(first), regionStorage(second)];
  if (!first || !start || !next) return undefined;
  const stepBytes = next.span.address - start.span.address;
  const fits = arrays.every((array, index) => {
    const storage = regionStorage(array);
    return (
      storage?.home === start.home &&
      array.dtype === first.dtype &&
      storage.span.address === start.span.address + index * stepBytes
    );
  });
  const { bytes } = dtypes[first.dtype];
  if (!fits || stepBytes < start.span.size || stepBytes % bytes !== 0) return undefined;
  const { whole } = start.home as Region;
  const size = (arrays.length - 1) * stepBytes + start.span.size;
  const storage = lowering.view(whole, start.span.address - whole.span.address, size);
  return { storage, step: stepBytes / bytes };
}

/** The storage of a contiguous array in persistent memory; undefined for others. */
function regionStorage(array: DeviceArray | undefined): PersistentStorage | undefined {
  const isInRegion = array?.storage?.kind === "persistent" && isContiguous(array);
  return isInRegion ? (array.storage as PersistentStorage) : undefined;
}
