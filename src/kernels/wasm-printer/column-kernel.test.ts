/** Printed column kernels: every width and dtype, broadcast inputs, and additions in the rows' own order. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openKernelRuntime, put } from "../../../test/support/kernel-runtime.js";
import type { ColumnKernel, Expression } from "../ir.js";
import { launchColumns } from "../launch.js";

const runtime = openKernelRuntime();

const load = (input: number, type: "f32" | "f64" = "f32"): Expression => ({ kind: "load", input, type });

test("columns of every count are added up in the order of their rows, to the bit", () => {
  const product: Expression = { kind: "binary", op: "mul", a: load(0), b: load(1), type: "f32" };
  const kernel: ColumnKernel = {
    name: "weighted",
    inputs: ["f32", "f32"],
    output: "f32",
    scalars: [],
    op: "add",
    value: product,
  };
  for (const columns of [1, 2, 3, 4, 5, 15, 16, 17, 33, 64, 100, 257]) {
    const rows = 1 + ((columns * 7) % 50);
    const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 100);
    const weights = Float32Array.from({ length: rows }, (_, index) => Math.cos(index));
    const found = runtime.step(() => {
      const output = runtime.arena.allocate(4 * columns, "sums");
      const strides = [
        { row: columns, column: "unit" },
        { row: 1, column: "none" },
      ] as const;
      const operands = [put(runtime, values, "x"), put(runtime, weights, "w"), output];
      launchColumns(runtime, { kernel, rows, columns, strides, operands });
      return new Float32Array(runtime.read(output).buffer);
    });
    for (let column = 0; column < columns; column++) {
      let sum = 0;
      for (let row = 0; row < rows; row++) {
        sum = Math.fround(sum + Math.fround(values[row * columns + column]! * weights[row]!));
      }
      assert.ok(
        Object.is(found[column], sum),
        `column ${column} of ${columns}: ${found[column]}, expected ${sum}`,
      );
    }
  }
});

test("doubles, scalars, rows and positions work in columns too", () => {
  const scaled: Expression = {
    kind: "binary",
    op: "mul",
    a: load(0, "f64"),
    b: { kind: "scalar", index: 0, type: "f64" },
    type: "f64",
  };
  const row: Expression = { kind: "convert", a: { kind: "row", type: "i32" }, type: "f64" };
  const position: Expression = { kind: "convert", a: { kind: "position", type: "i32" }, type: "f64" };
  const place: Expression = { kind: "binary", op: "sub", a: row, b: position, type: "f64" };
  const kernel: ColumnKernel = {
    name: "largest",
    inputs: ["f64"],
    output: "f64",
    scalars: ["f64"],
    op: "max",
    value: { kind: "binary", op: "add", a: scaled, b: place, type: "f64" },
  };
  const [rows, columns] = [5, 21];
  const values = Float64Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 1e-3);
  const found = runtime.step(() => {
    const output = runtime.arena.allocate(8 * columns, "largest");
    const strides = [{ row: columns, column: "unit" }] as const;
    launchColumns(runtime, {
      kernel,
      rows,
      columns,
      strides,
      operands: [put(runtime, values, "x"), output],
      scalars: [0.1],
    });
    return new Float64Array(runtime.read(output).buffer);
  });
  const expected = Float64Array.from({ length: columns }, (_, column) =>
    Math.max(
      ...Array.from(
        { length: rows },
        (_row, index) => values[index * columns + column]! * 0.1 + (index - column),
      ),
    ),
  );
  assert.deepEqual(found, expected);
});

test("no rows leave every column at the reduction's start", () => {
  const kernel: ColumnKernel = {
    name: "nothing",
    inputs: ["f32"],
    output: "f32",
    scalars: [],
    op: "add",
    value: load(0),
  };
  const found = runtime.step(() => {
    const output = runtime.arena.allocate(4 * 18, "sums");
    const strides = [{ row: 18, column: "unit" }] as const;
    launchColumns(runtime, {
      kernel,
      rows: 0,
      columns: 18,
      strides,
      operands: [put(runtime, new Float32Array(1), "x"), output],
    });
    return new Float32Array(runtime.read(output).buffer);
  });
  assert.ok(found.every((sum) => sum === 0));
});

test("no columns leave everything as it was", () => {
  const kernel: ColumnKernel = {
    name: "nothing",
    inputs: ["f32"],
    output: "f32",
    scalars: [],
    op: "add",
    value: load(0),
  };
  const found = runtime.step(() => {
    const [x, output] = [put(runtime, Float32Array.of(1), "x"), put(runtime, Float32Array.of(7), "sums")];
    launchColumns(runtime, {
      kernel,
      rows: 3,
      columns: 0,
      strides: [{ row: 0, column: "unit" }],
      operands: [x, output],
    });
    return [...new Float32Array(runtime.read(output).buffer)];
  });
  assert.deepEqual(found, [7]);
});
