/**
 * Transposes operands of large TF32 GEMMs just before them. wgmma reads TF32 K-major only; of operands that are MN-major, such as both
 * of a weight gradient, cuBLASLt has kernels that are half as fast. The kernels say which GEMMs gain more than the copies cost.
 */

import { prefersKMajor, type TransposedMatrix } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import type { BufferSlice, GemmCall, Program } from "../program/program.js";
import { addTransposed, transposeCall } from "./transposed-copies.js";

const label = "transposed operands";

export function pretransposeOperands(runtime: Runtime, program: Program): void {
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "gemm" || !prefersKMajor(runtime, describeGemm(call.work.problem))) continue;
    const matrices: TransposedMatrix<BufferSlice>[] = [];
    const kMajor = withKMajorOperands(program, call.work.problem, matrices);
    program.insertBefore(node, { ...transposeCall(runtime, label, matrices), phase: call.phase });
    const work: GemmCall = { kind: "gemm", problem: withScratch(runtime, program, kMajor) };
    program.replace(node, { ...call, work });
  }
}

function withKMajorOperands(
  program: Program,
  problem: GemmCall["problem"],
  matrices: TransposedMatrix<BufferSlice>[],
): GemmCall["problem"] {
  const { m, n, k, a, b, dtype } = problem;
  const copyOf = ({ slice, rowStride }: typeof a, columns: number): BufferSlice =>
    addTransposed(program, { dtype, slice, rows: k, columns, rowStride }, label, matrices);
  return {
    ...problem,
    ...(a.isTransposed && { a: { slice: copyOf(a, m), rowStride: k } }),
    ...(!b.isTransposed && { b: { slice: copyOf(b, n), rowStride: k, isTransposed: true } }),
  };
}
