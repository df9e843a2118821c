/**
 * GEMMs that are too small or too thin for packing, directly from the operands. Two kernels for the two layouts of B: `columns` for
 * contiguous rows of op(B), `dots` for K-major A and B. A block of the launch is a strip of rows and columns of one matrix of the batch.
 */

import type { KernelSource } from "../../../driver/index.js";
import { call, forRange, forWholeSteps, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { AccessToC, GemmShape } from "../desc.js";
import { columnsFunction } from "./direct-columns.js";
import { dotsFunction } from "./direct-dots.js";
import type { Element } from "./element.js";

export type DirectConfig = "columns" | "dots";

/** Rows of C in one block: enough work for a thread, and few enough that a thin GEMM still has blocks for all threads. */
const directStripRows = 32;
/** Multiply-adds of a strip: it is narrower than C if its rows have more, so that a GEMM of few rows has blocks for all threads, too. */
const directStripWork = 2 ** 18;
/** Whole vectors of every element, so that only the last columns of C are computed one by one. */
const directStripColumnStep = 8;

/** How C is divided into strips. Depends on the shape alone; the bits do not depend on it. */
export function directStrips({ m, n, k }: Pick<GemmShape, "m" | "n" | "k">) {
  const columns = directStripWork / (Math.min(m, directStripRows) * Math.max(k, 1));
  const stripColumns = Math.max(1, Math.ceil(columns / directStripColumnStep)) * directStripColumnStep;
  return {
    rowStrips: Math.ceil(m / directStripRows),
    columnStrips: Math.ceil(n / stripColumns),
    stripColumns,
  };
}

/** The parameters of the direct kernels, in order. Strides are in bytes; `bStride` is B's stride that is not one element. */
export function directParameters({ dtype }: Element, access: AccessToC) {
  return {
    a: "in",
    b: "in",
    c: access,
    m: "u32",
    n: "u32",
    k: "u32",
    rowStrips: "u32",
    columnStrips: "u32",
    stripColumns: "u32",
    aMnBytes: "u32",
    aKBytes: "u32",
    aBatchBytes: "u32",
    bStride: "u32",
    bBatchBytes: "u32",
    cRowBytes: "u32",
    cBatchBytes: "u32",
    alpha: dtype,
    beta: dtype,
    readsC: "u32",
  } as const;
}

/** Rows per iteration of each kernel; the remaining rows one by one. */
const rowsPerIteration: Readonly<Record<DirectConfig, number>> = { columns: 4, dots: 2 };

export function directKernel(element: Element, config: DirectConfig, access: AccessToC): KernelSource {
  const printFunction = config === "columns" ? columnsFunction : dotsFunction;
  const rows = rowsPerIteration[config];
  const functions = [printFunction("someRows", element, rows), printFunction("oneRow", element, 1)];
  const name = `gemm_${config}_${element.dtype}`;
  return wasmKernel(name, directParameters(element, access), functions, (code, args) => {
    const { firstBlock: block, endBlock, m, k, rowStrips, aMnBytes, aKBytes, bStride, cRowBytes } = args;
    const locals = localsOf(
      ...([code, "i32"] as const),
      ...(["batch", "strip", "row", "endRow", "column", "n", "aBase", "a", "b", "cBase", "c"] as const),
    );
    const { batch, strip, row, endRow, column, n, aBase, a, b, cBase, c } = locals;
    const multiplyRows = (callee: string): void => {
      setToElement(code, a, aBase, row, aMnBytes);
      setToElement(code, c, cBase, row, cRowBytes);
      const blend = [args.alpha, args.beta, args.readsC] as const;
      call(code, callee, a, b, c, n, k, aMnBytes, aKBytes, bStride, cRowBytes, ...blend);
    };
    forRange(code, block, endBlock, 1, () => {
      // Strips of the same columns come one after the other, and read the same elements of B.
      code
        .get(block)
        .get(rowStrips)
        .op("i32.div_u")
        .tee(strip)
        .get(args.columnStrips)
        .op("i32.div_u")
        .set(batch);
      code.get(strip).get(args.columnStrips).op("i32.rem_u").get(args.stripColumns).op("i32.mul").set(column);
      code.get(args.n).get(column).op("i32.sub").set(n);
      limitTo(code, n, args.stripColumns);
      code.get(block).get(rowStrips).op("i32.rem_u").i32(directStripRows).op("i32.mul").tee(row);
      code.i32(directStripRows).op("i32.add").set(endRow);
      limitTo(code, endRow, m);
      setToElement(code, aBase, args.a, batch, args.aBatchBytes);
      setToElement(code, b, args.b, batch, args.bBatchBytes);
      setToElement(code, b, b, column, config === "dots" ? bStride : element.bytes);
      setToElement(code, cBase, args.c, batch, args.cBatchBytes);
      setToElement(code, cBase, cBase, column, element.bytes);
      forWholeSteps(code, row, endRow, rows, () => multiplyRows("someRows"));
      forRange(code, row, endRow, 1, () => multiplyRows("oneRow"));
    });
  });
}
