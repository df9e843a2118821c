/**
 * Writes results directly into their strided destination instead of copying afterwards: a batched GEMM that produces all layers'
 * weight gradients with the right batch stride, or on a GPU a column sum. The bits stay. A wide GEMM whose column blocks have different
 * destinations becomes a batch if a native kernel can group it with others.
 */

import { type ColumnKernel, dtypes } from "../../ir/index.js";
import { canGroupGemms, capabilitiesOf, gemmScratchBytes, hasNativeGemm } from "../../kernels/index.js";
import { alignment, type Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { movedValueOf } from "../program/casts.js";
import {
  accessesOf,
  type BufferSlice,
  type Call,
  type ColumnCall,
  type GemmCall,
  type Node,
  type Program,
  type Work,
} from "../program/program.js";
import { isWrittenOnce } from "../program/uses.js";
import { isWhole, overlap, type StridedCopy, stridedCopyOf } from "./copy-propagation.js";

/** Takes the program of `propagateCopies`, which coalesces copies. `isTuned`: true if GEMM algorithms are chosen afterwards. */
export function writeStridedOutputs(runtime: Runtime, program: Program, isTuned: boolean): void {
  const changed = new Set<Node>();
  for (const node of program.nodes) {
    const copy = stridedCopyOf(node.call.work) ?? columnsCopyOf(node.call.work);
    const producer = copy && producerOf(program, copy, node);
    if (!copy || !producer || changed.has(producer)) continue;
    const work = stridedWork(runtime, program, producer.call.work, copy, isTuned);
    if (!work || isAccessed(program, copy.chunks, producer, node)) continue;
    program.replace(producer, { ...producer.call, work });
    program.remove(node);
    changed.add(producer);
  }
}

/** The strided copy of a call that only splits a matrix into column blocks. */
function columnsCopyOf(work: Work): StridedCopy | undefined {
  if (work.kind !== "row" || movedValueOf(work)?.kind !== "load") return undefined;
  if (work.kernel.inputs[0] !== "f32" || work.kernel.outputs[0]?.dtype !== "f32") return undefined;
  const { outer, row } = work.iteration;
  const [source, target] = work.operands;
  const [chunk, line, ...others] = outer;
  if (!source || !target || !chunk || !line || others.length > 0) return undefined;
  const width = row.size;
  const blocks = [
    [chunk, width, chunk.strides[1]],
    [line, chunk.size * width, width],
    [row, 1, 1],
  ] as const;
  if (!blocks.every(([{ strides }, ...expected]) => strides[0] === expected[0] && strides[1] === expected[1]))
    return undefined;
  const { bytes } = dtypes.f32;
  const [step, size] = [(chunk.strides[1] ?? 0) * bytes, line.size * width * bytes];
  const chunks = Array.from({ length: chunk.size }, (_, index) => ({
    ...{ buffer: target.buffer, offset: target.offset + index * step, size },
  }));
  return { source, chunks, areColumns: true };
}

/** The only writer of a value that only its copy reads. */
function producerOf(program: Program, { source }: StridedCopy, copy: Node): Node | undefined {
  const { writers, readers } = program.uses(source.buffer);
  const [producer] = writers;
  if (!producer || !isWhole(source) || !isWrittenOnce(program, source.buffer)) return undefined;
  return producer.isBefore(copy) && readers.length === 1 && readers[0] === copy ? producer : undefined;
}

/** True if the producer, or a node between it and the copy, accesses one of the chunks. */
function isAccessed(program: Program, chunks: readonly BufferSlice[], producer: Node, copy: Node): boolean {
  const buffers = new Set(chunks.map(({ buffer }) => buffer));
  return [...buffers].some((buffer) =>
    program
      .usersBetween(buffer, producer, copy)
      .some((node) => node !== copy && accessesAny(node.call, chunks)),
  );
}

/** True if a call accesses one of the chunks. Of strided writes only the written chunks count. */
function accessesAny(call: Call, chunks: readonly BufferSlice[]): boolean {
  const exact = exactChunks(call.work);
  return accessesOf(call).some(({ slice }) =>
    (exact && slice === exact.whole ? exact.chunks : [slice]).some((accessed) =>
      chunks.some((chunk) => overlap(accessed, chunk)),
    ),
  );
}

/** A slice that is written with gaps, and the chunks that are written. */
function exactChunks(
  work: Work,
): { readonly whole: BufferSlice; readonly chunks: readonly BufferSlice[] } | undefined {
  const copy = stridedCopyOf(work);
  if (copy && work.kind === "row" && work.operands[1])
    return { whole: work.operands[1], chunks: copy.chunks };
  if (work.kind === "gemm") {
    const { m, n, batch = 1, c, dtype, resultDtype = dtype } = work.problem;
    const { bytes } = dtypes[resultDtype];
    if (c.rowStride !== n) return undefined;
    return chunksOf(c.slice, batch, (c.batchStride ?? 0) * bytes, m * n * bytes);
  }
  const [whole] = work.kind === "column" ? work.operands.slice(work.kernel.inputs.length) : [];
  if (work.kind !== "column" || !whole || !work.kernel.outputLayout?.runs) return undefined;
  const { length, runStride: between } = work.kernel.outputLayout.runs;
  const bytes = dtypes[work.kernel.outputs[0] ?? "f32"].bytes;
  return chunksOf(whole, work.columns / length, between * bytes, length * bytes);
}

function chunksOf(whole: BufferSlice, count: number, step: number, size: number) {
  const { buffer, offset } = whole;
  return {
    whole,
    chunks: Array.from({ length: count }, (_, index) => ({ buffer, offset: offset + index * step, size })),
  };
}

/** The same work with its results in the chunks. */
function stridedWork(
  runtime: Runtime,
  program: Program,
  work: Work,
  { source, chunks, areColumns = false }: StridedCopy,
  isTuned: boolean,
): Work | undefined {
  const [first, second] = chunks;
  const last = chunks.at(-1);
  if (!first || !second || !last) return undefined;
  const step = second.offset - first.offset;
  // A library may rely on the alignment that step memory has.
  const isAligned = [step, first.offset + (first.buffer.storage?.span.address ?? 0)].every(
    (bytes) => bytes % alignment === 0,
  );
  if (!isAligned) return undefined;
  const target: BufferSlice = { ...first, size: last.offset + last.size - first.offset };
  const spread: Spread = { source, target, chunks: chunks.length, chunkBytes: first.size, step };
  if (areColumns)
    return work.kind === "gemm" && isTuned ? batchedGemm(runtime, program, work, spread) : undefined;
  if (work.kind === "gemm") {
    const gemm = stridedGemm(work, spread);
    return gemm && mayMove(runtime, gemm.problem, isTuned) ? gemm : undefined;
  }
  return work.kind === "column" && capabilitiesOf(runtime).storesStridedColumns
    ? stridedColumns(work, spread)
    : undefined;
}

interface Spread {
  readonly source: BufferSlice;
  readonly target: BufferSlice;
  readonly chunks: number;
  readonly chunkBytes: number;
  readonly step: number;
}

function stridedGemm(
  { problem }: GemmCall,
  { target, chunks, chunkBytes, step }: Spread,
): GemmCall | undefined {
  const { m, n, batch = 1, c, beta = 0, dtype, resultDtype = dtype, activation, bias } = problem;
  const { bytes } = dtypes[resultDtype];
  const isPlain = isWhole(c.slice) && c.rowStride === n && beta === 0 && !activation && !bias;
  if (!isPlain || batch !== chunks || m * n * bytes !== chunkBytes) return undefined;
  return {
    kind: "gemm",
    problem: { ...problem, c: { ...c, slice: target, batchStride: step / bytes } },
  };
}

/** A batched GEMM with one problem for each chunk, instead of one wide GEMM. Results may round differently. */
function batchedGemm(
  runtime: Runtime,
  program: Program,
  { problem }: GemmCall,
  { target, chunks, chunkBytes, step }: Spread,
): GemmCall | undefined {
  const { scratch: _, algorithm: __, ...rest } = problem;
  const { m, n, a, b, c, batch = 1, beta = 0, dtype, resultDtype = dtype, activation, bias } = problem;
  const { bytes } = dtypes[resultDtype];
  const width = n / chunks;
  const isPlain = isWhole(c.slice) && c.rowStride === n && batch === 1 && beta === 0 && !activation && !bias;
  if (!isPlain || b.isTransposed || m * width * bytes !== chunkBytes) return undefined;
  const batched: GemmCall["problem"] = {
    ...{ ...rest, n: width, batch: chunks },
    a: { ...a, batchStride: 0 },
    b: { ...b, batchStride: width },
    c: { slice: target, rowStride: width, batchStride: step / bytes },
  };
  if (!canGroupGemms(runtime, [describeGemm(batched)])) return undefined;
  // If it is not grouped after all, a library needs other scratch memory for it than for the wide GEMM.
  return { kind: "gemm", problem: withScratch(runtime, program, batched) };
}

/** A library may select another algorithm for another layout of C, so this is only for steps whose algorithms are tuned. */
function mayMove(runtime: Runtime, problem: GemmCall["problem"], isTuned: boolean): boolean {
  if (!capabilitiesOf(runtime).autotunesGemms) return true;
  const outline = describeGemm(problem);
  if (hasNativeGemm(runtime, outline)) return true;
  // It may also need more scratch memory, and the present buffer was sized for the old layout.
  return isTuned && gemmScratchBytes(runtime, outline) <= (problem.scratch?.size ?? 0);
}

function stridedColumns(work: ColumnCall, { target, chunkBytes, step }: Spread): ColumnCall | undefined {
  const { kernel, operands } = work;
  const [dtype, ...others] = kernel.outputs;
  const output = operands[kernel.inputs.length];
  if (!dtype || others.length > 0 || kernel.outputLayout || !output || !isWhole(output)) return undefined;
  const { bytes } = dtypes[dtype];
  if (chunkBytes % bytes !== 0) return undefined;
  const moved = withRuns(kernel, chunkBytes / bytes, step / bytes);
  return { ...work, kernel: moved, operands: [...operands.slice(0, kernel.inputs.length), target] };
}

const kernels = new WeakMap<ColumnKernel, Map<string, ColumnKernel>>();

/** Compiled code is cached by kernel identity, so each variant is made once. */
function withRuns(kernel: ColumnKernel, length: number, between: number): ColumnKernel {
  const byRuns = kernels.get(kernel) ?? new Map<string, ColumnKernel>();
  kernels.set(kernel, byRuns);
  const key = `${length} ${between}`;
  const known = byRuns.get(key) ?? {
    ...kernel,
    outputLayout: { stride: 1, runs: { length, runStride: between } },
  };
  byRuns.set(key, known);
  return known;
}
