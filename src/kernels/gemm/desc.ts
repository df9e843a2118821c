/** What a product is asked to be, checked: shapes and strides fit each other, and the storages hold them. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes } from "../../ir/index.js";
import type { Storage } from "../../runtime/index.js";
import type { GemmDtype } from "./cpu/element.js";

/** What a device's own library multiplies too; sums of half floats are f32 inside. */
export type GemmInputDtype = GemmDtype | "f16" | "bf16";

/** How a matrix lies in memory: row by row. Strides count elements. */
export interface MatrixLayout {
  /** From one stored row to the next; at least the row's length. */
  readonly rowStride: number;
  /** The product takes the transpose of what is stored. */
  readonly isTransposed?: boolean;
  /** From one product of the batch to the next; 0, which is the default, shares the matrix between them. */
  readonly batchStride?: number;
}

export interface Operand extends MatrixLayout {
  /** Begins with the first element; a view where that is not the beginning of its owner. */
  readonly storage: Storage;
}

/** The shape of a product, which is all that the memory it needs depends on. */
export interface GemmShape<D extends GemmInputDtype = GemmDtype> {
  readonly dtype: D;
  readonly m: number;
  readonly n: number;
  readonly k: number;
  /** How many products there are; 1 unless given. */
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
  /** Of C; the operands' dtype unless given. A library keeps the sums of half floats in f32. */
  readonly resultDtype?: D;
  /** Of the bias; C's unless given. Only our own kernels for a GPU take another. */
  readonly biasDtype?: GemmInputDtype;
  /** With k = 0 neither operand is read. */
  readonly a: Operand;
  readonly b: Operand;
  /** C is [m, n] and can't be transposed. */
  readonly c: Omit<Operand, "isTransposed">;
  /** 1 unless given. */
  readonly alpha?: number;
  /** 0 unless given, and then what C holds is not read. */
  readonly beta?: number;
  /** [n], added to every row. */
  readonly bias?: Storage;
  /** From the bias of one product of the batch to that of the next; 0 unless given: one for all. */
  readonly biasBatchStride?: number;
  /** What becomes of every element at the end; `gelu` is the one with tanh. */
  readonly activation?: "relu" | "gelu";
  /** As many bytes as `gemmScratchBytes` says, or more; none where it says 0. */
  readonly scratch?: Storage;
  /** One of `gemmCandidates`: which of its algorithms a library takes, its own first unless given, or our own kernel in its place. */
  readonly choice?: number;
  /**
   * Is B good before the launch before this one on its stream has ended, and does it lie apart from what that one writes? Our own kernels
   * for a GPU fetch it before they wait.
   */
  readonly prefetchesB?: boolean;
}

/** The first choice of our own kernels where a library has the product otherwise; the next ones are below it. */
export const firstNativeAlgorithm = -1;

/** A product whose result may stay in registers, so that there is no memory for it. */
export interface EpilogueTarget extends Omit<GemmProblem<GemmInputDtype>, "c"> {
  readonly c?: GemmProblem["c"] | undefined;
}

type Place = Pick<Storage, "span">;

/** A product as its questions are asked: whose memory it works on does not matter, only where that lies. */
export interface GemmDesc extends Omit<GemmProblem<GemmInputDtype>, "a" | "b" | "c" | "bias" | "scratch"> {
  readonly a: MatrixLayout & { readonly storage: Place };
  readonly b: MatrixLayout & { readonly storage: Place };
  readonly c: MatrixLayout & { readonly storage: Place };
  readonly bias?: Place;
}

/** With fewer terms a library's kernel for one product is good enough. */
const minGroupedTerms = 1024;

/** Is it a weight gradient: are its terms the many rows of a batch, which lie apart from each other in both operands? */
export function isGradient({ k, a, b }: GemmDesc): boolean {
  return k >= minGroupedTerms && a.isTransposed === true && !b.isTransposed;
}

/** Products of a batch with a larger result than this are enough for a library to fill a GPU with. */
const largestOfBatch = 1 << 17;

/**
 * Is it a batch of small products whose rows have an odd length, such as a layer of its own for each of several groups of 193
 * features? For those a library has slow kernels only, however far apart the rows lie.
 */
export function isUnalignedBatch({ m, n, k, batch = 1, a, b }: GemmDesc): boolean {
  const lengths = [a.isTransposed ? m : k, b.isTransposed ? k : n];
  return batch > 1 && m * n <= largestOfBatch && lengths.some((length) => length % 8 !== 0);
}

/** How a product meets C: all of its storage is written and none of it read, some of it is written, or it is read as well. */
export type AccessToC = "out" | "partial-out" | "inout";

/** Rows with gaps between them, or a storage with room behind its matrix, are written in part only. */
export function accessToC({ dtype, resultDtype = dtype, m, n, batch = 1, c, beta = 0 }: GemmDesc): AccessToC {
  if (beta !== 0) return "inout";
  return c.storage.span.size === batch * m * n * dtypes[resultDtype].bytes ? "out" : "partial-out";
}

export function requireSound(problem: EpilogueTarget): void {
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
    // Matrices may also lie in each other's gaps, a row of each in turn.
    const isSerializedPlan = batchStride >= columns && (batch - 1) * batchStride + columns <= rowStride;
    if (name === "C" && batch > 1 && batchStride < matrixExtent && !isSerializedPlan) {
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
    throw rejected(`${name} is ${value}; give a whole number from 0 to 2³¹ − 1.`);
  }
}

/** Rejects a bias of another dtype than C's, where a library, or the CPU, is to add it. */
export function requireBiasAsResult({
  dtype,
  resultDtype = dtype,
  bias,
  biasDtype = resultDtype,
}: GemmDesc): void {
  if (!bias || biasDtype === resultDtype) return;
  throw rejected(
    `a library adds a bias of its result's dtype, ${resultDtype}, not one of ${biasDtype}. Convert it first, or leave the result in ${biasDtype}.`,
  );
}

/** A product's own way to reject: every message says what it is about. */
export function rejected(message: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `gemm: ${message}`);
}
