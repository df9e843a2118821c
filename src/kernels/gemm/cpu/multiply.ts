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

/** The arguments of the multiply kernel, in order. Strides and offsets are in bytes, those of packed operands included. */
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
  return wasmKernel(name, multiplyParameters(element, access), functions, (code, given) => {
    const { firstBlock: block, endBlock, scratch, m, n, k, alpha } = given;
    const here = localsOf(
      code,
      "i32",
      ...(["batch", "firstRow", "endRow", "firstColumn", "endColumn", "spare"] as const),
      ...(["aBase", "bBase", "cBase", "slice", "depth", "readsC", "index"] as const),
      ...(["row", "column", "a", "b", "c", "rows", "columns"] as const),
    );
    const beta = code.local(element.dtype);

    /** [first, end) of a strip, given its number on the stack. */
    const setStrip = (first: Local, end: Local, size: number, limit: Local): void => {
      code.i32(size).op("i32.mul").tee(first).i32(size).op("i32.add").set(end);
      limitTo(code, end, limit);
    };
    /** `address = base + (place · k + slice · width) · bytes`: a slice of the panel that begins at `place`. */
    const setPanel = (address: Local, base: Local, place: Local, width: number): void => {
      code
        .get(place)
        .get(k)
        .op("i32.mul")
        .get(here.slice)
        .i32(width)
        .op("i32.mul")
        .op("i32.add")
        .set(here.index);
      setToElement(code, address, base, here.index, element.bytes);
    };
    const multiplyTile = (): void => {
      const { a, b, c, depth, readsC, rows, columns, spare } = here;
      const blend = [c, given.cRowBytes, alpha, beta, readsC] as const;
      setPanel(a, here.aBase, here.row, panel.rows);
      setToElement(code, c, here.cBase, here.row, given.cRowBytes);
      setToElement(code, c, c, here.column, element.bytes);
      code.get(here.endRow).get(here.row).op("i32.sub").set(rows);
      limitTo(code, rows, panel.rows);
      code.get(rows).i32(panel.rows).op("i32.eq").get(columns).i32(panel.columns).op("i32.eq").op("i32.and");
      code.if(
        () => call(code, "tile", a, b, depth, ...blend),
        () => call(code, "edgeTile", a, b, depth, ...blend, rows, columns, spare),
      );
    };
    const multiplySlice = (): void => {
      code.get(k).get(here.slice).op("i32.sub").set(here.depth);
      limitTo(code, here.depth, strip.depth);
      code.get(here.firstColumn).set(here.column);
      forRange(code, here.column, here.endColumn, panel.columns, () => {
        setPanel(here.b, here.bBase, here.column, panel.columns);
        code.get(here.endColumn).get(here.column).op("i32.sub").set(here.columns);
        limitTo(code, here.columns, panel.columns);
        code.get(here.firstRow).set(here.row);
        forRange(code, here.row, here.endRow, panel.rows, multiplyTile);
      });
      // Later slices accumulate into C.
      code.i32(1).set(here.readsC);
      code[element.dtype](1).set(beta);
    };

    forRange(code, block, endBlock, 1, () => {
      code.get(block).get(given.columnStrips).op("i32.rem_u");
      setStrip(here.firstColumn, here.endColumn, strip.columns, n);
      code.get(block).get(given.columnStrips).op("i32.div_u").set(here.index);
      code.get(here.index).get(given.rowStrips).op("i32.rem_u");
      setStrip(here.firstRow, here.endRow, strip.rows, m);
      code.get(here.index).get(given.rowStrips).op("i32.div_u").set(here.batch);
      setToElement(code, here.aBase, scratch, here.batch, given.aBatchBytes);
      code.get(scratch).get(given.bOffset).op("i32.add").set(here.bBase);
      setToElement(code, here.bBase, here.bBase, here.batch, given.bBatchBytes);
      setToElement(code, here.cBase, given.c, here.batch, given.cBatchBytes);
      code.get(scratch).get(given.spareOffset).op("i32.add").set(here.spare);
      setToElement(code, here.spare, here.spare, block, tileBytes);
      code.get(given.readsC).set(here.readsC);
      code.get(given.beta).set(beta);
      code.i32(0).set(here.slice);
      forRange(code, here.slice, k, strip.depth, multiplySlice);
    });
  });
}
