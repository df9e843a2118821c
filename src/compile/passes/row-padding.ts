/**
 * Row padding: a matrix in step memory whose rows do not begin on 16 bytes gets a larger row stride, if a large GEMM writes or reads it
 * and all other calls access it row by row. GEMMs of the fastest kind load and store aligned rows only. The logits of 65 classes or
 * of 50257 words, and their gradient, are examples. The padding is never read.
 */

import { dtypes, factsOf, type Iteration, staysInRow } from "../../ir/index.js";
import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { alignUp } from "../../units/index.js";
import { withScratch } from "../autotune/gemm-scratch.js";
import { maxPaddingShare, minPaddedMacs } from "../cost-model.js";
import type {
  Buffer,
  BufferSlice,
  Call,
  ColumnCall,
  GemmCall,
  Program,
  RowCall,
  Work,
} from "../program/program.js";
import { isWhole } from "./copy-propagation.js";

/** The alignment of padded rows in elements: 16 bytes of bf16. f32 matrices have it too, because they may become bf16. */
const alignedElements = 8;

/** `minMacs`: the multiply-adds of a GEMM that is large enough. */
export function padRows(runtime: Runtime, program: Program, minMacs = minPaddedMacs): void {
  if (!capabilitiesOf(runtime).needsAlignedRows) return;
  for (const { call } of program.nodes) {
    for (const matrix of unalignedMatrices(call, minMacs)) pad(runtime, program, matrix);
  }
}

/** A matrix that fills a step buffer, without gaps between its rows. */
interface Matrix {
  readonly buffer: Buffer;
  readonly width: number;
  readonly elementBytes: number;
}

interface Padding extends Matrix {
  readonly paddedWidth: number;
  readonly padded: BufferSlice;
}

/** The matrices of a large GEMM that would begin on unaligned memory in some row. */
function unalignedMatrices({ work }: Call, minMacs: number): readonly Matrix[] {
  if (work.kind !== "gemm") return [];
  const { m, n, k, batch = 1, a, b, c, dtype, resultDtype = dtype } = work.problem;
  if (batch !== 1 || m * n * k < minMacs) return [];
  const maxPadding = (m * k + k * n + m * n) * maxPaddingShare;
  const matrices = [
    { ...a, dtype, columns: a.isTransposed ? m : k },
    { ...b, dtype, columns: b.isTransposed ? k : n },
    { ...c, dtype: resultDtype, columns: n },
  ];
  return matrices.flatMap(({ slice: { buffer }, rowStride: width, dtype, columns }): Matrix | [] => {
    const { bytes: elementBytes } = dtypes[dtype];
    const rows = buffer.bytes / (width * elementBytes);
    const padding = alignUp(width, alignedElements) - width;
    if (buffer.storage || width !== columns || !Number.isInteger(rows) || padding === 0) return [];
    return rows > 1 && rows * padding <= maxPadding ? { buffer, width, elementBytes } : [];
  });
}

/** Pads the rows of a matrix, unless a call does not access it row by row. */
function pad(runtime: Runtime, program: Program, matrix: Matrix): void {
  const { buffer, width } = matrix;
  const paddedWidth = alignUp(width, alignedElements);
  const bytes = (buffer.bytes / width) * paddedWidth;
  const slice = { buffer: { ...buffer, bytes }, offset: 0, size: bytes };
  const { writers, readers } = program.uses(buffer);
  const users = new Set([...writers, ...readers]);
  const isAccessedByRows = [...users].every(
    (user) =>
      user.calls.length === 1 && paddedWork(user.call.work, { ...matrix, paddedWidth, padded: slice }),
  );
  if (!isAccessedByRows) return;
  const padded = { ...slice, buffer: program.makeBuffer(bytes, buffer.label) };
  for (const user of users) {
    const work = paddedWork(user.call.work, { ...matrix, paddedWidth, padded });
    if (work?.kind === "gemm") {
      const problem = withScratch(runtime, program, work.problem);
      program.replace(user, { ...user.call, work: { kind: "gemm", problem } });
    } else if (work) program.replace(user, { ...user.call, work });
  }
}

/** The same work on the padded matrix; undefined if it does not access the matrix row by row. */
function paddedWork(work: Work, padding: Padding): Work | undefined {
  switch (work.kind) {
    case "gemm":
      return paddedGemm(work, padding);
    case "row":
      return paddedRows(work, padding);
    case "column":
      return paddedColumns(work, padding);
    default:
      return undefined;
  }
}

