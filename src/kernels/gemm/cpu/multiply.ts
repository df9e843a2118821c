/**
 * GEMM of packed panels. A block of the launch is one block of C, small enough that all threads have blocks and that its panels stay in
 * the L2 cache. Within it K is divided into slices: a slice of one panel of B stays in the L1 cache while the panels of A stream by. If the
 * tile reads an expanded panel of A, it is that one that stays while the panels of B stream by.
 */

import type { KernelSource, Local } from "../../../driver/index.js";
import { call, forRange, limitTo, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmKernel } from "../../codegen/wasm/wasm-function.js";
import type { AccessToC } from "../desc.js";
import type { Element } from "./element.js";
import {
  edgeTileFunction,
  expandFunction,
  tileBytes,
  tileColumns,
  tileFunction,
  tilePanelBytes,
} from "./tile.js";

/** The blocking of C and K. Measured with `npm run bench:gemm`. */
export function blocking(element: Element) {
  return { rows: 8 * element.tile.rows, columns: 16 * tileColumns(element), depth: 256 };
}

/** Temporary memory of a block: a tile, for those that cross C's edge, and the expanded slice of a panel of A, if the tile reads one. */
export function spareBytes(element: Element, k: number): number {
  const isExpanded = element.tile.broadcast === "expanded";
  return (
    tileBytes(element) + (isExpanded ? Math.min(k, blocking(element).depth) * tilePanelBytes(element) : 0)
  );
}

/**
 * The parameters of the multiply kernel, in order. Strides and offsets are in bytes, also those of packed operands. `a` is the matrix and
 * has its strides if the tile reads expanded panels, and else the packed panels.
 */
export function multiplyParameters({ dtype }: Element, access: AccessToC) {
  return {
    scratch: "inout",
    a: "in",
    c: access,
    m: "u32",
    n: "u32",
    k: "u32",
    rowStrips: "u32",
    columnStrips: "u32",
    cRowBytes: "u32",
    cBatchBytes: "u32",
    aMnBytes: "u32",
    aKBytes: "u32",
    aBatchBytes: "u32",
    bBatchBytes: "u32",
    bOffset: "u32",
    spareOffset: "u32",
    spareBytes: "u32",
    alpha: dtype,
    beta: dtype,
    readsC: "u32",
  } as const;
}

export function multiplyKernel(element: Element, access: AccessToC): KernelSource {
  const strip = blocking(element);
  const panel = { rows: element.tile.rows, columns: tileColumns(element) };
  const isExpanded = element.tile.broadcast === "expanded";
  const name = `gemm_${element.dtype}`;
  const functions = [
    tileFunction(element),
    edgeTileFunction(element),
    ...(isExpanded ? [expandFunction(element)] : []),
  ];
  return wasmKernel(name, multiplyParameters(element, access), functions, (code, args) => {
    const { firstBlock: block, endBlock, scratch, m, n, k, alpha } = args;
    const locals = localsOf(
      code,
      "i32",
      ...(["batch", "firstRow", "endRow", "firstColumn", "endColumn", "spare", "expanded"] as const),
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
    const selectRows = (): void => {
      const { a, aBase, row, endRow, rows, slice, depth, expanded } = locals;
      const { aMnBytes, aKBytes } = args;
      code.get(endRow).get(row).op("i32.sub").set(rows);
      limitTo(code, rows, panel.rows);
      if (!isExpanded) {
        setPanel(a, aBase, row, panel.rows);
        return;
      }
      setToElement(code, a, aBase, row, aMnBytes);
      setToElement(code, a, a, slice, aKBytes);
      call(code, "expand", a, aKBytes, aMnBytes, rows, depth, expanded);
      code.get(expanded).set(a);
    };
    const selectColumns = (): void => {
      const { b, column, endColumn, columns } = locals;
      setPanel(b, locals.bBase, column, panel.columns);
      code.get(endColumn).get(column).op("i32.sub").set(columns);
      limitTo(code, columns, panel.columns);
    };
    const forPanelsOfA = (body: () => void): void => {
      code.get(locals.firstRow).set(locals.row);
      forRange(code, locals.row, locals.endRow, panel.rows, () => {
        selectRows();
        body();
      });
    };
    const forPanelsOfB = (body: () => void): void => {
      code.get(locals.firstColumn).set(locals.column);
      forRange(code, locals.column, locals.endColumn, panel.columns, () => {
        selectColumns();
        body();
      });
    };
    const multiplyTile = (): void => {
      const { a, b, c, depth, readsC, rows, columns, spare } = locals;
      const blend = [c, args.cRowBytes, alpha, beta, readsC] as const;
      setToElement(code, c, locals.cBase, locals.row, args.cRowBytes);
      setToElement(code, c, c, locals.column, element.bytes);
      code.get(rows).i32(panel.rows).op("i32.eq").get(columns).i32(panel.columns).op("i32.eq").op("i32.and");
      code.if(
        () => call(code, "tile", a, b, depth, ...blend),
        () => call(code, "edgeTile", a, b, depth, ...blend, rows, columns, spare),
      );
    };
    const multiplySlice = (): void => {
      code.get(k).get(locals.slice).op("i32.sub").set(locals.depth);
      limitTo(code, locals.depth, strip.depth);
      if (isExpanded) forPanelsOfA(() => forPanelsOfB(multiplyTile));
      else forPanelsOfB(() => forPanelsOfA(multiplyTile));
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
      setToElement(code, locals.aBase, args.a, locals.batch, args.aBatchBytes);
      code.get(scratch).get(args.bOffset).op("i32.add").set(locals.bBase);
      setToElement(code, locals.bBase, locals.bBase, locals.batch, args.bBatchBytes);
      setToElement(code, locals.cBase, args.c, locals.batch, args.cBatchBytes);
      code.get(scratch).get(args.spareOffset).op("i32.add").set(locals.spare);
      setToElement(code, locals.spare, locals.spare, block, args.spareBytes);
      code.get(locals.spare).i32(tileBytes(element)).op("i32.add").set(locals.expanded);
      code.get(args.readsC).set(locals.readsC);
      code.get(args.beta).set(beta);
      code.i32(0).set(locals.slice);
      forRange(code, locals.slice, k, strip.depth, multiplySlice);
    });
  });
}
