/** Column kernels on the CPU add in the order of the rows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openCpuKernelRuntime, put } from "../../../../test/support/kernel-runtime.js";
import type { ColumnKernel, Expression } from "../../../ir/index.js";
import { columnCalls } from "../../kernel-call.js";
import { submit } from "../../submit.js";

const runtime = openCpuKernelRuntime();

const load = (input: number): Expression => ({ kind: "load", input, type: "f32" });

test("every number of columns is summed in the order of the rows, bit for bit", () => {
  const product: Expression = { kind: "binary", op: "mul", a: load(0), b: load(1), type: "f32" };
  const kernel: ColumnKernel = {
    name: "weighted",
    inputs: ["f32", "f32"],
    outputs: ["f32"],
    scalars: [],
    op: "add",
    values: [product],
  };
  for (const columns of [1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 100, 257]) {
    const rows = 1 + ((columns * 7) % 50);
    const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 100);
    const weights = Float32Array.from({ length: rows }, (_, index) => Math.cos(index));
    const actual = runtime.step(() => {
      const output = runtime.arena.allocate(4 * columns, "sums");
      const strides = [
        { row: columns, column: "unit" },
        { row: 1, column: "none" },
      ] as const;
      const operands = [put(runtime, values, "x"), put(runtime, weights, "w"), output];
      submit(runtime, columnCalls({ kernel, rows, columns, strides, operands }));
      return new Float32Array(runtime.read(output).buffer);
    });
    for (let column = 0; column < columns; column++) {
      let sum = 0;
      for (let row = 0; row < rows; row++) {
        sum = Math.fround(sum + Math.fround(values[row * columns + column]! * weights[row]!));
      }
      assert.ok(
        Object.is(actual[column], sum),
        `column ${column} of ${columns}: ${actual[column]}, expected ${sum}`,
      );
    }
  }
});
