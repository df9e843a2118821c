/**
 * GEMM of packed panels. A block of the launch is one block of C, small enough that all threads have blocks and that its panels stay in
 * the L2 cache. Within it K is divided into slices: a slice of one panel of B stays in the L1 cache while the panels of A stream by.
 */

import type { KernelSource, Local } from "../../../driver/index.js";
import { call, forRange, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { AccessToC } from "../desc.js";
import type { Element } from "./element.js";
import { edgeTileFunction, tileBytes, tileColumns, tileFunction, tileShape } from "./tile.js";

/** The blocking of C and K. Measured with `npm run bench:gemm`. */
export function blocking(element: Element) {
  return { rows: 8 * tileShape.rows, columns: 16 * tileColumns(element), depth: 256 };
}

/** The parameters of the multiply kernel, in order. Strides and offsets are in bytes, also those of packed operands. */
export function multiplyParameters({ dtype }: Element, access: AccessToC) {
  return {
    scratch: "inout",
    c: access,
    m: "u32",
    n: "u32",
    k: "u32",
    rowStrips: "u32",
    columnStrips: "u32",
    cRowBytes: "u32",
    cBatchBytes: "u32",
    aBatchBytes: "u32",
    bBatchBytes: "u32",
    bOffset: "u32",
    spareOffset: "u32",
    alpha: dtype,
    beta: dtype,
    readsC: "u32",
  } as const;
}

export function multiplyKernel(element: Element, access: AccessToC): KernelSource {
  const strip = blocking(element);
  const panel = { rows: tileShape.rows, columns: tileColumns(element) };
  const name = `gemm_${element.dtype}`;
  const functions = [tileFunction(element), edgeTileFunction(element)];
  return wasmKernel(name, multiplyParameters(element, access), functions, (code, args) => {
    const { firstBlock: block, endBlock, scratch, m, n, k, alpha } = args;
    const locals = localsOf(
      code,
      "i32",
      ...(["batch", "firstRow", "endRow", "firstColumn", "endColumn", "spare"] as const),
      ...(["aBase", "bBase", "cBase", "slice", "depth", "readsC", "index"] as const),
      ...(["row", "column", "a", "b", "c", "rows", "columns"] as const),
    );
    const beta = code.local(element.dtype);

    /** Sets [first, end) of the strip whose number is on the stack. */
    const setStrip = (first: Local, end: Local, size: number, limit: Local): void => {
      code.i32(size).op("i32.mul").tee(first).i32(size).op("i32.add").set(end);
      limitTo(code, end, limit);
    };
    /** `address = base + (first · k + slice · width) · bytes`: a slice of the panel that begins at row or column `first`. */
    const setPanel = (address: Local, base: Local, first: Local, width: number): void => {
      code
        .get(first)
        .get(k)
        .op("i32.mul")
        .get(locals.slice)
        .i32(width)
        .op("i32.mul")
        .op("i32.add")
        .set(locals.index);
      setToElement(code, address, base, locals.index, element.bytes);
    };
    const multiplyTile = (): void => {
      const { a, b, c, depth, readsC, rows, columns, spare } = locals;
      const blend = [c, args.cRowBytes, alpha, beta, readsC] as const;
      setPanel(a, locals.aBase, locals.row, panel.rows);
      setToElement(code, c, locals.cBase, locals.row, args.cRowBytes);
      setToElement(code, c, c, locals.column, element.bytes);
      code.get(locals.endRow).get(locals.row).op("i32.sub").set(rows);
      limitTo(code, rows, panel.rows);
      code.get(rows).i32(panel.rows).op("i32.eq").get(columns).i32(panel.columns).op("i32.eq").op("i32.and");
      code.if(
        () => call(code, "tile", a, b, depth, ...blend),
        () => call(code, "edgeTile", a, b, depth, ...blend, rows, columns, spare),
      );
    };
    const multiplySlice = (): void => {
      code.get(k).get(locals.slice).op("i32.sub").set(locals.depth);
      limitTo(code, locals.depth, strip.depth);
      code.get(locals.firstColumn).set(locals.column);
      forRange(code, locals.column, locals.endColumn, panel.columns, () => {
        setPanel(locals.b, locals.bBase, locals.column, panel.columns);
        code.get(locals.endColumn).get(locals.column).op("i32.sub").set(locals.columns);
        limitTo(code, locals.columns, panel.columns);
        code.get(locals.firstRow).set(locals.row);
        forRange(code, locals.row, locals.endRow, panel.rows, multiplyTile);
      });
      // Later slices accumulate into C.
      code.i32(1).set(locals.readsC);
      code[element.dtype](1).set(beta);
    };

    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(args.columnStrips).op("i32.rem_u");
      setStrip(locals.firstColumn, locals.endColumn, strip.columns, n);
      code.get(block).get(args.columnStrips).op("i32.div_u").set(locals.index);
      code.get(locals.index).get(args.rowStrips).op("i32.rem_u");
      setStrip(locals.firstRow, locals.endRow, strip.rows, m);
      code.get(locals.index).get(args.rowStrips).op("i32.div_u").set(locals.batch);
      setToElement(code, locals.aBase, scratch, locals.batch, args.aBatchBytes);
      code.get(scratch).get(args.bOffset).op("i32.add").set(locals.bBase);
      setToElement(code, locals.bBase, locals.bBase, locals.batch, args.bBatchBytes);
      setToElement(code, locals.cBase, args.c, locals.batch, args.cBatchBytes);
      code.get(scratch).get(args.spareOffset).op("i32.add").set(locals.spare);
      setToElement(code, locals.spare, locals.spare, block, tileBytes);
      code.get(args.readsC).set(locals.readsC);
      code.get(args.beta).set(beta);
      code.i32(0).set(locals.slice);
      forRange(code, locals.slice, k, strip.depth, multiplySlice);
    });
  });
}
