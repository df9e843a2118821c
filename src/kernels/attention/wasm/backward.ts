/**
 * The backward pass of attention in one WebAssembly kernel. A block is one (batch, head); dK and dV are accumulated
 * over the rows in order, so there is no reduction between blocks.
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

/** Rows or columns per iteration of the two kinds of GEMM. */
const unroll = { scores: 2, sums: 4 } as const;

export function backwardKernel(element: Element, access: "out" | "partial-out"): KernelSource {
  const functions = [
    scoresFunction(`scores${unroll.scores}`, element, unroll.scores),
    scoresFunction("scores1", element, 1),
    softmaxGradientFunction(element),
    weightedSumsFunction(`rows${unroll.sums}`, element, unroll.sums, "fromRow"),
    weightedSumsFunction("rows1", element, 1, "fromRow"),
    weightedSumsFunction(`columns${unroll.sums}`, element, unroll.sums, "fromColumn"),
    weightedSumsFunction("columns1", element, 1, "fromColumn"),
  ];
  const name = `attention_backward_${element.dtype}`;
  return wasmKernel(name, backwardParameters(element, access), functions, (code, args) => {
    const { firstBlock: block, endBlock, rows, columns, width, valueWidth, scale } = args;
    const locals = localsOf(
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
    const { row, column, limit, left, from, at, to, end, scoreRowBytes } = locals;
    const unitFactor = code.local(element.dtype);
    const overRows = (count: number, body: (count: number) => void): void => {
      code.i32(0).set(row);
      inGroups(code, row, rows, count, (rowsInGroup) => {
        setToElement(code, at, locals.scoreGradient, row, scoreRowBytes);
        setLimit(code, limit, row, rowsInGroup, args);
        body(rowsInGroup);
      });
    };
    /** `to[column] = factor · Σ scores[row, column] · from[row]`, for `count` columns, over the rows that attend to any of them. */
    const multiplyTransposed = (
      count: number,
      gemm: {
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
      code.get(args.isCausal).if(() => code.get(column).set(row));
      limitTo(code, row, rows);
      code.get(rows).get(row).op("i32.sub").set(left);
      setToElement(code, at, gemm.scores, row, scoreRowBytes);
      setToElement(code, at, at, column, element.bytes);
      setToElement(code, from, gemm.from, row, gemm.fromRowBytes);
      setToElement(code, to, gemm.to, column, gemm.toRowBytes);
      const layout = [scoreRowBytes, gemm.fromRowBytes, gemm.toRowBytes] as const;
      call(code, `columns${count}`, at, from, to, gemm.length, left, ...layout, gemm.factor);
    };

    code[element.dtype](1).set(unitFactor);
    setToProduct(code, scoreRowBytes, columns, element.bytes);
    setToProduct(code, locals.visibleStep, args.isCausal, element.bytes);
    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(args.heads).op("i32.div_u").set(locals.batch);
      code.get(block).get(args.heads).op("i32.rem_u").set(locals.head);
      for (const name of operands) setToPair(code, locals[name], args, name, locals);
      setToProduct(code, row, block, rows);
      setToElement(code, locals.probabilities, args.probabilities, row, scoreRowBytes);
      setToElement(code, locals.scoreGradient, args.scoreGradient, row, scoreRowBytes);

      overRows(unroll.scores, (count) => {
        const { outGradientRowBytes, valueRowBytes } = args;
        setToElement(code, from, locals.outGradient, row, outGradientRowBytes);
        const layout = [outGradientRowBytes, valueRowBytes, scoreRowBytes] as const;
        call(code, `scores${count}`, from, locals.value, at, limit, valueWidth, ...layout, unitFactor);
      });
      code.i32(0).set(row);
      setLimit(code, limit, row, 1, args);
      setToProduct(code, limit, limit, element.bytes);
      setToElement(code, end, locals.scoreGradient, rows, scoreRowBytes);
      const strip = [locals.scoreGradient, end, scoreRowBytes, limit, locals.visibleStep] as const;
      call(code, "softmaxGradientRows", locals.probabilities, ...strip);
      overRows(unroll.sums, (count) => {
        const { keyRowBytes, queryGradientRowBytes } = args;
        setToElement(code, to, locals.queryGradient, row, queryGradientRowBytes);
        const layout = [scoreRowBytes, keyRowBytes, queryGradientRowBytes] as const;
        call(code, `rows${count}`, at, locals.key, to, width, limit, ...layout, scale);
      });
      code.i32(0).set(column);
      inGroups(code, column, columns, unroll.sums, (count) => {
        multiplyTransposed(count, {
          scores: locals.scoreGradient,
          from: locals.query,
          fromRowBytes: args.queryRowBytes,
          to: locals.keyGradient,
          toRowBytes: args.keyGradientRowBytes,
          length: width,
          factor: scale,
        });
        multiplyTransposed(count, {
          scores: locals.probabilities,
          from: locals.outGradient,
          fromRowBytes: args.outGradientRowBytes,
          to: locals.valueGradient,
          toRowBytes: args.valueGradientRowBytes,
          length: valueWidth,
          factor: unitFactor,
        });
      });
    });
  });
}
