/**
 * Runs: arrays that lie side by side in memory, seen as one, so that a pass over a whole model is one launch and not one
 * a parameter. The padding between two neighbours takes part; it is zero, and every pass here keeps zero zero.
 */

import { dtypes } from "../ir/index.js";
import { type DeviceArray, isContiguous } from "../ops/index.js";
import type { PersistentStorage, Region, Runtime, Storage } from "../runtime/index.js";

/** What belongs to one parameter in a pass, each of its own kind: its values, its gradient, its moments. */
export type Lane = readonly DeviceArray[];

/**
 * Sees lanes as few as possible: neighbours in every kind, of the same dtypes, become one. Runs come in the order of their
 * first lanes, not of their addresses: what is added up over them has the same bits wherever they were placed.
 */
export function flattenSpans(runtime: Runtime, lanes: readonly Lane[]): Lane[] {
  const sorted = lanes.toSorted((a, b) => addressOf(a[0]) - addressOf(b[0]));
  const places = new Map(lanes.map((lane, place) => [lane, place]));
  const placeOf = (run: readonly Lane[]): number => Math.min(...run.map((lane) => places.get(lane) ?? 0));
  const runs: Lane[][] = [];
  for (const lane of sorted) {
    const run = runs.at(-1);
    const before = run?.at(-1);
    if (run && before && areNeighbours(before, lane)) run.push(lane);
    else runs.push([lane]);
  }
  return runs.toSorted((a, b) => placeOf(a) - placeOf(b)).map((run) => stackStrided(runtime, run));
}

function addressOf(array: DeviceArray | undefined): number {
  return array?.storage?.span.address ?? 0;
}

/** Each kind goes on with the next storage of its region, the same number of elements further. */
function areNeighbours(lane: Lane, next: Lane): boolean {
  const distances = lane.map((array, kind) => distanceTo(array, next[kind]));
  return distances.every((distance) => distance !== undefined && distance === distances[0]);
}

/** From an array's first element to that of its neighbour, in elements; undefined where the other is no neighbour. */
function distanceTo(array: DeviceArray, next: DeviceArray | undefined): number | undefined {
  const [here, there] = [placedWhole(array), next && placedWhole(next)];
  if (!here || !there || array.dtype !== next?.dtype) return undefined;
  if (here.home !== there.home || there.index !== here.index + 1) return undefined;
  return (there.span.address - here.span.address) / dtypes[array.dtype].bytes;
}

/** The storage of an array that is all of what was placed there: beside a view lie bytes that are not padding. */
function placedWhole(array: DeviceArray): PersistentStorage | undefined {
  const { storage } = array;
  const isWhole = storage?.kind === "persistent" && !storage.owner && isContiguous(array);
  return isWhole ? (storage as PersistentStorage) : undefined;
}

/** From the first one's start to the last one's end, in each kind. */
function stackStrided(runtime: Runtime, run: readonly Lane[]): Lane {
  const [first, last] = [run[0] ?? [], run.at(-1) ?? []];
  if (run.length === 1) return first;
  const [values, final] = [first[0], last[0]];
  const bytes = values ? dtypes[values.dtype].bytes : 1;
  const length = (addressOf(final) - addressOf(values)) / bytes + elementsOf(final);
  return first.map((array) => ({
    dtype: array.dtype,
    shape: [length],
    strides: [1],
    storage: array.storage && viewFrom(runtime, array.storage, length * dtypes[array.dtype].bytes),
  }));
}

function elementsOf(array: DeviceArray | undefined): number {
  return array?.shape.reduce((product, size) => product * size, 1) ?? 0;
}

/** A part of the region that a storage stands in, from its start on. */
function viewFrom(runtime: Runtime, storage: Storage, size: number): Storage {
  const { whole } = storage.home as Region;
  return runtime.view(whole, storage.span.address - whole.span.address, size, storage.label);
}
