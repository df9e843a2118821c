/** A multi-tensor reduction over slices, such as the norm of all gradients. */

import type { ChunkedReduceKernel } from "../../../ir/index.js";
import { type ChunkedReduceLaunch, chunkCount, lowerCalls } from "../../../kernels/index.js";
import type { Storage } from "../../../runtime/index.js";
import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";

export interface ChunkedReduceCall {
  readonly kind: "chunked-reduce";
  readonly kernel: ChunkedReduceKernel;
  readonly vectors: readonly { readonly slice: BufferSlice; readonly length: number }[];
  readonly results: BufferSlice;
  readonly scalars: readonly number[];
}

export const chunkedReduce: Kind<ChunkedReduceCall> = {
  accesses: ({ vectors, results }) => [
    ...vectors.map(({ slice }) => accessOf(slice, "in")),
    accessOf(results, "out"),
  ],
  mapSlices: (work, to) => ({
    ...work,
    vectors: work.vectors.map(({ slice, ...vector }) => ({ ...vector, slice: to(slice) })),
    results: to(work.results),
  }),
  key({ kernel, vectors, results, scalars }, { read, written, literal, identity }) {
    const slices = vectors.map(({ slice, length }) => `${read(slice)}:${length}`);
    return `${identity(kernel)} ${slices.join(" ")} ${written(results)} ${literal(scalars)}`;
  },
  name: ({ kernel }) => kernel.name,
  shape({ vectors }) {
    const chunks = vectors.reduce((sum, { length }) => sum + chunkCount(length), 0);
    return `${chunks} ${chunks === 1 ? "block" : "blocks"}`;
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
      return resolve({ ...slice, offset: slice.offset + offset, size });
    };
    const launch: ChunkedReduceLaunch = {
      ...{ kernel, scalars, view, results: storageOf(results) },
      vectors: vectors.map(({ slice, length }) => ({ storage: storageOf(slice), length })),
    };
    return lowerCalls(backend, backend.lowerChunkedReduce(launch));
  },
};
