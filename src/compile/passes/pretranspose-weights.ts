/**
 * Transposes weights once per step, in one launch, for TF32 GEMMs that need B K-major and would otherwise transpose every tile in shared
 * memory. Only worth it when M is large; the kernels say which GEMMs gain.
 */

import { dtypes } from "../../ir/index.js";
import {
  maxTransposes,
  prefersTransposedB,
  type TransposedMatrix,
  transposeLaunchOf,
} from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { literalKey } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { transposeLead } from "../cost-model.js";
import type { BufferSlice, GemmCall, Node, Program } from "../program/program.js";
import { isUnchangedBefore } from "../program/uses.js";

type Problem = GemmCall["problem"];

export function pretransposeWeights(runtime: Runtime, program: Program): void {
  const matrices: TransposedMatrix<BufferSlice>[] = [];
  const transposed = new Map<string, BufferSlice>();
  let firstReader: Node | undefined;
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "gemm") continue;
    const { problem } = call.work;
    const { n, k, b, batch = 1 } = problem;
    const areShared = b.batchStride === 0;
    const count = areShared ? 1 : batch;
    if (!isUnchangedBefore(program, b.slice.buffer, node)) continue;
    if (!prefersTransposedB(runtime, describeGemm(problem))) continue;
    const key = literalKey([b.slice.buffer.id, b.slice.offset, b.rowStride, b.batchStride, n, k, count]);
    const known = transposed.get(key);
    if (!known && matrices.length + count > maxTransposes) continue;
    const slice = known ?? addTransposes(program, problem, count, matrices);
    transposed.set(key, slice);
    const strides = { rowStride: k, ...(batch > 1 && { batchStride: areShared ? 0 : n * k }) };
    const transposedProblem = { ...problem, b: { slice, isTransposed: true, ...strides } };
    const work: GemmCall = { kind: "gemm", problem: withScratch(runtime, program, transposedProblem) };
    program.replace(node, { ...call, work });
    firstReader ??= node;
  }
  if (!firstReader) return;
  const { source, blocks, arguments: values } = transposeLaunchOf(matrices);
  program.insertBefore(leadOf(program, firstReader), {
    op: "transposed weights",
    work: { kind: "launch", kernel: runtime.kernel(source), blocks, arguments: values },
  });
}

/** The node `transposeLead` calls before a node, or the first one. */
function leadOf(program: Program, node: Node): Node {
  let lead = node;
  for (let count = 0; count < transposeLead; count++) lead = program.previous(lead) ?? lead;
  return lead;
}

/** Adds the matrices of a GEMM's B to the launch, and returns the slice of the transposed copy. */
function addTransposes(
  program: Program,
  { n, k, b, dtype }: Problem,
  count: number,
  matrices: TransposedMatrix<BufferSlice>[],
): BufferSlice {
  const { bytes } = dtypes[dtype];
  const [ownBytes, size] = [((k - 1) * b.rowStride + n) * bytes, n * k * bytes];
  const buffer = program.makeBuffer(count * size, "transposed weights");
  for (let index = 0; index < count; index++) {
    const offset = b.slice.offset + index * (b.batchStride ?? 0) * bytes;
    matrices.push({
      from: { buffer: b.slice.buffer, offset, size: ownBytes },
      to: { buffer, offset: index * size, size },
      ...{ rows: k, columns: n, rowStride: b.rowStride },
    });
  }
  return { buffer, offset: 0, size: count * size };
}
