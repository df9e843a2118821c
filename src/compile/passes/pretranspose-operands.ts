/**
 * Transposes an operand of a large TF32 GEMM just before it. wgmma reads TF32 K-major only. If both operands are MN-major, as those of a
 * weight gradient, cuBLASLt's kernels are half as fast as with one that is K-major. The kernels say which GEMMs gain more than the copy
 * costs.
 */

import { operandToTranspose, type TransposedMatrix } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { describeGemm } from "../autotune/gemm-desc.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import type { BufferSlice, GemmCall, Program } from "../program/program.js";
import { addTransposed, transposeCall } from "./transposed-copies.js";

const label = "transposed operand";

export function pretransposeOperands(runtime: Runtime, program: Program): void {
  for (const node of program.nodes) {
    const { call } = node;
    if (call.work.kind !== "gemm") continue;
    const { problem } = call.work;
    const operand = operandToTranspose(runtime, describeGemm(problem));
    if (!operand) continue;
    const { dtype, m, n, k } = problem;
    const { slice, rowStride } = problem[operand];
    const columns = operand === "a" ? m : n;
    const matrices: TransposedMatrix<BufferSlice>[] = [];
    const copy = addTransposed(program, { dtype, slice, rows: k, columns, rowStride }, label, matrices);
    program.insertBefore(node, { ...transposeCall(runtime, label, matrices), phase: call.phase });
    const isTransposed = operand === "b";
    const changed = { ...problem, [operand]: { slice: copy, rowStride: k, isTransposed } };
    const work: GemmCall = { kind: "gemm", problem: withScratch(runtime, program, changed) };
    program.replace(node, { ...call, work });
  }
}
