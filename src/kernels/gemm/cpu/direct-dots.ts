/**
 * Direct GEMM with K-major A and B: vectors run over k, and every element is accumulated in lanes, which are reduced before the
 * tail of k.
 */

import type { Code, Local, WasmFunction } from "../../../driver/index.js";
import { advance, forRange, forWholeSteps } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulate, rowAddresses, rowsParameters, setZero } from "./direct-rows.js";
import { type Blend, blendIntoC, type Element } from "./element.js";

const vectorBytes = 16;

/** The body of a loop over columns, `width` at a time: each element is accumulated in lanes, which are then reduced. */
function multiplyDots(
  code: Code,
  element: Element,
  operands: {
    readonly aRows: readonly Local[];
    readonly bColumns: readonly Local[];
    readonly cRows: readonly Local[];
    readonly k: Local;
    readonly blend: Blend;
  },
): void {
  const { aRows, bColumns, cRows, k, blend } = operands;
  const { at, done } = localsOf(code, "i32", "at", "done");
  const fromB = code.local("v128");
  const total = code.local(element.dtype);
  const rows = aRows.map((start, row) => ({
    start,
    c: cRows[row] as Local,
    fromA: code.local("v128"),
    accumulators: bColumns.map(() => code.local("v128")),
  }));
  const loadAt = (base: Local, load: typeof element.load): Code =>
    code.get(base).get(at).op("i32.add").memory(load);
  for (const { accumulators } of rows) for (const acc of accumulators) setZero(code, element, acc);
  code.i32(0).set(at).i32(0).set(done);
  forWholeSteps(code, done, k, element.lanes, () => {
    for (const { start, fromA } of rows) loadAt(start, "v128.load").set(fromA);
    for (const [index, column] of bColumns.entries()) {
      loadAt(column, "v128.load").set(fromB);
      for (const { fromA, accumulators } of rows)
        accumulate(code.get(fromA).get(fromB), element, accumulators[index] as Local);
    }
    advance(code, at, vectorBytes);
  });
  const { tailAt, tailDone } = localsOf(code, "i32", "tailAt", "tailDone");
  code.get(at).set(tailAt).get(done).set(tailDone);
  for (const { start, c, accumulators } of rows) {
    for (const [index, acc] of accumulators.entries()) {
      const addLanes = (first: number): Code =>
        code
          .get(acc)
          .lane(element.extractLane, first)
          .get(acc)
          .lane(element.extractLane, first + 1)
          .op(element.add);
      addLanes(0);
      if (element.lanes === 4) addLanes(2).op(element.add);
      code.set(total).get(tailAt).set(at).get(tailDone).set(done);
      forRange(code, done, k, 1, () => {
        loadAt(start, element.load);
        loadAt(bColumns[index] as Local, element.load);
        accumulate(code, element, total);
        advance(code, at, element.bytes);
      });
      blendIntoC(code, element, "scalar", { address: c, offset: index * element.bytes, value: total }, blend);
    }
  }
}

/** The function `name`: computes `rows` rows of C. */
export function dotsFunction(name: string, element: Element, rows: number): WasmFunction {
  return wasmFunction(name, rowsParameters(element), (code, { a, b, c, n, k, aMnBytes, ...args }) => {
    const { bStride, cRowBytes, alpha, beta, readsC } = args;
    const column = code.local("i32");
    const aRows = rowAddresses(code, rows, a, aMnBytes);
    const cRows = rowAddresses(code, rows, c, cRowBytes);
    const multiplyColumns = (count: number): void => {
      const bColumns = rowAddresses(code, count, b, bStride);
      multiplyDots(code, element, { aRows, bColumns, cRows, k, blend: { alpha, beta, readsC } });
      for (const row of cRows) advance(code, row, count * element.bytes);
      for (let done = 0; done < count; done++) advance(code, b, bStride);
    };
    forWholeSteps(code, column, n, 4, () => multiplyColumns(4));
    forRange(code, column, n, 1, () => multiplyColumns(1));
  });
}