function paddedGemm(
  { problem }: GemmCall,
  { buffer, width, elementBytes, paddedWidth, padded }: Padding,
): GemmCall | undefined {
  const { a, b, c, bias, scratch, batch = 1, dtype, resultDtype = dtype } = problem;
  const isMatrix = (slice: BufferSlice | undefined): boolean => slice?.buffer === buffer;
  const operands = [
    { matrix: a, bytes: dtypes[dtype].bytes },
    { matrix: b, bytes: dtypes[dtype].bytes },
    { matrix: c, bytes: dtypes[resultDtype].bytes },
  ];
  const isPossible = operands.every(
    ({ matrix: { slice, rowStride }, bytes }) =>
      !isMatrix(slice) || (isWhole(slice) && rowStride === width && bytes === elementBytes),
  );
  if (batch !== 1 || isMatrix(bias) || isMatrix(scratch) || !isPossible) return undefined;
  const moved = <M extends typeof c>(matrix: M): M =>
    isMatrix(matrix.slice) ? { ...matrix, slice: padded, rowStride: paddedWidth } : matrix;
  return { kind: "gemm", problem: { ...problem, a: moved(a), b: moved(b), c: moved(c) } };
}

function paddedRows(work: RowCall, padding: Padding): RowCall | undefined {
  const { kernel, iteration, operands, scalars } = work;
  const { buffer, width, elementBytes, padded } = padding;
  const { bytes, isReadAtIndex } = factsOf(kernel);
  const isMatrix = operands.map((slice) => slice.buffer === buffer);
  const isPossible = operands.every((slice, operand) => {
    if (!isMatrix[operand]) return true;
    if (!isWhole(slice) || bytes[operand] !== elementBytes) return false;
    // An index counts from the start of a row of the matrix.
    const beginsAtRows = iteration.outer.every(({ strides }) => (strides[operand] ?? 0) % width === 0);
    const isIndexed = isReadAtIndex[operand] === true;
    return (
      isInRows(iteration, operand, width) &&
      (!isIndexed || (beginsAtRows && staysInRow(kernel, operand, width, scalars)))
    );
  });
  if (!isPossible) return undefined;
  const paddedAxis = <A extends Iteration["row"]>({ strides, ...axis }: A) => ({
    ...axis,
    strides: strides.map((stride, operand) => (isMatrix[operand] ? paddedStride(stride, padding) : stride)),
  });
  const { outer, row } = iteration;
  return {
    ...work,
    iteration: { ...iteration, outer: outer.map(paddedAxis), row: paddedAxis(row) },
    operands: operands.map((slice, operand) => (isMatrix[operand] ? padded : slice)),
  };
}

/** True if each axis goes either from row to row of the matrix, or along one row. */
function isInRows({ outer, row }: Iteration, operand: number, width: number): boolean {
  let last = 0;
  for (const { size, strides } of [...outer, row]) {
    const stride = strides[operand] ?? 0;
    if (stride < 0) return false;
    if (stride % width !== 0) last += (size - 1) * stride;
  }
  return last < width;
}

function paddedStride(stride: number, { width, paddedWidth }: Padding): number {
  return stride % width === 0 ? (stride / width) * paddedWidth : stride;
}

/** A column reduction along the rows of the matrix. */
function paddedColumns(work: ColumnCall, padding: Padding): ColumnCall | undefined {
  const { kernel, columns, strides, runs, operands } = work;
  const { buffer, width, elementBytes, padded } = padding;
  const isMatrix = operands.map((slice) => slice.buffer === buffer);
  const isPossible = operands.every((slice, operand) => {
    if (!isMatrix[operand]) return true;
    const [dtype, stride] = [kernel.inputs[operand], strides[operand]];
    if (!dtype || !stride || !isWhole(slice) || dtypes[dtype].bytes !== elementBytes) return false;
    return stride.row % width === 0 && (stride.column === "none" || columns <= width);
  });
  if (!isPossible || runs) return undefined;
  return {
    ...work,
    strides: strides.map((stride, operand) =>
      isMatrix[operand] ? { ...stride, row: paddedStride(stride.row, padding) } : stride,
    ),
    operands: operands.map((slice, operand) => (isMatrix[operand] ? padded : slice)),
  };
}
