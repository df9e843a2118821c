/** The description of a GEMM, and its validation: shapes and strides are consistent, and the storages are large enough. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";
import type { GemmDtype } from "./cpu/element.js";

/** Operand dtypes on a GPU; accumulators of 16-bit operands are f32. */
export type GemmInputDtype = GemmDtype | "f16" | "bf16";

/** A row-major matrix in memory. Strides count elements. */
export interface MatrixLayout {
  /** The distance between stored rows; at least the row's length. */
  readonly rowStride: number;
  /** True if op(X) is the transpose of the stored matrix. */
  readonly isTransposed?: boolean;
  /** The distance between matrices of the batch; default: 0, one matrix for the whole batch. */
  readonly batchStride?: number;
}

export interface Operand extends MatrixLayout {
  /** Begins at the matrix's first element: a view if the matrix is part of a larger storage. */
  readonly storage: Storage;
}

/** Shape and layouts. They determine the scratch memory. */
export interface GemmShape<D extends GemmInputDtype = GemmDtype> {
  readonly dtype: D;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** Default: 1. */
  readonly batch?: number;
  /** op(A) is [m, k]. */
  readonly a: MatrixLayout;
  /** op(B) is [k, n]. */
  readonly b: MatrixLayout;
}

/**
 * `C = activation(alpha · op(A) · op(B) + beta · C + bias)`. C must not share elements with A, B, the bias or the scratch
 * memory.
 */
export interface GemmProblem<D extends GemmInputDtype = GemmDtype> extends GemmShape<D> {
  /** The dtype of C; default: the operands' dtype. */
  readonly resultDtype?: D;
  /** The dtype of the bias; default: C's. Only the native GPU kernels support another one. */
  readonly biasDtype?: GemmInputDtype;
  /** With k = 0 the operands are not read. */
  readonly a: Operand;
  readonly b: Operand;
  /** C is [m, n] and can't be transposed. */
  readonly c: Omit<Operand, "isTransposed">;
  /** Default: 1. */
  readonly alpha?: number;
  /** Default: 0, and then C is not read. */
  readonly beta?: number;
  /** [n], added to every row. */
  readonly bias?: Storage;
  /** The distance between the biases of two matrices of the batch; default: 0, one bias for all. */
  readonly biasBatchStride?: number;
  /** Applied to every element at the end; `gelu` is the tanh approximation. */
  readonly activation?: "relu" | "gelu";
  /** At least `gemmScratchBytes` bytes; undefined if that is 0. */
  readonly scratch?: Storage;
  /**
   * The algorithm. One of `gemmCandidates`: cuBLASLt's from 0 on, native kernels from `firstNativeAlgorithm` down. If native kernels compute
   * the GEMM exactly: below `exactGemmCandidates`. Default: 0.
   */
  readonly algorithm?: number;
  /** Programmatic dependent launch: the preceding launch does not write B, so native kernels load it before the grid dependency wait. */
  readonly prefetchesB?: boolean;
}

/** A product that is added to that of a GEMM. Its operands have the layouts of the GEMM's. */
export interface Addend<O = Operand> {
  /** Row-major, [m, k]. */
  readonly a: O;
  /** op(B) is [k, n]. */
  readonly b: O;
  readonly k: number;
}

/** The algorithm id of the first native candidate; the others count down. */
export const firstNativeAlgorithm = -1;

/** A GEMM with a fused epilogue. C has no memory if the epilogue does not store it. */
export interface EpilogueTarget extends Omit<GemmProblem<GemmInputDtype>, "c"> {
  readonly c?: GemmProblem["c"] | undefined;
}

type Location = Pick<Storage, "span">;

/** The inputs of config selection: a problem with addresses instead of storages. */
export interface GemmDesc extends Omit<GemmProblem<GemmInputDtype>, "a" | "b" | "c" | "bias" | "scratch"> {
  readonly a: MatrixLayout & { readonly storage: Location };
  readonly b: MatrixLayout & { readonly storage: Location };
  readonly c: MatrixLayout & { readonly storage: Location };
  readonly bias?: Location;
}

