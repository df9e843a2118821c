/** Elementary functions inside printed kernels: every op in both widths, and a softmax that survives wide rows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { evaluate } from "../../../test/support/ir-reference.js";
import { openKernelRuntime } from "../../../test/support/kernel-runtime.js";
import { type BinaryOp, binaryOps, type Expression, type RowKernel, unaryOps } from "../ir.js";
import { iterateElements, iterateRows } from "../iteration.js";
import { launchRows } from "../launch.js";

const runtime = openKernelRuntime();

/** Bits are for whole numbers. */
const isOfFloats = (op: BinaryOp): boolean => op !== "and" && op !== "shr";

const arrays = { f32: Float32Array, f64: Float64Array } as const;

for (const type of ["f32", "f64"] as const) {
  const x: Expression = { kind: "load", input: 0, type };
  const half: Expression = { kind: "constant", value: 0.5, type };
  const values = new arrays[type](Array.from({ length: 103 }, (_, index) => 0.01 + index * 0.037));
  const expressions: [string, Expression][] = [
    ...unaryOps.map((op): [string, Expression] => [op, { kind: "unary", op, a: x, type }]),
    ...binaryOps
      .filter(isOfFloats)
      .map((op): [string, Expression] => [op, { kind: "binary", op, a: x, b: half, type }]),
  ];
  for (const [name, value] of expressions) {
    test(`${name} of ${type} in a kernel is what it is elsewhere`, () => {
      const kernel: RowKernel = {
        name,
        inputs: [type],
        outputs: [{ dtype: type, per: "element" }],
        scalars: [],
        stages: [{ kind: "store", output: 0, value }],
      };
      const found = runtime.step(() => {
        const input = runtime.arena.allocate(values.byteLength, "x");
        const output = runtime.arena.allocate(values.byteLength, "y");
        runtime.upload([{ source: values, target: input }]);
        const iteration = iterateElements([values.length], [[1], [1]]);
        launchRows(runtime, { kernel, iteration, operands: [input, output] });
        return new arrays[type](runtime.read(output).buffer);
      });
      const tolerance = type === "f32" ? 2.5e-7 : 1e-15;
      for (const [index, one] of values.entries()) {
        const expected = evaluate(value, { load: () => one, scalars: [], reduced: new Map() });
        const error = Math.abs(found[index]! - expected);
        assert.ok(
          error <= tolerance * Math.max(1e-3, Math.abs(expected)),
          `${name}(${one}) is ${found[index]}`,
        );
      }
    });
  }
}

test("a softmax of 2,000 rows from -29 to 122 is finite, sums to one and is float64's to 1e-6", () => {
  const [rows, columns] = [2000, 37];
  const x: Expression = { kind: "load", input: 0, type: "f32" };
  const largest: Expression = { kind: "reduced", stage: 0, type: "f32" };
  const weight: Expression = {
    kind: "unary",
    op: "exp",
    a: { kind: "binary", op: "sub", a: x, b: largest, type: "f32" },
    type: "f32",
  };
  const total: Expression = { kind: "reduced", stage: 1, type: "f32" };
  const softmax: RowKernel = {
    name: "softmax",
    inputs: ["f32"],
    outputs: [{ dtype: "f32", per: "element" }],
    scalars: [],
    stages: [
      { kind: "reduce", op: "max", value: x },
      { kind: "reduce", op: "add", value: weight },
      { kind: "store", output: 0, value: { kind: "binary", op: "div", a: weight, b: total, type: "f32" } },
    ],
  };
  const values = Float32Array.from({ length: rows * columns }, (_, index) => -29 + ((index * 7919) % 152));
  const found = runtime.step(() => {
    const input = runtime.arena.allocate(values.byteLength, "x");
    const output = runtime.arena.allocate(values.byteLength, "y");
    runtime.upload([{ source: values, target: input }]);
    const strides = [columns, 1];
    const iteration = iterateRows([rows, columns], [strides, strides], 1);
    launchRows(runtime, { kernel: softmax, iteration, operands: [input, output] });
    return new Float32Array(runtime.read(output).buffer);
  });
  for (let row = 0; row < rows; row++) {
    const own = values.subarray(row * columns, (row + 1) * columns);
    const most = Math.max(...own);
    const weights = Array.from(own, (value) => Math.exp(value - most));
    const sum = weights.reduce((a, b) => a + b);
    for (const [column, one] of weights.entries()) {
      const error = Math.abs(found[row * columns + column]! - one / sum);
      assert.ok(error <= 1e-6, `row ${row}, column ${column}: off by ${error}`);
    }
  }
});
