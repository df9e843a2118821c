/**
 * The GEMM microkernel: a tile of C in registers accumulates a packed panel of A times a packed panel of B. Every element is accumulated in
 * the order of k for every tile shape, so that the shape may differ between machines.
 */

import type { Code, Local, WasmFunction } from "../../../driver/index.js";
import { advance, call, forRange, repeat } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { accumulateVector, blendIntoC, type Element } from "./element.js";

const vectorBytes = 16;

export function tileColumns({ tile, lanes }: Element): number {
  return tile.vectors * lanes;
}

/** Bytes of one tile. */
export function tileBytes({ tile }: Element): number {
  return tile.rows * tile.vectors * vectorBytes;
}

/** Bytes per k of the panel of A that the tile reads. */
export function tilePanelBytes({ tile, bytes }: Element): number {
  return tile.rows * (tile.broadcast === "expanded" ? vectorBytes : bytes);
}

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
    const { vectors, unroll } = element.tile;
    const rowBytes = vectors * vectorBytes;
    const iterations = code.local("i32");
    const fromB = Array.from({ length: vectors }, vector);
    const accumulators = Array.from({ length: element.tile.rows }, () =>
      fromB.map((b) => ({ b, acc: vector() })),
    );
    const pushBroadcast = broadcastOfA(code, element, a);

    const accumulate = (step: number): void => {
      for (const [index, local] of fromB.entries())
        code
          .get(b)
          .memory("v128.load", step * rowBytes + index * vectorBytes)
          .set(local);
      for (const [row, rowAccumulators] of accumulators.entries()) {
        pushBroadcast(row, step);
        code.set(fromA);
        for (const { b, acc } of rowAccumulators) accumulateVector(code.get(fromA).get(b), element, acc);
      }
    };
    const accumulateSteps = (count: number): void => {
      for (let step = 0; step < count; step++) accumulate(step);
      advance(code, a, count * tilePanelBytes(element));
      advance(code, b, count * rowBytes);
    };
    if (unroll > 1) {
      code.get(depth).i32(unroll).op("i32.div_u").set(iterations);
      repeat(code, iterations, () => accumulateSteps(unroll));
      code.get(depth).i32(unroll).op("i32.rem_u").set(depth);
    }
    repeat(code, depth, () => accumulateSteps(1));
    for (const rowAccumulators of accumulators) {
      for (const [index, { acc }] of rowAccumulators.entries()) {
        const target = { address: c, offset: index * vectorBytes, value: acc };
        blendIntoC(code, element, "vector", target, blend);
      }
      advance(code, c, cRowBytes);
    }
  });
}

/** Returns a function that pushes a vector with one element of the panel in every lane. The rows of a step must be pushed in order. */
function broadcastOfA(code: Code, element: Element, a: Local): (row: number, step: number) => void {
  const { bytes, lanes, loadSplat } = element;
  const stepBytes = tilePanelBytes(element);
  switch (element.tile.broadcast) {
    case "load":
      return (row, step) => void code.get(a).memory(loadSplat, step * stepBytes + row * bytes);
    case "expanded":
      return (row, step) => void code.get(a).memory("v128.load", step * stepBytes + row * vectorBytes);
    case "shuffle": {
      const some = code.local("v128");
      return (row, step) => {
        const lane = row % lanes;
        if (lane === 0)
          code
            .get(a)
            .memory("v128.load", step * stepBytes + row * bytes)
            .set(some);
        code.get(some).get(some);
        if (lanes === 4) code.shuffle([lane, lane, lane, lane]);
        else code.shuffle([2 * lane, 2 * lane + 1, 2 * lane, 2 * lane + 1]);
      };
    }
  }
}

/**
 * `expand`: copies `depth` steps of a panel of op(A), with every element repeated in a whole vector. `count` rows are inside of the matrix;
 * the panel's other rows repeat the last of them, because their results are not used. `kBytes` and `mnBytes` are the matrix's strides.
 */
export function expandFunction(element: Element): WasmFunction {
  const parameters = {
    from: "i32",
    kBytes: "i32",
    mnBytes: "i32",
    count: "i32",
    depth: "i32",
    to: "i32",
  } as const;
  return wasmFunction("expand", parameters, (code, { from, kBytes, mnBytes, count, depth, to }) => {
    const rows = Array.from({ length: element.tile.rows }, (_, row) =>
      row === 0 ? from : code.local("i32"),
    );
    for (const [index, row] of rows.entries()) {
      const before = rows[index - 1];
      if (!before) continue;
      code.get(before).get(mnBytes).i32(0).get(count).i32(index).op("i32.gt_u").op("select");
      code.op("i32.add").set(row);
    }
    repeat(code, depth, () => {
      for (const [index, row] of rows.entries()) {
        code
          .get(to)
          .get(row)
          .memory(element.loadSplat)
          .memory("v128.store", index * vectorBytes);
        advance(code, row, kBytes);
      }
      advance(code, to, tilePanelBytes(element));
    });
  });
}

/**
 * `edgeTile`: the same for a tile of which only `rows` × `columns` are inside of C. The whole tile is computed in `spare`; then the elements
 * inside of C are copied.
 */
export function edgeTileFunction(element: Element): WasmFunction {
  const parameters = { ...tileParameters(element), rows: "i32", columns: "i32", spare: "i32" } as const;
  const tileRowBytes = element.tile.vectors * vectorBytes;
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