/** How a GEMM accesses C's storage: it writes all of it, writes some of it, or reads it as well. */
export type AccessToC = "out" | "partial-out" | "inout";

/** "partial-out" if rows are padded, or if the storage is larger than the matrix. */
export function accessToC({ dtype, resultDtype = dtype, m, n, batch = 1, c, beta = 0 }: GemmDesc): AccessToC {
  if (beta !== 0) return "inout";
  return c.storage.span.size === batch * m * n * dtypes[resultDtype].bytes ? "out" : "partial-out";
}

/** Rejects sizes, strides and storages that do not fit each other. */
export function requireValid(problem: EpilogueTarget): void {
  const { m, n, k, batch = 1, a, b, c, bias, dtype, resultDtype = dtype, biasDtype = resultDtype } = problem;
  const [elementBytes, resultBytes] = [dtypes[dtype].bytes, dtypes[resultDtype].bytes];
  for (const [name, size] of Object.entries({ m, n, k, batch })) requireCount(name, size);
  const matrices = {
    A: { ...a, rows: a.isTransposed ? k : m, columns: a.isTransposed ? m : k },
    B: { ...b, rows: b.isTransposed ? n : k, columns: b.isTransposed ? k : n },
    ...(c && { C: { ...c, rows: m, columns: n } }),
  };
  for (const [name, { storage, rows, columns, rowStride, batchStride = 0 }] of Object.entries(matrices)) {
    requireCount(`${name}'s row stride`, rowStride);
    requireCount(`${name}'s batch stride`, batchStride);
    if (rows > 1 && rowStride < columns) {
      throw rejected(
        `${name} is ${rows}×${columns}, and its row stride of ${rowStride} makes its rows overlap.`,
      );
    }
    const matrixExtent = rows === 0 || columns === 0 ? 0 : (rows - 1) * rowStride + columns;
    // Matrices may also be interleaved row by row.
    const isInterleaved = batchStride >= columns && (batch - 1) * batchStride + columns <= rowStride;
    if (name === "C" && batch > 1 && batchStride < matrixExtent && !isInterleaved) {
      throw rejected(
        `C's batch stride of ${batchStride} makes its ${batch} matrices of ${matrixExtent} elements overlap.`,
      );
    }
    const extent = matrixExtent === 0 ? 0 : Math.max(batch - 1, 0) * batchStride + matrixExtent;
    const neededBytes = extent * (name === "C" ? resultBytes : elementBytes);
    if (batch > 0 && neededBytes > storage.span.size) {
      throw rejected(
        `${name} takes ${neededBytes} bytes (${batch} × ${rows}×${columns} of ${problem.dtype}), and "${storage.label}" has ${storage.span.size}. Pass a larger storage, or smaller strides.`,
      );
    }
  }
  if (!bias) return;
  const biasBytes = (Math.max(batch - 1, 0) * (problem.biasBatchStride ?? 0) + n) * dtypes[biasDtype].bytes;
  if (bias.span.size < biasBytes) {
    throw rejected(`the bias takes ${biasBytes} bytes, and "${bias.label}" has ${bias.span.size}.`);
  }
}

function requireCount(name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 0 || value >= 2 ** 31) {
    throw rejected(`${name} is ${value}; pass a whole number from 0 to 2³¹ − 1.`);
  }
}

/** Rejects a bias whose dtype differs from C's: cuBLASLt and the CPU kernels do not support it. */
export function requireBiasAsResult({
  dtype,
  resultDtype = dtype,
  bias,
  biasDtype = resultDtype,
}: GemmDesc): void {
  if (!bias || biasDtype === resultDtype) return;
  throw rejected(
    `the bias has dtype ${biasDtype} and the result ${resultDtype}; here they must be equal. Convert the bias, or store the result as ${biasDtype}.`,
  );
}

/** An argument error of a GEMM. */
export function rejected(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `gemm: ${message}`);
}
