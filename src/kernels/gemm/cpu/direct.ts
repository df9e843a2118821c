/**
 * GEMMs that are too small or too thin for packing, directly from the operands. Two kernels for the two layouts of B: `columns` for
 * contiguous rows of op(B), `dots` for K-major A and B. A block of the launch is a strip of rows of one matrix of the batch.
 */

import type { KernelSource } from "../../../driver/index.js";
import { call, forRange, forWholeSteps, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { AccessToC } from "../desc.js";
import { columnsFunction } from "./direct-columns.js";
import { dotsFunction } from "./direct-dots.js";
import type { Element } from "./element.js";

export type DirectConfig = "columns" | "dots";

/** Rows of C in one block: enough work for a thread, few enough that a thin GEMM still has blocks for all threads. */
export const directStripRows = 32;

/** The arguments of the direct kernels, in order. Strides are in bytes; `bStride` is the non-unit one of B. */
export function directParameters({ dtype }: Element, access: AccessToC) {
  return {
    a: "in",
    b: "in",
    c: access,
    m: "u32",
    n: "u32",
    k: "u32",
    rowStrips: "u32",
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

/** Rows per iteration of each kernel; the rest one by one. */
const rowsAtOnce: Readonly<Record<DirectConfig, number>> = { columns: 4, dots: 2 };

export function directKernel(element: Element, form: DirectConfig, access: AccessToC): KernelSource {
  const make = form === "columns" ? columnsFunction : dotsFunction;
  const atOnce = rowsAtOnce[form];
  const functions = [make("someRows", element, atOnce), make("oneRow", element, 1)];
  const name = `gemm_${form}_${element.dtype}`;
  return wasmKernel(name, directParameters(element, access), functions, (code, given) => {
    const { firstBlock: block, endBlock, m, n, k, rowStrips, aMnBytes, aKBytes, bStride, cRowBytes } = given;
    const here = localsOf(code, "i32", "batch", "row", "endRow", "aBase", "a", "b", "cBase", "c");
    const { batch, row, endRow, aBase, a, b, cBase, c } = here;
    const multiplyRows = (callee: string): void => {
      setToElement(code, a, aBase, row, aMnBytes);
      setToElement(code, c, cBase, row, cRowBytes);
      const blend = [given.alpha, given.beta, given.readsC] as const;
      call(code, callee, a, b, c, n, k, aMnBytes, aKBytes, bStride, cRowBytes, ...blend);
    };
    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(rowStrips).op("i32.div_u").set(batch);
      code.get(block).get(rowStrips).op("i32.rem_u").i32(directStripRows).op("i32.mul").tee(row);
      code.i32(directStripRows).op("i32.add").set(endRow);
      limitTo(code, endRow, m);
      setToElement(code, aBase, given.a, batch, given.aBatchBytes);
      setToElement(code, b, given.b, batch, given.bBatchBytes);
      setToElement(code, cBase, given.c, batch, given.cBatchBytes);
      forWholeSteps(code, row, endRow, atOnce, () => multiplyRows("someRows"));
      forRange(code, row, endRow, 1, () => multiplyRows("oneRow"));
    });
  });
}
