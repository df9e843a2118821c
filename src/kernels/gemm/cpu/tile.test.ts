/** The microkernel with and without fused multiply-add (relaxed SIMD), against float64. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { encodeModule } from "../../../driver/index.js";
import { elementOf, plainElements } from "./element.js";
import { tileColumns, tileFunction, tileShape } from "./tile.js";

const depth = 37;
const addresses = { a: 0, b: 16_384, c: 32_768 };

for (const dtype of ["f32", "f64"] as const) {
  test(`a tile of ${dtype} is correct with and without fused multiply-add`, () => {
    for (const element of [plainElements[dtype], elementOf(dtype)]) {
      const memory = new WebAssembly.Memory({ initial: 1, maximum: 65_536, shared: true });
      const module = new WebAssembly.Module(encodeModule([tileFunction(element)]));
      const { exports } = new WebAssembly.Instance(module, { env: { memory } });
      const tile = exports["tile"] as (...args: number[]) => void;
      const columns = tileColumns(element);
      const values = dtype === "f32" ? new Float32Array(memory.buffer) : new Float64Array(memory.buffer);
      const at = (address: number, index: number) => address / element.bytes + index;
      for (let i = 0; i < depth * tileShape.rows; i++) values[at(addresses.a, i)] = Math.sin(i);
      for (let i = 0; i < depth * columns; i++) values[at(addresses.b, i)] = Math.cos(i);
      tile(addresses.a, addresses.b, depth, addresses.c, columns * element.bytes, 1, 0, 0);
      for (let row = 0; row < tileShape.rows; row++) {
        for (let column = 0; column < columns; column++) {
          let sum = 0;
          for (let k = 0; k < depth; k++) {
            sum +=
              values[at(addresses.a, k * tileShape.rows + row)]! *
              values[at(addresses.b, k * columns + column)]!;
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
}
