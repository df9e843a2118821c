/**
 * One panel of a packed operand: a few rows of op(A), or columns of op(B), in the layout [k][width], zero-padded at the matrix's edge.
 * Contiguous neighbours in either direction are copied as vectors.
 */

import type { Code, Local, WasmFunction } from "../../../driver/index.js";
import { advance, forRange, forWholeSteps, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import type { Element } from "./element.js";

const vectorBytes = 16;

/**
 * The start offsets of vectors that cover `width` elements. The last one overlaps its neighbour if the width is not a multiple: writing some
 * elements twice is cheaper than scalar stores.
 */
function vectorStarts(width: number, lanes: number): number[] {
  return Array.from({ length: Math.ceil(width / lanes) }, (_, index) =>
    Math.min(index * lanes, width - lanes),
  );
}

/** The function `name`: packs one panel, of which `count` rows are inside of the matrix; `kBytes` and `mnBytes` are the matrix's strides. */
export function packFunction(name: string, element: Element, width: number): WasmFunction {
  const types = {
    from: "i32",
    kBytes: "i32",
    mnBytes: "i32",
    count: "i32",
    depth: "i32",
    to: "i32",
  } as const;
  const stepBytes = width * element.bytes;
  return wasmFunction(name, types, (code, { from, kBytes, mnBytes, count, depth, to }) => {
    const { done, source, target, row } = localsOf(code, "i32", "done", "source", "target", "row");

    const copyVectors = (): void => {
      code.get(from).set(source);
      code.get(to).set(target);
      forRange(code, done, depth, 1, () => {
        for (const start of vectorStarts(width, element.lanes)) {
          const offset = start * element.bytes;
          code.get(target).get(source).memory("v128.load", offset).memory("v128.store", offset);
        }
        advance(code, source, kBytes);
        advance(code, target, stepBytes);
      });
    };
    const transposeVectors = (): void => {
      for (const start of vectorStarts(width, element.lanes)) {
        const rows = Array.from({ length: element.lanes }, () => code.local("i32"));
        for (const [index, row] of rows.entries()) {
          code
            .get(from)
            .get(mnBytes)
            .i32(start + index)
            .op("i32.mul")
            .op("i32.add")
            .set(row);
        }
        code.get(to).set(target);
        code.i32(0).set(done);
        forWholeSteps(code, done, depth, element.lanes, () => {
          const columns = loadTransposed(code, rows);
          for (const [index, column] of columns.entries()) {
            code
              .get(target)
              .get(column)
              .memory("v128.store", index * stepBytes + start * element.bytes);
          }
          for (const row of rows) advance(code, row, vectorBytes);
          advance(code, target, element.lanes * stepBytes);
        });
      }
    };
    /** Copies the remaining k from `done` on, with zeros beyond the edge of the matrix. */
    const copyOneByOne = (): void => {
      setToElement(code, to, to, done, stepBytes);
      setToElement(code, from, from, done, kBytes);
      forRange(code, done, depth, 1, () => {
        code.get(to).i32(0).i32(stepBytes).op("memory.fill");
        code.get(from).set(source);
        code.get(to).set(target);
        code.i32(0).set(row);
        forRange(code, row, count, 1, () => {
          code.get(target).get(source).memory(element.load).memory(element.store);
          advance(code, source, mnBytes);
          advance(code, target, element.bytes);
        });
        advance(code, from, kBytes);
        advance(code, to, stepBytes);
      });
    };

    code
      .get(count)
      .i32(width)
      .op("i32.eq")
      .if(() => {
        code
          .get(mnBytes)
          .i32(element.bytes)
          .op("i32.eq")
          .if(copyVectors, () => {
            code.get(kBytes).i32(element.bytes).op("i32.eq").if(transposeVectors);
          });
      });
    copyOneByOne();
  });
}

/** Loads the vectors at the rows' addresses, and returns their columns. */
function loadTransposed(code: Code, rows: readonly Local[]): Local[] {
  const lowHalves = [0, 1, 4, 5] as const;
  const highHalves = [2, 3, 6, 7] as const;
  const shuffle = (first: Local, second: Local, lanes: readonly [number, number, number, number]): Local => {
    const shuffled = code.local("v128");
    code.get(first).get(second).shuffle(lanes).set(shuffled);
    return shuffled;
  };
  const loaded = rows.map((row) => {
    const vector = code.local("v128");
    code.get(row).memory("v128.load").set(vector);
    return vector;
  });
  const [first, second, third, fourth] = loaded as [Local, Local, Local?, Local?];
  if (!third || !fourth) return [shuffle(first, second, lowHalves), shuffle(first, second, highHalves)];
  const [low01, high01] = [shuffle(first, second, [0, 4, 1, 5]), shuffle(first, second, [2, 6, 3, 7])];
  const [low23, high23] = [shuffle(third, fourth, [0, 4, 1, 5]), shuffle(third, fourth, [2, 6, 3, 7])];
  return [
    shuffle(low01, low23, lowHalves),
    shuffle(low01, low23, highHalves),
    shuffle(high01, high23, lowHalves),
    shuffle(high01, high23, highHalves),
  ];
}
