/**
 * The GEMM microkernel: a tile of C in registers accumulates a packed panel of A times a packed panel of B. Every element is accumulated in
 * the order of k for every tile shape, so that the shape may differ between machines.
 */

import type { Local, WasmFunction } from "../../../driver/index.js";
import { advance, call, forRange, repeat } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulateVector, blendIntoC, type Element } from "./element.js";

export interface TileShape {
  readonly rows: number;
  /** Vectors in a row. */
  readonly vectors: number;
}

/**
 * The largest tile that fits in vector registers. V8 has 15 of them on x86-64: 12 accumulators, 2 of B and 1 of A, if the multiply-add
 * works in place. Before V8 13 (Node 24) it needs another register, and 8 accumulators are faster by a third. arm64 has about 30.
 */
function selectTileShape(): TileShape {
  if (process.arch === "arm64") return { rows: 4, vectors: 4 };
  const accumulatesInPlace = Number.parseInt(process.versions.v8, 10) >= 13;
  return { rows: accumulatesInPlace ? 6 : 4, vectors: 2 };
}

export const tileShape = selectTileShape();

export function tileColumns(element: Element): number {
  return tileShape.vectors * element.lanes;
}

const vectorBytes = 16;
const tileRowBytes = tileShape.vectors * vectorBytes;
/** Bytes of one tile of either element type. */
export const tileBytes = tileShape.rows * tileRowBytes;

/** The parameters of both tile functions; addresses are in bytes, and `depth` is the number of k steps. */
function tileParameters({ dtype }: Element) {
  return {
    a: "i32",
    b: "i32",
    depth: "i32",
    c: "i32",
    cRowBytes: "i32",
    alpha: dtype,
    beta: dtype,
    readsC: "i32",
  } as const;
}

/** `tile`: C's whole tile = alpha · A · B (+ beta · C). */
export function tileFunction(element: Element): WasmFunction {
  return wasmFunction("tile", tileParameters(element), (code, { a, b, depth, c, cRowBytes, ...blend }) => {
    const vector = (): Local => code.local("v128");
    const fromA = vector();
    const fromB = Array.from({ length: tileShape.vectors }, vector);
    const accumulators = Array.from({ length: tileShape.rows }, () =>
      fromB.map((b) => ({ b, acc: vector() })),
    );

    // Not unrolled: V8 of Node 20 and 22 keeps the accumulators in registers here, and spills them when unrolled.
    repeat(code, depth, () => {
      for (const [index, local] of fromB.entries())
        code
          .get(b)
          .memory("v128.load", index * vectorBytes)
          .set(local);
      for (const [row, rowAccumulators] of accumulators.entries()) {
        code
          .get(a)
          .memory(element.loadSplat, row * element.bytes)
          .set(fromA);
        for (const { b, acc } of rowAccumulators) accumulateVector(code.get(fromA).get(b), element, acc);
      }
      advance(code, a, tileShape.rows * element.bytes);
      advance(code, b, tileRowBytes);
    });
    for (const rowAccumulators of accumulators) {
      for (const [index, { acc }] of rowAccumulators.entries()) {
        const target = { address: c, offset: index * vectorBytes, value: acc };
        blendIntoC(code, element, "vector", target, blend);
      }
      advance(code, c, cRowBytes);
    }
  });
}

/**
 * `edgeTile`: the same for a tile of which only `rows` × `columns` are inside of C. The whole tile is computed in `spare`; then the elements
 * inside of C are copied.
 */
export function edgeTileFunction(element: Element): WasmFunction {
  const parameters = { ...tileParameters(element), rows: "i32", columns: "i32", spare: "i32" } as const;
  return wasmFunction("edgeTile", parameters, (code, { a, b, depth, c, cRowBytes, ...rest }) => {
    const { alpha, beta, readsC, rows, columns, spare } = rest;
    const { row, at, rowEnd, toC } = localsOf(code, "i32", "row", "at", "rowEnd", "toC");
    const value = code.local(element.dtype);
    call(code, "tile", a, b, depth, spare, tileRowBytes, alpha, beta, 0);
    forRange(code, row, rows, 1, () => {
      code.get(spare).set(at);
      code.get(spare).get(columns).i32(element.bytes).op("i32.mul").op("i32.add").set(rowEnd);
      code.get(c).set(toC);
      forRange(code, at, rowEnd, element.bytes, () => {
        code.get(at).memory(element.load).set(value);
        blendIntoC(code, element, "scalar", { address: toC, offset: 0, value }, { beta, readsC });
        advance(code, toC, element.bytes);
      });
      advance(code, spare, tileRowBytes);
      advance(code, c, cRowBytes);
    });
  });
}
