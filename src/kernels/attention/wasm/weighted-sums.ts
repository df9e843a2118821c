/**
 * Weighted sums of rows, with weights from a matrix of scores: `to[t] = factor · Σ weight(t, s) · from[s]`, for several t at a time.
 * Vectors run along the rows, and every element is accumulated in the order of s.
 */

import type { Code, Local, WasmFunction } from "../../../driver/index.js";
import { advance, forRange, forWholeSteps, limitTo, repeat, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulate, rowAddresses, setZero } from "../../gemm/cpu/direct-rows.js";
import type { Element } from "../../gemm/cpu/element.js";

const vectorBytes = 16;

/** Target t has its weights in row t of the scores, or in column t. */
export type WeightLayout = "fromRow" | "fromColumn";

/** The function `name`: computes `targets` rows of `length` elements from `steps` rows. Rows of scores are contiguous. */
export function weightedSumsFunction(
  name: string,
  element: Element,
  targets: number,
  layout: WeightLayout,
): WasmFunction {
  const { bytes, lanes } = element;
  const parameters = {
    weights: "i32",
    from: "i32",
    to: "i32",
    length: "i32",
    steps: "i32",
    weightRowBytes: "i32",
    fromRowBytes: "i32",
    toRowBytes: "i32",
    factor: element.dtype,
  } as const;
  return wasmFunction(name, parameters, (code, { weights, from, to, length, steps, ...args }) => {
    const { column, left, fromAt, toAt, lastColumn } = localsOf(
      code,
      "i32",
      ...(["column", "left", "fromAt", "toAt", "lastColumn"] as const),
    );
    /** The addresses of the weights: one per target, which moves along its row; or one for all, which moves down the columns. */
    const starts =
      layout === "fromRow" ? rowAddresses(code, targets, weights, args.weightRowBytes) : [weights];
    const cursors = starts.map((start) => ({ start, at: code.local("i32") }));
    const stepBytes = layout === "fromRow" ? bytes : args.weightRowBytes;
    const splatFactor = code.local("v128");

    const accumulateAt = (width: "scalar" | 1 | 2): void => {
      const isVector = width !== "scalar";
      const type = isVector ? "v128" : element.dtype;
      const values = Array.from({ length: isVector ? width : 1 }, () => code.local(type));
      const weight = code.local(type);
      const acc = Array.from({ length: targets }, () =>
        values.map((value) => ({ value, sum: code.local(type) })),
      );
      for (const { sum } of acc.flat()) setZero(code, element, sum);
      setToElement(code, fromAt, from, column, bytes);
      for (const { start, at } of cursors) code.get(start).set(at);
      code.get(steps).set(left);
      repeat(code, left, () => {
        for (const [index, value] of values.entries())
          code
            .get(fromAt)
            .memory(isVector ? "v128.load" : element.load, index * vectorBytes)
            .set(value);
        for (const [target, accOfTarget] of acc.entries()) {
          const { at } = cursors[layout === "fromRow" ? target : 0] as { at: Local };
          code
            .get(at)
            .memory(isVector ? element.loadSplat : element.load, layout === "fromRow" ? 0 : target * bytes)
            .set(weight);
          for (const { value, sum } of accOfTarget) accumulate(code.get(weight).get(value), element, sum);
        }
        for (const { at } of cursors) advance(code, at, stepBytes);
        advance(code, fromAt, args.fromRowBytes);
      });
      setToElement(code, toAt, to, column, bytes);
      for (const accOfTarget of acc) {
        for (const [index, { sum }] of accOfTarget.entries())
          storeScaled(code, element, toAt, index, sum, isVector ? splatFactor : args.factor);
        advance(code, toAt, args.toRowBytes);
      }
    };

    code.get(args.factor).op(element.splat).set(splatFactor);
    code.get(length).i32(lanes).op("i32.ge_u");
    code.if(
      () => {
        forWholeSteps(code, column, length, 2 * lanes, () => accumulateAt(2));
        code.get(length).i32(lanes).op("i32.sub").set(lastColumn);
        // The last vector may overlap the one before it: the common elements are computed twice, with the same result.
        forRange(code, column, length, lanes, () => {
          limitTo(code, column, lastColumn);
          accumulateAt(1);
        });
      },
      () => forRange(code, column, length, 1, () => accumulateAt("scalar")),
    );
  });
}

/** Stores factor · sum, a scalar or a vector, at the `index`-th vector from the address. */
function storeScaled(
  code: Code,
  element: Element,
  to: Local,
  index: number,
  sum: Local,
  factor: Local,
): void {
  const isVector = sum.type === "v128";
  code.get(to).get(sum).get(factor);
  code.op(isVector ? element.multiplyVectors : element.multiply);
  code.memory(isVector ? "v128.store" : element.store, index * vectorBytes);
}
