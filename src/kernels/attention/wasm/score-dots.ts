/**
 * Scores: the dot products of some queries with all keys. Each is accumulated in the lanes of a vector. As many accumulators as a vector
 * has lanes are then reduced together by shuffles, and stored as one vector.
 */

import type { Code, Local, MemoryOpcode, WasmFunction } from "../../../driver/index.js";
import { advance, limitTo, repeat, setToElement } from "../../codegen/wasm/loops.js";
import { localsOf, wasmFunction } from "../../codegen/wasm/wasm-function.js";
import { rowAddresses, setZero } from "../../gemm/cpu/direct-rows.js";
import { accumulateVector, type Element } from "../../gemm/cpu/element.js";

const vectorBytes = 16;

type Shuffle = readonly [number, number, number, number];
/** The first or the second halves of two vectors. */
const halves: readonly [Shuffle, Shuffle] = [
  [0, 1, 4, 5],
  [2, 3, 6, 7],
];
/** The even or the odd lanes of two vectors. */
const everyOther: readonly [Shuffle, Shuffle] = [
  [0, 2, 4, 6],
  [1, 3, 5, 7],
];

/** Pushes a vector whose lane i is the sum of the lanes of accumulator i. */
function pushTotals(code: Code, { lanes, addVectors }: Element, acc: readonly Local[]): void {
  const addPicks = (a: Local, b: Local, [first, second]: readonly [Shuffle, Shuffle]): Code =>
    code.get(a).get(b).shuffle(first).get(a).get(b).shuffle(second).op(addVectors);
  const [a, b, c, d] = acc as [Local, Local, Local, Local];
  if (lanes === 2) {
    addPicks(a, b, halves);
    return;
  }
  const { left, right } = localsOf(code, "v128", "left", "right");
  addPicks(a, b, halves).set(left);
  addPicks(c, d, halves).set(right);
  addPicks(left, right, everyOther);
}

/** `name`: scores[row, column] = scale · Σ query[row, w] · key[column, w], for `rows` rows. */
export function scoresFunction(name: string, element: Element, rows: number): WasmFunction {
  const { bytes, lanes } = element;
  const replaceLane = element.dtype === "f32" ? "f32x4.replace_lane" : "f64x2.replace_lane";
  const parameters = {
    query: "i32",
    key: "i32",
    scores: "i32",
    columns: "i32",
    width: "i32",
    queryRowBytes: "i32",
    keyRowBytes: "i32",
    scoreRowBytes: "i32",
    scale: element.dtype,
  } as const;
  return wasmFunction(name, parameters, (code, { query, key, scores, columns, width, ...args }) => {
    const { at, steps, left, last, index } = localsOf(code, "i32", "at", "steps", "left", "last", "index");
    const queries = rowAddresses(code, rows, query, args.queryRowBytes);
    const targets = rowAddresses(code, rows, scores, args.scoreRowBytes);
    const keys = Array.from({ length: lanes }, () => code.local("i32"));
    const fromKey = code.local("v128");
    const gathered = code.local("v128");
    const factor = code.local("v128");
    const tile = queries.map((address, row) => ({
      address,
      target: targets[row] as Local,
      fromQuery: code.local("v128"),
      acc: keys.map(() => code.local("v128")),
      totals: code.local("v128"),
    }));
    const loadAt = (base: Local, load: MemoryOpcode): Code =>
      code.get(base).get(at).op("i32.add").memory(load);

    code.get(args.scale).op(element.splat).set(factor);
    code.get(columns).set(left);
    code.block((leave) => {
      code.loop((again) => {
        code.get(left).op("i32.eqz").branchIf(leave);
        // With fewer remaining columns than lanes, the last column is repeated.
        code.get(left).i32(-1).op("i32.add").set(last);
        for (const [column, address] of keys.entries()) {
          code.i32(column).set(index);
          limitTo(code, index, last);
          setToElement(code, address, key, index, args.keyRowBytes);
        }
        for (const { acc } of tile) for (const sum of acc) setZero(code, element, sum);
        code.i32(0).set(at);
        code.get(width).i32(lanes).op("i32.div_u").set(steps);
        // Not unrolled: V8 of Node 20 keeps the accumulators in registers here, and spills them when unrolled.
        repeat(code, steps, () => {
          for (const { address, fromQuery } of tile) loadAt(address, "v128.load").set(fromQuery);
          for (const [column, address] of keys.entries()) {
            loadAt(address, "v128.load").set(fromKey);
            for (const { fromQuery, acc } of tile)
              accumulateVector(code.get(fromQuery).get(fromKey), element, acc[column] as Local);
          }
          advance(code, at, vectorBytes);
        });
        for (const { acc, totals } of tile) {
          pushTotals(code, element, acc);
          code.set(totals);
        }
        code.get(width).i32(lanes).op("i32.rem_u").set(steps);
        repeat(code, steps, () => {
          for (const [column, address] of keys.entries()) {
            code.get(gathered);
            loadAt(address, element.load).lane(replaceLane, column).set(gathered);
          }
          for (const { address, totals } of tile) {
            loadAt(address, element.loadSplat).get(gathered);
            accumulateVector(code, element, totals);
          }
          advance(code, at, bytes);
        });
        for (const { totals } of tile) code.get(totals).get(factor).op(element.multiplyVectors).set(totals);
        code.get(left).i32(lanes).op("i32.ge_u");
        code.if(
          () => {
            for (const { target, totals } of tile) {
              code.get(target).get(totals).memory("v128.store");
              advance(code, target, vectorBytes);
            }
            setToElement(code, key, key, index, args.keyRowBytes);
            advance(code, key, args.keyRowBytes);
            advance(code, left, -lanes);
          },
          () => {
            for (let lane = 0; lane < lanes - 1; lane++) {
              code.get(left).i32(lane).op("i32.gt_u");
              code.if(() => {
                for (const { target, totals } of tile) {
                  code.get(target).get(totals).lane(element.extractLane, lane);
                  code.memory(element.store, lane * bytes);
                }
              });
            }
            code.i32(0).set(left);
          },
        );
        code.branch(again);
      });
    });
  });
}
