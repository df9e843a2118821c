/**
 * Reduces many vectors, part by part: what a norm of all gradients begins with. On a GPU, where a launch costs more than most
 * vectors, all of them are one, however many they are and however long each is.
 */

import type { KernelSource } from "../../driver/index.js";
import type { ChunkedReduceKernel, RowKernel } from "../../ir/index.js";
import { dtypes, iterateRows, kernelKey, term } from "../../ir/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import { chunkLength, printChunkedReduceKernel } from "../codegen/cuda/chunked-reduce-kernel.js";
import { type KernelCall, rowCalls } from "../kernel-call.js";
import { cachedSource } from "../source-cache.js";

export interface ChunkedReduceLaunch {
  readonly kernel: ChunkedReduceKernel;
  /** Each begins where its storage does, and none is empty. */
  readonly vectors: readonly { readonly storage: Storage; readonly length: number }[];
  /** One for each part of each vector, in order. */
  readonly results: Storage;
  readonly scalars?: readonly number[];
  /** Gives some bytes of a storage. */
  view(storage: Storage, offset: number, size: number): Storage;
}

/** A launch's arguments have a limit of 4 KiB, and a vector takes 16 bytes of it. */
const maxVectors = 128;
/** The kernel is printed for 1, 2, 4, 8 and 16 vectors, and for multiples of 16; what is not used is empty. */
const vectorsPerSize = 16;

/** How many parts a vector of so many elements has: all but the last are equally long. */
export function chunkCount(length: number): number {
  return Math.ceil(length / chunkLength);
}

/** One launch for up to `maxVectors` vectors. */
export function lowerChunkedReduceOnCuda(launch: ChunkedReduceLaunch): readonly KernelCall[] {
  return inParts(launch, maxVectors, lowerCombo);
}

/** Two row kernels for each vector: one for its whole parts, one for the rest. */
export function lowerChunkedReduceOnWasm(launch: ChunkedReduceLaunch): readonly KernelCall[] {
  return inParts(launch, 1, lowerVectors);
}

function inParts(
  launch: ChunkedReduceLaunch,
  atOnce: number,
  lower: (launch: ChunkedReduceLaunch) => readonly KernelCall[],
): readonly KernelCall[] {
  const { kernel, vectors, results, view } = launch;
  const calls: KernelCall[] = [];
  const resultBytes = dtypes[kernel.value.type].bytes;
  let done = 0;
  for (let first = 0; first < vectors.length; first += atOnce) {
    const some = vectors.slice(first, first + atOnce);
    const parts = some.reduce((sum, { length }) => sum + chunkCount(length), 0);
    const own = view(results, done * resultBytes, parts * resultBytes);
    calls.push(...lower({ ...launch, vectors: some, results: own }));
    done += parts;
  }
  return calls;
}

function lowerCombo({
  kernel,
  vectors,
  results,
  scalars = [],
}: ChunkedReduceLaunch): readonly LaunchCommand[] {
  const storages = vectors.map(({ storage }) => storage);
  const lengths = vectors.map(({ length }) => length);
  const [any] = storages;
  if (!any) return [];
  const ends: number[] = [];
  let parts = 0;
  for (const length of lengths) {
    parts += chunkCount(length);
    ends.push(parts);
  }
  const size = placesFor(vectors.length);
  const filled = <T>(list: readonly T[], value: T): T[] => [
    ...list,
    ...new Array<T>(size - list.length).fill(value),
  ];
  const values = [
    ...filled(storages, any),
    results,
    ...filled(lengths, 0),
    ...filled(ends, parts),
    ...scalars,
  ];
  return [
    { kind: "launch", op: kernel.name, source: sourceOf(kernel, size), blocks: parts, arguments: values },
  ];
}

/** The whole parts of a vector first, as rows; then what is left, which is a shorter one. */
function lowerVectors({
  kernel,
  vectors,
  results,
  scalars = [],
  view,
}: ChunkedReduceLaunch): readonly KernelCall[] {
  const [vector] = vectors;
  if (!vector) return [];
  const { storage, length } = vector;
  const whole = Math.floor(length / chunkLength);
  return [...reduceRows(0, whole, chunkLength), ...reduceRows(whole, 1, length - whole * chunkLength)];

  function reduceRows(first: number, rows: number, size: number): readonly KernelCall[] {
    if (rows * size === 0) return [];
    const [from, to] = [dtypes[kernel.dtype].bytes, dtypes[kernel.value.type].bytes];
    const strides = [
      [size, 1],
      [1, 0],
    ];
    return rowCalls({
      kernel: rowKernelOf(kernel),
      iteration: iterateRows([rows, size], strides, 1),
      operands: [
        view(storage, first * chunkLength * from, rows * size * from),
        view(results, first * to, rows * to),
      ],
      scalars,
    });
  }
}

function placesFor(vectors: number): number {
  if (vectors > vectorsPerSize) return Math.ceil(vectors / vectorsPerSize) * vectorsPerSize;
  return 2 ** Math.ceil(Math.log2(vectors));
}

function sourceOf(kernel: ChunkedReduceKernel, size: number): KernelSource {
  const key = `cuda chunked reduce ${kernelKey(kernel)} of ${size}`;
  return cachedSource(key, () => printChunkedReduceKernel(kernel, size));
}

const rowKernels = new WeakMap<ChunkedReduceKernel, RowKernel>();

function rowKernelOf(kernel: ChunkedReduceKernel): RowKernel {
  const { name, dtype, scalars, op, value } = kernel;
  const known = rowKernels.get(kernel) ?? {
    name,
    inputs: [dtype],
    outputs: [{ dtype: value.type, per: "row" }],
    scalars,
    stages: [
      { kind: "reduce", op, value },
      { kind: "store", output: 0, value: term.reduced(0, value.type) },
    ],
  };
  rowKernels.set(kernel, known);
  return known;
}
