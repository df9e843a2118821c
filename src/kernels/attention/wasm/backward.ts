/**
 * The backward pass of attention in one WebAssembly kernel. A block is one (batch, head); dK and dV are accumulated over the rows in
 * order, so there is no reduction between blocks.
 */

import type { KernelSource, Local } from "../../../driver/index.js";
import { call, forRange, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { Element } from "../../gemm/cpu/element.js";
import { inGroups, setLimit, setToPair, setToProduct, strideParameters } from "./pair.js";
import { scoresFunction } from "./score-dots.js";
import { softmaxGradientFunction } from "./softmax.js";
import { weightedSumsFunction } from "./weighted-sums.js";

const operands = [
  "query",
  "key",
  "value",
  "outGradient",
  "queryGradient",
  "keyGradient",
  "valueGradient",
] as const;

/** The arguments of the backward kernel, in order. */
export function backwardParameters({ dtype }: Element, access: "out" | "partial-out") {
  return {
    query: "in",
    key: "in",
    value: "in",
    probabilities: "in",
    outGradient: "in",
    queryGradient: access,
    keyGradient: access,
    valueGradient: access,
    scoreGradient: access,
    heads: "u32",
    rows: "u32",
    columns: "u32",
    width: "u32",
    valueWidth: "u32",
    ...strideParameters(...operands),
    scale: dtype,
    isCausal: "u32",
  } as const;
}

/** Rows or columns per iteration of each kind of GEMM. */
const atOnce = { scores: 2, sums: 4 } as const;

export function backwardKernel(element: Element, access: "out" | "partial-out"): KernelSource {
  const functions = [
    scoresFunction(`scores${atOnce.scores}`, element, atOnce.scores),
    scoresFunction("scores1", element, 1),
    softmaxGradientFunction(element),
    weightedSumsFunction(`rows${atOnce.sums}`, element, atOnce.sums, "fromRow"),
    weightedSumsFunction("rows1", element, 1, "fromRow"),
    weightedSumsFunction(`columns${atOnce.sums}`, element, atOnce.sums, "fromColumn"),
    weightedSumsFunction("columns1", element, 1, "fromColumn"),
  ];
  const name = `attention_backward_${element.dtype}`;
  return wasmKernel(name, backwardParameters(element, access), functions, (code, given) => {
    const { firstBlock: block, endBlock, rows, columns, width, valueWidth, scale } = given;
    const here = localsOf(
      code,
      "i32",
      ...operands,
      ...([
        "batch",
        "head",
        "probabilities",
        "scoreGradient",
        "row",
        "column",
        "limit",
        "left",
        "visibleStep",
      ] as const),
      ...(["from", "at", "to", "end", "scoreRowBytes"] as const),
    );
    const { row, column, limit, left, from, at, to, end, scoreRowBytes } = here;
    const one = code.local(element.dtype);
    const overRows = (count: number, body: (count: number) => void): void => {
      code.i32(0).set(row);
      inGroups(code, row, rows, count, (rowsNow) => {
        setToElement(code, at, here.scoreGradient, row, scoreRowBytes);
        setLimit(code, limit, row, rowsNow, given);
        body(rowsNow);
      });
    };
    /** `to[column] = factor · Σ scores[row, column] · from[row]`, for some columns, over the rows that attend to any of them. */
    const multiplyTransposed = (
      count: number,
      sum: {
        readonly scores: Local;
        readonly from: Local;
        readonly fromRowBytes: Local;
        readonly to: Local;
        readonly toRowBytes: Local;
        readonly length: Local;
        readonly factor: Local;
      },
    ): void => {
      // Under a causal mask, column i is visible from row i on.
      code.i32(0).set(row);
      code.get(given.isCausal).if(() => code.get(column).set(row));
      limitTo(code, row, rows);
      code.get(rows).get(row).op("i32.sub").set(left);
      setToElement(code, at, sum.scores, row, scoreRowBytes);
      setToElement(code, at, at, column, element.bytes);
      setToElement(code, from, sum.from, row, sum.fromRowBytes);
      setToElement(code, to, sum.to, column, sum.toRowBytes);
      const layout = [scoreRowBytes, sum.fromRowBytes, sum.toRowBytes] as const;
      call(code, `columns${count}`, at, from, to, sum.length, left, ...layout, sum.factor);
    };

    code[element.dtype](1).set(one);
    setToProduct(code, scoreRowBytes, columns, element.bytes);
    setToProduct(code, here.visibleStep, given.isCausal, element.bytes);
    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(given.heads).op("i32.div_u").set(here.batch);
      code.get(block).get(given.heads).op("i32.rem_u").set(here.head);
      for (const name of operands) setToPair(code, here[name], given, name, here);
      setToProduct(code, row, block, rows);
      setToElement(code, here.probabilities, given.probabilities, row, scoreRowBytes);
      setToElement(code, here.scoreGradient, given.scoreGradient, row, scoreRowBytes);

      overRows(atOnce.scores, (count) => {
        const { outGradientRowBytes, valueRowBytes } = given;
        setToElement(code, from, here.outGradient, row, outGradientRowBytes);
        const layout = [outGradientRowBytes, valueRowBytes, scoreRowBytes] as const;
        call(code, `scores${count}`, from, here.value, at, limit, valueWidth, ...layout, one);
      });
      code.i32(0).set(row);
      setLimit(code, limit, row, 1, given);
      setToProduct(code, limit, limit, element.bytes);
      setToElement(code, end, here.scoreGradient, rows, scoreRowBytes);
      const strip = [here.scoreGradient, end, scoreRowBytes, limit, here.visibleStep] as const;
      call(code, "softmaxGradientRows", here.probabilities, ...strip);
      overRows(atOnce.sums, (count) => {
        const { keyRowBytes, queryGradientRowBytes } = given;
        setToElement(code, to, here.queryGradient, row, queryGradientRowBytes);
        const layout = [scoreRowBytes, keyRowBytes, queryGradientRowBytes] as const;
        call(code, `rows${count}`, at, here.key, to, width, limit, ...layout, scale);
      });
      code.i32(0).set(column);
      inGroups(code, column, columns, atOnce.sums, (count) => {
        multiplyTransposed(count, {
          scores: here.scoreGradient,
          from: here.query,
          fromRowBytes: given.queryRowBytes,
          to: here.keyGradient,
          toRowBytes: given.keyGradientRowBytes,
          length: width,
          factor: scale,
        });
        multiplyTransposed(count, {
          scores: here.probabilities,
          from: here.outGradient,
          fromRowBytes: given.outGradientRowBytes,
          to: here.valueGradient,
          toRowBytes: given.valueGradientRowBytes,
          length: valueWidth,
          factor: one,
        });
      });
    });
  });
}
