/**
 * Sums of rows, each with the weight that a matrix of scores has for it: `to[t] = factor · Σ weight(t, s) · from[s]`, for
 * some t at a time. Vectors run along the rows, and every element is summed in the order of s.
 */

import type { Code, Local, WasmFunction } from "../../../driver/index.js";
import { advance, forRange, forWholeSteps, limitTo, repeat, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulate, rowAddresses, setZero } from "../../gemm/cpu/direct-rows.js";
import type { Element } from "../../gemm/cpu/element.js";

const vectorBytes = 16;

/** Whether target t takes its weights from row t of the scores, or from column t. */
export type WeightLayout = "fromRow" | "fromColumn";

/** `name`: makes `targets` rows, of `length` elements each, out of `steps` rows. Scores lie side by side in their row. */
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
  return wasmFunction(name, parameters, (code, { weights, from, to, length, steps, ...given }) => {
    const { place, left, fromAt, toAt, lastPlace } = localsOf(
      code,
      "i32",
      ...(["place", "left", "fromAt", "toAt", "lastPlace"] as const),
    );
    /** One walks down the scores' rows for all targets, or each target has its own that walks along its row. */
    const starts =
      layout === "fromRow" ? rowAddresses(code, targets, weights, given.weightRowBytes) : [weights];
    const walkers = starts.map((start) => ({ start, at: code.local("i32") }));
    const stepBytes = layout === "fromRow" ? bytes : given.weightRowBytes;
    const factorOfAll = code.local("v128");

    const sumAt = (width: "scalar" | 1 | 2): void => {
      const isVector = width !== "scalar";
      const type = isVector ? "v128" : element.dtype;
      const values = Array.from({ length: isVector ? width : 1 }, () => code.local(type));
      const weight = code.local(type);
      const sums = Array.from({ length: targets }, () =>
        values.map((value) => ({ value, sum: code.local(type) })),
      );
      for (const { sum } of sums.flat()) setZero(code, element, sum);
      setToElement(code, fromAt, from, place, bytes);
      for (const { start, at } of walkers) code.get(start).set(at);
      code.get(steps).set(left);
      repeat(code, left, () => {
        for (const [index, value] of values.entries())
          code
            .get(fromAt)
            .memory(isVector ? "v128.load" : element.load, index * vectorBytes)
            .set(value);
        for (const [target, sumsOfTarget] of sums.entries()) {
          const { at } = walkers[layout === "fromRow" ? target : 0] as { at: Local };
          code
            .get(at)
            .memory(isVector ? element.loadSplat : element.load, layout === "fromRow" ? 0 : target * bytes)
            .set(weight);
          for (const { value, sum } of sumsOfTarget) accumulate(code.get(weight).get(value), element, sum);
        }
        for (const { at } of walkers) advance(code, at, stepBytes);
        advance(code, fromAt, given.fromRowBytes);
      });
      setToElement(code, toAt, to, place, bytes);
      for (const sumsOfTarget of sums) {
        for (const [index, { sum }] of sumsOfTarget.entries())
          storeGemm(code, element, toAt, index, sum, isVector ? factorOfAll : given.factor);
        advance(code, toAt, given.toRowBytes);
      }
    };

    code.get(given.factor).op(element.splat).set(factorOfAll);
    code.get(length).i32(lanes).op("i32.ge_u");
    code.if(
      () => {
        forWholeSteps(code, place, length, 2 * lanes, () => sumAt(2));
        code.get(length).i32(lanes).op("i32.sub").set(lastPlace);
        // The last vector may begin inside the one before it: what both hold is made twice, and alike.
        forRange(code, place, length, lanes, () => {
          limitTo(code, place, lastPlace);
          sumAt(1);
        });
      },
      () => forRange(code, place, length, 1, () => sumAt("scalar")),
    );
  });
}

/** Stores factor · sum, scalars or vectors, the one numbered `index` from the address. */
function storeGemm(code: Code, element: Element, to: Local, index: number, sum: Local, factor: Local): void {
  const isVector = sum.type === "v128";
  code.get(to).get(sum).get(factor);
  code.op(isVector ? element.multiplyVectors : element.multiply);
  code.memory(isVector ? "v128.store" : element.store, index * vectorBytes);
}
