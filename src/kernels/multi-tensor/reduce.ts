/**
 * Multi-tensor reduction: reduces many tensors in chunks of equal length, such as for the norm of all gradients. On a GPU all tensors share
 * one launch.
 */

import type { KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { ChunkedReduceKernel, RowKernel } from "../../ir/index.js";
import { dtypes, iterateRows, kernelKey, term } from "../../ir/index.js";
import type { LaunchCommand, Storage } from "../../runtime/index.js";
import type { Backend } from "../backend-interface.js";
import { chunkLength, printChunkedReduceKernel } from "../codegen/cuda/chunked-reduce-kernel.js";
import { type KernelCall, rowCalls } from "../kernel-call.js";
import { cachedSource } from "../source-cache.js";
import { paddedGroupSize } from "./group-size.js";
import type { ChunkedReduceLaunch } from "./reduce-problem.js";
import { lowerSections } from "./sectioned-reduce.js";

/** A launch has 4 KiB of arguments, of which a tensor takes 16 bytes. */
const maxTensors = 128;

/** The number of chunks of a tensor; all but the last have the same length. */
export function chunkCount(length: number): number {
  return Math.ceil(length / chunkLength);
}

/** The calls of a multi-tensor reduction: one that a trace keeps as it is, or row kernels, which a trace can fuse. */
export function chunkedReduceCalls(
  backend: Pick<Backend, "capabilities" | "lowerChunkedReduce">,
  launch: ChunkedReduceLaunch,
): readonly KernelCall[] {
  const { combinesKernels } = backend.capabilities;
  return combinesKernels ? [{ kind: "chunked-reduce", ...launch }] : backend.lowerChunkedReduce(launch);
}

/** One launch for up to `maxTensors` tensors. A tensor of sections has its own. */
export function lowerChunkedReduceOnCuda(launch: ChunkedReduceLaunch): readonly KernelCall[] {
  return lowerGroups(launch, maxTensors, (group) => {
    const [sectioned] = group.vectors.flatMap((vector) => ("sections" in vector ? [vector] : []));
    if (!sectioned) return lowerOneLaunch(plainLaunch(group));
    if (!launch.kernel.ignoresZeros) throw needsStorage(launch.kernel.name);
    return lowerSections(group, sectioned, group.results, ({ results, ...vector }) =>
      lowerOneLaunch({ ...group, vectors: [vector], results }),
    );
  });
}

/** Two row kernels per tensor: one for its full chunks, one for the last. */
export function lowerChunkedReduceOnWasm(launch: ChunkedReduceLaunch): readonly KernelCall[] {
  return lowerGroups(launch, 1, (group) => lowerAsRows(plainLaunch(group)));
}

interface PlainLaunch extends ChunkedReduceLaunch {
  readonly vectors: readonly { readonly storage: Storage; readonly length: number }[];
}

function plainLaunch(launch: ChunkedReduceLaunch): PlainLaunch {
  const vectors = launch.vectors.map((vector) => {
    if ("sections" in vector) throw needsStorage(launch.kernel.name);
    return vector;
  });
  return { ...launch, vectors };
}

function needsStorage(name: string): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `${name}: a vector is in several sections of memory, which only a GPU supports, and only for reductions that ignore zeros. Pass a contiguous vector.`,
  );
}

function lowerGroups(
  launch: ChunkedReduceLaunch,
  tensorsPerLaunch: number,
  lower: (launch: ChunkedReduceLaunch) => readonly KernelCall[],
): readonly KernelCall[] {
  const { kernel, vectors, results, view } = launch;
  const calls: KernelCall[] = [];
  const resultBytes = dtypes[kernel.value.type].bytes;
  const isPlain = (vector: (typeof vectors)[number] | undefined): boolean => !vector || "storage" in vector;
  let done = 0;
  for (let first = 0; first < vectors.length; ) {
    let end = first + 1;
    while (isPlain(vectors[first]) && end < vectors.length && end - first < tensorsPerLaunch) {
      if (!isPlain(vectors[end])) break;
      end++;
    }
    const group = vectors.slice(first, end);
    const chunks = group.reduce((sum, { length }) => sum + chunkCount(length), 0);
    const groupResults = view(results, done * resultBytes, chunks * resultBytes);
    calls.push(...lower({ ...launch, vectors: group, results: groupResults }));
    done += chunks;
    first = end;
  }
  return calls;
}

function lowerOneLaunch({ kernel, vectors, results, scalars = [] }: PlainLaunch): readonly LaunchCommand[] {
  const storages = vectors.map(({ storage }) => storage);
  const lengths = vectors.map(({ length }) => length);
  const [first] = storages;
  if (!first) return [];
  const ends: number[] = [];
  let chunks = 0;
  for (const length of lengths) {
    chunks += chunkCount(length);
    ends.push(chunks);
  }
  const size = paddedGroupSize(vectors.length);
  const padded = <T>(list: readonly T[], value: T): T[] => [
    ...list,
    ...new Array<T>(size - list.length).fill(value),
  ];
  const values = [
    ...padded(storages, first),
    results,
    ...padded(lengths, 0),
    ...padded(ends, chunks),
    ...scalars,
  ];
  return [
    { kind: "launch", op: kernel.name, source: sourceOf(kernel, size), blocks: chunks, arguments: values },
  ];
}

/** The full chunks of a tensor as rows of one kernel, then the shorter last chunk. */
function lowerAsRows({ kernel, vectors, results, scalars = [], view }: PlainLaunch): readonly KernelCall[] {
  const [vector] = vectors;
  if (!vector) return [];
  const { storage, length } = vector;
  const fullChunks = Math.floor(length / chunkLength);
  return [
    ...reduceRows(0, fullChunks, chunkLength),
    ...reduceRows(fullChunks, 1, length - fullChunks * chunkLength),
  ];

  function reduceRows(first: number, rows: number, size: number): readonly KernelCall[] {
    if (rows * size === 0) return [];
    const [elementBytes, resultBytes] = [dtypes[kernel.dtype].bytes, dtypes[kernel.value.type].bytes];
    const strides = [
      [size, 1],
      [1, 0],
    ];
    return rowCalls({
      kernel: rowKernelOf(kernel),
      iteration: iterateRows([rows, size], strides, 1),
      operands: [
        view(storage, first * chunkLength * elementBytes, rows * size * elementBytes),
        view(results, first * resultBytes, rows * resultBytes),
      ],
      scalars,
    });
  }
}

function sourceOf(kernel: ChunkedReduceKernel, size: number): KernelSource {
  const key = `cuda chunked reduce ${kernelKey(kernel)} of ${size}`;
  return cachedSource(key, () => printChunkedReduceKernel(kernel, size));
}

const rowKernels = new WeakMap<ChunkedReduceKernel, RowKernel>();

function rowKernelOf(kernel: ChunkedReduceKernel): RowKernel {
  const { name, dtype, scalars, op, value } = kernel;
  const rowKernel: RowKernel = rowKernels.get(kernel) ?? {
    name,
    inputs: [dtype],
    outputs: [{ dtype: value.type, per: "row" }],
    scalars,
    stages: [
      { kind: "reduce", op, value },
      { kind: "store", output: 0, value: term.reduced(0, value.type) },
    ],
  };
  rowKernels.set(kernel, rowKernel);
  return rowKernel;
}
