/** scatterAdd, as the kernels take it, over slices. */

import { lowerCalls, type ScatterAdd, type ScatterShape, scatterAddCalls } from "../../../kernels/index.js";
import type { Storage } from "../../../runtime/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface ScatterCall {
  readonly kind: "scatter";
  readonly shape: ScatterShape;
  readonly index: BufferSlice;
  readonly source: BufferSlice;
  readonly target: BufferSlice;
  readonly scratch: readonly BufferSlice[];
}

export const scatter: Kind<ScatterCall> = {
  accesses: ({ shape, index, source, target, scratch }) => [
    accessOf(index, "in"),
    accessOf(source, "in"),
    ...scratch.map((slice) => accessOf(slice, "out")),
    accessOf(target, shape.overwrites ? "out" : "inout"),
  ],
  mapSlices: ({ index, source, target, scratch, ...work }, to) => ({
    ...work,
    ...{ index: to(index), source: to(source), target: to(target), scratch: scratch.map(to) },
  }),
  key({ shape, index, source, target, scratch }, { read, written, literal }) {
    const texts = [
      ...[read(index), read(source), ...scratch.map(written)],
      shape.overwrites ? written(target) : read(target),
    ];
    return `${texts.join(" ")} ${literal(shape)}`;
  },
  name: ({ shape: { dtype } }) => `scatterAdd.${dtype}`,
  shape: ({ shape: { outer, length, inner, count } }) => `${[outer, length, inner].join("×")} ← ${count}`,
  // An index of each element adds to a target that a fill has cleared; so does an empty index.
  isLaunched: ({ shape: { isIndexShared, overwrites = false, count } }) =>
    !overwrites || (isIndexShared && count > 0),
  emit: (work, { backend, op, resolve }) =>
    lowerCalls(backend, scatterAddCalls(scatterProblem(work, resolve), op)),
};

/** The problem of a call, over the storages of its slices. */
export function scatterProblem(
  { shape, index, source, target, scratch }: ScatterCall,
  resolve: (slice: BufferSlice) => Storage,
): ScatterAdd {
  const operands = { index: resolve(index), source: resolve(source), target: resolve(target) };
  return { ...shape, ...operands, scratch: scratch.map(resolve) };
}

/** The call of a problem, over the slices that its storages are. */
export function scatterCall(
  { index, source, target, scratch = [], ...shape }: ScatterAdd,
  sliceOf: (storage: Storage) => BufferSlice,
): ScatterCall {
  const operands = { index: sliceOf(index), source: sliceOf(source), target: sliceOf(target) };
  return { kind: "scatter", shape, ...operands, scratch: scratch.map(sliceOf) };
}
