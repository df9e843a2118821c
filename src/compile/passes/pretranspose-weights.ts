/**
 * Transposes weights once per step, in one launch, for TF32 GEMMs that need B K-major and would otherwise transpose every tile in shared
 * memory. Only worth it when M is large; the kernels say which GEMMs gain.
 */

import { maxTransposes, prefersTransposedB, type TransposedMatrix } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { literalKey } from "../../units/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { transposeLead } from "../cost-model.js";
import type { BufferSlice, GemmCall, Node, Program } from "../program/program.js";
import { isUnchangedBefore } from "../program/uses.js";
import { addTransposed, transposeCall } from "./transposed-copies.js";

const label = "transposed weights";

export function pretransposeWeights(runtime: Runtime, program: Program): void {
  const matrices: TransposedMatrix<BufferSlice>[] = [];
  const transposed = new Map<string, BufferSlice>();
  let firstReader: Node | undefined;
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "gemm") continue;
    const { problem } = call.work;
    const { dtype, n, k, b, batch = 1 } = problem;
    const areShared = b.batchStride === 0;
    const count = areShared ? 1 : batch;
    if (!isUnchangedBefore(program, b.slice.buffer, node)) continue;
    if (!prefersTransposedB(runtime, describeGemm(problem))) continue;
    const key = literalKey([b.slice.buffer.id, b.slice.offset, b.rowStride, b.batchStride, n, k, count]);
    const known = transposed.get(key);
    if (!known && matrices.length + count > maxTransposes) continue;
    const slice =
      known ?? addTransposed(program, { dtype, ...b, rows: k, columns: n, count }, label, matrices);
    transposed.set(key, slice);
    const strides = { rowStride: k, ...(batch > 1 && { batchStride: areShared ? 0 : n * k }) };
    const transposedProblem = { ...problem, b: { slice, isTransposed: true, ...strides } };
    const work: GemmCall = { kind: "gemm", problem: withScratch(runtime, program, transposedProblem) };
    program.replace(node, { ...call, work });
    firstReader ??= node;
  }
  if (!firstReader) return;
  program.insertBefore(leadOf(program, firstReader), transposeCall(runtime, label, matrices));
}

/** The node `transposeLead` calls before a node, or the first one. */
function leadOf(program: Program, node: Node): Node {
  let lead = node;
  for (let count = 0; count < transposeLead; count++) lead = program.previous(lead) ?? lead;
  return lead;
}
