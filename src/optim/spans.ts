/**
 * Contiguous spans: arrays that are adjacent in memory, merged, so that a pass over a whole model is one launch and not
 * one per parameter. The padding between neighbours is included; it is zero, and every pass here keeps it zero.
 */

import { dtypes } from "../ir/index.js";
import { type DeviceArray, isContiguous } from "../ops/index.js";
import type { PersistentStorage, Region, Runtime, Storage } from "../runtime/index.js";

/** The arrays of one parameter, one per kind: values, gradient, moments. */
export type ParameterArrays = readonly DeviceArray[];

/**
 * Merges parameters that are neighbours in every kind of array and have the same dtypes. The spans are in the order of
 * their first parameters, not of their addresses: sums over them have the same bits at all addresses.
 */
export function flattenSpans(runtime: Runtime, parameters: readonly ParameterArrays[]): ParameterArrays[] {
  const sorted = parameters.toSorted((a, b) => firstAddress(a[0]) - firstAddress(b[0]));
  const indices = new Map(parameters.map((parameter, index) => [parameter, index]));
  const firstIndex = (run: readonly ParameterArrays[]): number =>
    Math.min(...run.map((parameter) => indices.get(parameter) ?? 0));
  const spans: ParameterArrays[][] = [];
  for (const parameter of sorted) {
    const run = spans.at(-1);
    const before = run?.at(-1);
    if (run && before && areNeighbours(before, parameter)) run.push(parameter);
    else spans.push([parameter]);
  }
  return spans.toSorted((a, b) => firstIndex(a) - firstIndex(b)).map((run) => mergeRun(runtime, run));
}

function firstAddress(array: DeviceArray | undefined): number {
  return array?.storage?.span.address ?? 0;
}

/** True if each kind continues in the next storage of its region, at the same distance in elements. */
function areNeighbours(parameter: ParameterArrays, next: ParameterArrays): boolean {
  const distances = parameter.map((array, kind) => distanceTo(array, next[kind]));
  return distances.every((distance) => distance !== undefined && distance === distances[0]);
}

/** The distance from an array's first element to its neighbour's, in elements; undefined if it is no neighbour. */
function distanceTo(array: DeviceArray, next: DeviceArray | undefined): number | undefined {
  const [storage, nextStorage] = [placementStorage(array), next && placementStorage(next)];
  if (!storage || !nextStorage || array.dtype !== next?.dtype) return undefined;
  if (storage.home !== nextStorage.home || nextStorage.index !== storage.index + 1) return undefined;
  return (nextStorage.span.address - storage.span.address) / dtypes[array.dtype].bytes;
}

/** The storage of an array that covers a whole placement: next to a view are bytes that are not padding. */
function placementStorage(array: DeviceArray): PersistentStorage | undefined {
  const { storage } = array;
  const isWhole = storage?.kind === "persistent" && !storage.owner && isContiguous(array);
  return isWhole ? (storage as PersistentStorage) : undefined;
}

/** Views from the first parameter's start to the last one's end, one per kind. */
function mergeRun(runtime: Runtime, run: readonly ParameterArrays[]): ParameterArrays {
  const [first, last] = [run[0] ?? [], run.at(-1) ?? []];
  if (run.length === 1) return first;
  const [values, final] = [first[0], last[0]];
  const bytes = values ? dtypes[values.dtype].bytes : 1;
  const length = (firstAddress(final) - firstAddress(values)) / bytes + elementCount(final);
  return first.map((array) => ({
    dtype: array.dtype,
    shape: [length],
    strides: [1],
    storage: array.storage && viewFrom(runtime, array.storage, length * dtypes[array.dtype].bytes),
  }));
}

function elementCount(array: DeviceArray | undefined): number {
  return array?.shape.reduce((product, size) => product * size, 1) ?? 0;
}

/** A view of a storage's region, from the storage's start. */
function viewFrom(runtime: Runtime, storage: Storage, size: number): Storage {
  const { whole } = storage.home as Region;
  return runtime.view(whole, storage.span.address - whole.span.address, size, storage.label);
}
