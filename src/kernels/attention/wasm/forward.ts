/**
 * The forward pass of attention in one WebAssembly kernel. A block is a strip of rows of one (batch, head): scores are computed in the
 * memory of the probabilities, normalised in place, and multiplied by the values, all in the L1 cache.
 */

import type { Code, KernelSource } from "../../../driver/index.js";
import { call, forRange, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { Element } from "../../gemm/cpu/element.js";
import { type Given, inGroups, setLimit, setToPair, setToProduct, strideParameters } from "./pair.js";
import { scoresFunction } from "./score-dots.js";
import { addMaskFunction, importsOf, softmaxFunction } from "./softmax.js";
import { weightedSumsFunction } from "./weighted-sums.js";

/** Rows of a block: enough to reuse keys and values, few enough that a long sequence has blocks for all threads. */
export const stripRows = 32;

/** The arguments of the forward kernel, in order. */
export function forwardParameters({ dtype }: Element, access: "out" | "partial-out") {
  return {
    query: "in",
    key: "in",
    value: "in",
    /** Ignored if `hasMask` is 0. */
    mask: "in",
    out: access,
    probabilities: access,
    heads: "u32",
    rows: "u32",
    columns: "u32",
    width: "u32",
    valueWidth: "u32",
    rowStrips: "u32",
    ...strideParameters("query", "key", "value", "mask", "out"),
    maskColumnBytes: "u32",
    scale: dtype,
    isCausal: "u32",
    hasMask: "u32",
  } as const;
}

/** Rows per iteration of the two GEMMs. */
const atOnce = { scores: 2, out: 4 } as const;

export function forwardKernel(element: Element, access: "out" | "partial-out"): KernelSource {
  const functions = [
    scoresFunction(`scores${atOnce.scores}`, element, atOnce.scores),
    scoresFunction("scores1", element, 1),
    addMaskFunction(element),
    softmaxFunction(element),
    weightedSumsFunction(`out${atOnce.out}`, element, atOnce.out, "fromRow"),
    weightedSumsFunction("out1", element, 1, "fromRow"),
  ];
  const name = `attention_${element.dtype}`;
  const attend = (code: Code, given: Given<ReturnType<typeof forwardParameters>>): void => {
    const { firstBlock: block, endBlock, rows, columns, width, valueWidth, scale } = given;
    const here = localsOf(
      code,
      "i32",
      ...(["pair", "batch", "head", "query", "key", "value", "mask", "out", "scores"] as const),
      ...(["firstRow", "endRow", "row", "limit", "visibleStep", "from", "at", "to", "end"] as const),
      "scoreRowBytes",
    );
    const { pair, firstRow, endRow, row, limit, from, at, to, end, scoreRowBytes } = here;
    const one = code.local(element.dtype);
    const overRows = (atOnce: number, body: (count: number) => void): void => {
      code.get(firstRow).set(row);
      inGroups(code, row, endRow, atOnce, (count) => {
        setToElement(code, at, here.scores, row, scoreRowBytes);
        setLimit(code, limit, row, count, given);
        body(count);
      });
    };

    code[element.dtype](1).set(one);
    setToProduct(code, scoreRowBytes, columns, element.bytes);
    setToProduct(code, here.visibleStep, given.isCausal, element.bytes);
    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(given.rowStrips).op("i32.div_u").set(pair);
      code.get(block).get(given.rowStrips).op("i32.rem_u").i32(stripRows).op("i32.mul").tee(firstRow);
      code.i32(stripRows).op("i32.add").set(endRow);
      limitTo(code, endRow, rows);
      code.get(pair).get(given.heads).op("i32.div_u").set(here.batch);
      code.get(pair).get(given.heads).op("i32.rem_u").set(here.head);
      for (const name of ["query", "key", "value", "mask", "out"] as const)
        setToPair(code, here[name], given, name, here);
      setToProduct(code, row, pair, rows);
      setToElement(code, here.scores, given.probabilities, row, scoreRowBytes);

      overRows(atOnce.scores, (count) => {
        setToElement(code, from, here.query, row, given.queryRowBytes);
        const layout = [given.queryRowBytes, given.keyRowBytes, scoreRowBytes] as const;
        call(code, `scores${count}`, from, here.key, at, limit, width, ...layout, scale);
      });
      code.get(given.hasMask).if(() =>
        overRows(1, () => {
          setToElement(code, from, here.mask, row, given.maskRowBytes);
          setToElement(code, end, at, limit, element.bytes);
          call(code, "addMask", at, end, from, given.maskColumnBytes);
        }),
      );
      setToElement(code, at, here.scores, firstRow, scoreRowBytes);
      setToElement(code, end, here.scores, endRow, scoreRowBytes);
      setLimit(code, limit, firstRow, 1, given);
      setToProduct(code, limit, limit, element.bytes);
      call(code, "softmaxRows", at, end, scoreRowBytes, limit, here.visibleStep);
      overRows(atOnce.out, (count) => {
        setToElement(code, to, here.out, row, given.outRowBytes);
        const layout = [scoreRowBytes, given.valueRowBytes, given.outRowBytes] as const;
        call(code, `out${count}`, at, here.value, to, valueWidth, limit, ...layout, one);
      });
    });
  };
  return wasmKernel(name, forwardParameters(element, access), functions, attend, importsOf(element));
}
