/** The microkernel against float64, with and without fused multiply-add (relaxed SIMD), for every way to read A. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { plainCase, runGemm } from "../../../../test/support/gemms.js";
import { withCpuRuntime } from "../../../../test/support/runtimes.js";
import { sameBytes } from "../../../../test/support/same-bytes.js";
import { encodeModule } from "../../../driver/index.js";
import { type Element, elementOf, plainElements } from "./element.js";
import { lowerPacked } from "./lower.js";
import { blocking } from "./multiply.js";
import { planPacked } from "./plan.js";
import { expandFunction, tileColumns, tileFunction } from "./tile.js";
import type { BroadcastOfA, TileShape } from "./tile-shape.js";

const depth = 37;
const addresses = { a: 0, b: 16_384, c: 32_768, expanded: 40_960 };

const shapes: readonly TileShape[] = [
  ...(["load", "shuffle", "expanded"] as const).map((broadcast: BroadcastOfA) => ({
    ...{ rows: 4, vectors: 4, broadcast, unroll: 1 },
  })),
  { rows: 6, vectors: 2, broadcast: "load", unroll: 1 },
  { rows: 5, vectors: 4, broadcast: "expanded", unroll: 4 },
];

for (const dtype of ["f32", "f64"] as const) {
  const elements = [plainElements[dtype], elementOf(dtype)];
  const variants = elements.flatMap((element) => shapes.map((tile): Element => ({ ...element, tile })));

  test(`a tile of ${dtype} is correct with and without fused multiply-add, for every shape`, () => {
    for (const element of variants) {
      const { rows, broadcast } = element.tile;
      const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
      const module = new WebAssembly.Module(encodeModule([tileFunction(element), expandFunction(element)]));
      const { exports } = new WebAssembly.Instance(module, { env: { memory } });
      const tile = exports["tile"] as (...args: number[]) => void;
      const expand = exports["expand"] as (...args: number[]) => void;
      const columns = tileColumns(element);
      const values = dtype === "f32" ? new Float32Array(memory.buffer) : new Float64Array(memory.buffer);
      const at = (address: number, index: number) => address / element.bytes + index;
      for (let i = 0; i < depth * rows; i++) values[at(addresses.a, i)] = Math.sin(i);
      for (let i = 0; i < depth * columns; i++) values[at(addresses.b, i)] = Math.cos(i);
      if (broadcast === "expanded")
        expand(addresses.a, rows * element.bytes, element.bytes, rows, depth, addresses.expanded);
      const a = broadcast === "expanded" ? addresses.expanded : addresses.a;
      tile(a, addresses.b, depth, addresses.c, columns * element.bytes, 1, 0, 0);
      for (let row = 0; row < rows; row++) {
        for (let column = 0; column < columns; column++) {
          let sum = 0;
          for (let k = 0; k < depth; k++) {
            sum += values[at(addresses.a, k * rows + row)]! * values[at(addresses.b, k * columns + column)]!;
          }
          const actual = values[at(addresses.c, row * columns + column)]!;
          const bound = depth * depth * (dtype === "f32" ? 2 ** -24 : 2 ** -53);
          assert.ok(
            Math.abs(actual - sum) <= bound,
            `[${row}, ${column}] is ${actual}, and ${sum} in float64`,
          );
        }
      }
    }
  });

  test(`a packed GEMM of ${dtype} has the same bits for every shape of its tile`, () => {
    withCpuRuntime({}, ({ runtime }) => {
      const { rows, columns, depth: slice } = blocking(elementOf(dtype));
      // Several strips and slices, and tiles across every edge.
      const size = { m: rows + 3, n: columns + 5, k: slice + 2 };
      const gemmCase = { ...plainCase, ...size, dtype, alpha: 0.5, beta: 2, batch: 2 };
      const results = shapes.map((tile) => {
        const element = { ...elementOf(dtype), tile };
        const { after } = runGemm(runtime, gemmCase, (_, problem) => {
          const scratch = runtime.arena.allocate(planPacked(problem, element).scratchBytes, "scratch");
          runtime.submit(runtime.load(lowerPacked({ ...problem, scratch }, element, "gemm")));
        });
        return after;
      });
      const { after: expected } = runGemm(runtime, gemmCase);
      for (const [index, result] of results.entries())
        sameBytes(result, expected, `the tile ${JSON.stringify(shapes[index])}`);
    });
  });
}
