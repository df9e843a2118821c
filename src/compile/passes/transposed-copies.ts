/** Transposed copies of GEMM operands, made by launches of many matrices. */

import { dtypes } from "../../ir/index.js";
import { type TransposedMatrix, transposeLaunchOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import type { BufferSlice, Call, GemmCall, Program } from "../program/program.js";

type Operand = GemmCall["problem"]["a"];

/** The matrices of an operand, as they are stored. */
export interface StoredMatrices extends Pick<Operand, "slice" | "rowStride" | "batchStride"> {
  readonly dtype: GemmCall["problem"]["dtype"];
  readonly rows: number;
  readonly columns: number;
  /** Matrices of the batch that differ. Default: 1. */
  readonly count?: number;
}

/** Adds the matrices to a launch, and returns the slice of the contiguous, transposed copy. */
export function addTransposed(
  program: Program,
  { dtype, slice, rows, columns, rowStride, batchStride = 0, count = 1 }: StoredMatrices,
  label: string,
  matrices: TransposedMatrix<BufferSlice>[],
): BufferSlice {
  const { bytes } = dtypes[dtype];
  const [ownBytes, size] = [((rows - 1) * rowStride + columns) * bytes, rows * columns * bytes];
  const buffer = program.makeBuffer(count * size, label);
  for (let index = 0; index < count; index++) {
    matrices.push({
      from: { buffer: slice.buffer, offset: slice.offset + index * batchStride * bytes, size: ownBytes },
      to: { buffer, offset: index * size, size },
      ...{ rows, columns, rowStride },
    });
  }
  return { buffer, offset: 0, size: count * size };
}

export function transposeCall(
  runtime: Runtime,
  op: string,
  matrices: readonly TransposedMatrix<BufferSlice>[],
): Call {
  const { source, blocks, arguments: values } = transposeLaunchOf(matrices);
  return { op, work: { kind: "launch", kernel: runtime.kernel(source), blocks, arguments: values } };
}
