/**
 * The forward pass of attention in one WebAssembly kernel. A block is a strip of rows of one (batch, head): scores are
 * computed in the memory of the probabilities, normalised in place, and multiplied by the values. The strip stays in
 * the L1 cache.
 */

import type { Code, KernelSource } from "../../../driver/index.js";
import { call, forRange, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { Element } from "../../gemm/cpu/element.js";
import { type Args, inGroups, setLimit, setToPair, setToProduct, strideParameters } from "./pair.js";
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
const unroll = { scores: 2, out: 4 } as const;

export function forwardKernel(element: Element, access: "out" | "partial-out"): KernelSource {
  const functions = [
    scoresFunction(`scores${unroll.scores}`, element, unroll.scores),
    scoresFunction("scores1", element, 1),
    addMaskFunction(element),
    softmaxFunction(element),
    weightedSumsFunction(`out${unroll.out}`, element, unroll.out, "fromRow"),
    weightedSumsFunction("out1", element, 1, "fromRow"),
  ];
  const name = `attention_${element.dtype}`;
  const attend = (code: Code, args: Args<ReturnType<typeof forwardParameters>>): void => {
    const { firstBlock: block, endBlock, rows, columns, width, valueWidth, scale } = args;
    const locals = localsOf(
      code,
      "i32",
      ...(["pair", "batch", "head", "query", "key", "value", "mask", "out", "scores"] as const),
      ...(["firstRow", "endRow", "row", "limit", "visibleStep", "from", "at", "to", "end"] as const),
      "scoreRowBytes",
    );
    const { pair, firstRow, endRow, row, limit, from, at, to, end, scoreRowBytes } = locals;
    const unitFactor = code.local(element.dtype);
    const overRows = (rowsPerGroup: number, body: (count: number) => void): void => {
      code.get(firstRow).set(row);
      inGroups(code, row, endRow, rowsPerGroup, (count) => {
        setToElement(code, at, locals.scores, row, scoreRowBytes);
        setLimit(code, limit, row, count, args);
        body(count);
      });
    };

    code[element.dtype](1).set(unitFactor);
    setToProduct(code, scoreRowBytes, columns, element.bytes);
    setToProduct(code, locals.visibleStep, args.isCausal, element.bytes);
    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(args.rowStrips).op("i32.div_u").set(pair);
      code.get(block).get(args.rowStrips).op("i32.rem_u").i32(stripRows).op("i32.mul").tee(firstRow);
      code.i32(stripRows).op("i32.add").set(endRow);
      limitTo(code, endRow, rows);
      code.get(pair).get(args.heads).op("i32.div_u").set(locals.batch);
      code.get(pair).get(args.heads).op("i32.rem_u").set(locals.head);
      for (const name of ["query", "key", "value", "mask", "out"] as const)
        setToPair(code, locals[name], args, name, locals);
      setToProduct(code, row, pair, rows);
      setToElement(code, locals.scores, args.probabilities, row, scoreRowBytes);

      overRows(unroll.scores, (count) => {
        setToElement(code, from, locals.query, row, args.queryRowBytes);
        const layout = [args.queryRowBytes, args.keyRowBytes, scoreRowBytes] as const;
        call(code, `scores${count}`, from, locals.key, at, limit, width, ...layout, scale);
      });
      code.get(args.hasMask).if(() =>
        overRows(1, () => {
          setToElement(code, from, locals.mask, row, args.maskRowBytes);
          setToElement(code, end, at, limit, element.bytes);
          call(code, "addMask", at, end, from, args.maskColumnBytes);
        }),
      );
      setToElement(code, at, locals.scores, firstRow, scoreRowBytes);
      setToElement(code, end, locals.scores, endRow, scoreRowBytes);
      setLimit(code, limit, firstRow, 1, args);
      setToProduct(code, limit, limit, element.bytes);
      call(code, "softmaxRows", at, end, scoreRowBytes, limit, locals.visibleStep);
      overRows(unroll.out, (count) => {
        setToElement(code, to, locals.out, row, args.outRowBytes);
        const layout = [scoreRowBytes, args.valueRowBytes, args.outRowBytes] as const;
        call(code, `out${count}`, at, locals.value, to, valueWidth, limit, ...layout, unitFactor);
      });
    });
  };
  return wasmKernel(name, forwardParameters(element, access), functions, attend, importsOf(element));
}
