/**
 * Direct GEMM with contiguous rows of op(B): vectors run over the columns of C, and every element is accumulated in the order
 * of k.
 */

import type { Code, Local, WasmFunction } from "../../../driver/index.js";
import { advance, forRange, forWholeSteps, repeat } from "../../codegen/wasm/loops.js";
import { wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulate, rowAddresses, rowsParameters, setZero } from "./direct-rows.js";
import { type Blend, blendIntoC, type Element } from "./element.js";

const vectorBytes = 16;

/** The body of a loop over columns: `rows` × one scalar or some vectors, accumulated over k and stored in C. */
interface ColumnsLoop {
  readonly element: Element;
  readonly aRows: readonly Local[];
  readonly aKBytes: Local;
  readonly b: Local;
  readonly bStride: Local;
  readonly k: Local;
  /** The address of the next column, for each row of C. */
  readonly cRows: readonly Local[];
  readonly blend: Blend;
}

function multiplyColumns(code: Code, loop: ColumnsLoop, width: "scalar" | 1 | 2): void {
  const { element, aRows, aKBytes, b, bStride, k, cRows, blend } = loop;
  const isVector = width !== "scalar";
  const type = isVector ? "v128" : element.dtype;
  const [load, loadA] = isVector ? (["v128.load", element.loadSplat] as const) : [element.load, element.load];
  const fromB = Array.from({ length: width === "scalar" ? 1 : width }, () => code.local(type));
  const fromA = code.local(type);
  const bAt = code.local("i32");
  const left = code.local("i32");
  const rows = aRows.map((start, row) => ({
    start,
    at: code.local("i32"),
    c: cRows[row] as Local,
    accumulators: fromB.map((b) => ({ b, acc: code.local(type) })),
  }));
  code.get(b).set(bAt);
  code.get(k).set(left);
  for (const { start, at, accumulators } of rows) {
    code.get(start).set(at);
    for (const { acc } of accumulators) setZero(code, element, acc);
  }
  repeat(code, left, () => {
    for (const [index, vector] of fromB.entries())
      code
        .get(bAt)
        .memory(load, index * vectorBytes)
        .set(vector);
    for (const { at, accumulators } of rows) {
      code.get(at).memory(loadA).set(fromA);
      for (const { b, acc } of accumulators) accumulate(code.get(fromA).get(b), element, acc);
      advance(code, at, aKBytes);
    }
    advance(code, bAt, bStride);
  });
  const step = width === "scalar" ? element.bytes : width * vectorBytes;
  for (const { c, accumulators } of rows) {
    for (const [index, { acc }] of accumulators.entries())
      blendIntoC(
        code,
        element,
        isVector ? "vector" : "scalar",
        { address: c, offset: index * vectorBytes, value: acc },
        blend,
      );
    advance(code, c, step);
  }
  advance(code, b, step);
}

/** The function `name`: computes `rows` rows of C. */
export function columnsFunction(name: string, element: Element, rows: number): WasmFunction {
  return wasmFunction(name, rowsParameters(element), (code, { a, b, c, n, k, aMnBytes, ...args }) => {
    const { aKBytes, bStride, cRowBytes, alpha, beta, readsC } = args;
    const column = code.local("i32");
    const loop: ColumnsLoop = {
      element,
      aRows: rowAddresses(code, rows, a, aMnBytes),
      aKBytes,
      b,
      bStride,
      k,
      cRows: rowAddresses(code, rows, c, cRowBytes),
      blend: { alpha, beta, readsC },
    };
    forWholeSteps(code, column, n, 2 * element.lanes, () => multiplyColumns(code, loop, 2));
    forWholeSteps(code, column, n, element.lanes, () => multiplyColumns(code, loop, 1));
    forRange(code, column, n, 1, () => multiplyColumns(code, loop, "scalar"));
  });
}
