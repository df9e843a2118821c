/** A multi-tensor reduction over slices, such as the norm of all gradients. */

import type { ChunkedReduceKernel } from "../../../ir/index.js";
import {
  type ChunkedReduceLaunch,
  chunkCount,
  lowerCalls,
  type ReducedVector,
} from "../../../kernels/index.js";
import type { Storage } from "../../../runtime/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface ChunkedReduceCall {
  readonly kind: "chunked-reduce";
  readonly kernel: ChunkedReduceKernel;
  readonly vectors: readonly ReducedVector<BufferSlice>[];
  readonly results: BufferSlice;
  readonly scalars: readonly number[];
}

export const chunkedReduce: Kind<ChunkedReduceCall> = {
  accesses: ({ vectors, results }) => [
    ...vectors.flatMap(slicesOf).map((slice) => accessOf(slice, "in")),
    accessOf(results, "out"),
  ],
  mapSlices: (work, to) => ({
    ...work,
    vectors: work.vectors.map((vector) => mapVector(vector, to)),
    results: to(work.results),
  }),
  key({ kernel, vectors, results, scalars }, { read, written, literal, identity }) {
    const inputs = vectors.map((vector) => literal(mapVector(vector, read)));
    return `${identity(kernel)} ${inputs.join(" ")} ${written(results)} ${literal(scalars)}`;
  },
  name: ({ kernel }) => kernel.name,
  shape({ vectors }) {
    const chunks = vectors.reduce((sum, { length }) => sum + chunkCount(length), 0);
    return `${chunks} ${chunks === 1 ? "chunk" : "chunks"}`;
  },
  emit({ kernel, vectors, results, scalars }, { backend, resolve }) {
    const slices = new Map<Storage, BufferSlice>();
    const storageOf = (slice: BufferSlice): Storage => {
      const storage = resolve(slice);
      slices.set(storage, slice);
      return storage;
    };
    const view: ChunkedReduceLaunch["view"] = (storage, offset, size) => {
      const slice = slices.get(storage);
      if (!slice) throw new Error(`"${storage.label}" is not an operand of the reduction.`);
      return storageOf({ ...slice, offset: slice.offset + offset, size });
    };
    const launch: ChunkedReduceLaunch = {
      ...{ kernel, scalars, view, results: storageOf(results) },
      vectors: vectors.map((vector) => mapVector(vector, storageOf)),
    };
    return lowerCalls(backend, backend.lowerChunkedReduce(launch));
  },
};

/** The memory that a vector has. */
export function slicesOf(vector: ReducedVector<BufferSlice>): readonly BufferSlice[] {
  if ("storage" in vector) return [vector.storage];
  return vector.sections.flatMap(({ storage, rowMap }) => [storage, ...(rowMap ? [rowMap.storage] : [])]);
}

export function mapVector<From, To>(
  vector: ReducedVector<From>,
  to: (memory: From) => To,
): ReducedVector<To> {
  if ("storage" in vector) return { length: vector.length, storage: to(vector.storage) };
  return {
    length: vector.length,
    sections: vector.sections.map(({ first, length, storage, rowMap }) => ({
      ...{ first, length, storage: to(storage) },
      ...(rowMap && { rowMap: { storage: to(rowMap.storage), width: rowMap.width } }),
    })),
  };
}
