/** Elementary functions in kernels on every device: every op in f32 and f64, and special values. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { checkExtreme, extremeInputs, extremeValues } from "../../test/support/extreme-values.js";
import { evaluate } from "../../test/support/ir-reference.js";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import {
  type BinaryOp,
  binaryOps,
  type Expression,
  iterateElements,
  type RowKernel,
  roundings,
  term,
  type UnaryOp,
  unaryOps,
} from "../ir/index.js";
import { rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

/** Bitwise ops are for integers only. */
const isOfFloats = (op: BinaryOp): boolean => op !== "and" && op !== "shr";

const arrays = { f32: Float32Array, f64: Float64Array } as const;

/** Every function of one operand, and of one operand and 0.5. */
function functionsOf(type: "f32" | "f64"): readonly (readonly [string, Expression])[] {
  const [x, half] = [term.load(0, type), term.constant(0.5, type)];
  return [
    ...unaryOps
      .filter((op) => !roundings.has(op) || type === "f32")
      .map((op) => [op, { kind: "unary", op, a: x, type }] as const),
    ...binaryOps.filter(isOfFloats).map((op) => [op, { kind: "binary", op, a: x, b: half, type }] as const),
  ];
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    /** All values of an operand at once: the elements of each. */
    function compute(
      type: "f32" | "f64",
      values: readonly Expression[],
      ...operands: readonly (Float32Array | Float64Array)[]
    ): (Float32Array | Float64Array)[] {
      const kernel: RowKernel = {
        name: `functions of ${type}`,
        inputs: operands.map(() => type),
        outputs: values.map(() => ({ dtype: type, per: "element" })),
        scalars: [],
        stages: values.map((value, output) => ({ kind: "store", output, value })),
      };
      return runtime.step(() => {
        const inputs = operands.map((item) => put(runtime, item, "operand"));
        const size = operands[0]?.byteLength ?? 0;
        const outputs = values.map(() => runtime.arena.allocate(size, "values"));
        const all = [...inputs, ...outputs];
        const iteration = iterateElements(
          [operands[0]?.length ?? 0],
          all.map(() => [1]),
        );
        submit(runtime, rowCalls({ kernel, iteration, operands: all }));
        return outputs.map((output) => new arrays[type](runtime.read(output).buffer));
      });
    }

    for (const type of ["f32", "f64"] as const) {
      test(`every function of ${type} in a kernel agrees with the host`, () => {
        const values = new arrays[type](Array.from({ length: 103 }, (_, index) => 0.01 + index * 0.037));
        const functions = functionsOf(type);
        const actual = compute(
          type,
          functions.map(([, value]) => value),
          values,
        );
        const tolerance = type === "f32" ? 5e-7 : 1e-15;
        for (const [which, [name, value]] of functions.entries()) {
          for (const [index, operand] of values.entries()) {
            const expected = evaluate(value, { load: () => operand, scalars: [], reduced: new Map() });
            const error = Math.abs(actual[which]![index]! - expected);
            if (Number.isNaN(expected) && Number.isNaN(actual[which]![index]!)) continue;
            assert.ok(
              error <= tolerance * Math.max(1e-3, Math.abs(expected)),
              `${name}(${operand}) is ${actual[which]![index]}, expected ${expected}`,
            );
          }
        }
      });
    }

    test("every function of zeros, subnormals, huge numbers, infinities and NaN follows C99", () => {
      const names = Object.keys(extremeValues) as (UnaryOp & keyof typeof extremeValues)[];
      const x = term.load(0, "f32");
      const actual = compute(
        "f32",
        names.map((op): Expression => ({ kind: "unary", op, a: x, type: "f32" })),
        Float32Array.from(extremeInputs),
      );
      for (const [which, name] of names.entries()) {
        for (const [index, input] of extremeInputs.entries()) {
          checkExtreme(`${name}(${input})`, actual[which]![index]!, extremeValues[name][index]!);
        }
      }
    });

    test("min and max are NaN if an operand is NaN, and −0 is below 0", () => {
      const { POSITIVE_INFINITY: inf, NaN: nan } = Number;
      const numbers = [0, -0, 1, -1, inf, -inf, nan, 2 ** -149];
      for (const type of ["f32", "f64"] as const) {
        const left = new arrays[type](numbers.flatMap((number) => numbers.map(() => number)));
        const right = new arrays[type](numbers.flatMap(() => numbers));
        const [a, b] = [term.load(0, type), term.load(1, type)];
        const [least, largest] = compute(type, [term.min(a, b), term.max(a, b)], left, right);
        for (const [index, operand] of left.entries()) {
          const other = right[index]!;
          assert.ok(
            Object.is(least![index], Math.min(operand, other)),
            `min(${operand}, ${other}) of ${type}`,
          );
          assert.ok(
            Object.is(largest![index], Math.max(operand, other)),
            `max(${operand}, ${other}) of ${type}`,
          );
        }
      }
    });

    test("float-to-int conversion truncates and saturates, and NaN becomes 0", () => {
      const values = [
        0,
        -0.9,
        1.9,
        -1.9,
        2 ** 31,
        2 ** 31 - 128,
        -(2 ** 31),
        -(2 ** 31) - 256,
        1e30,
        -1e30,
        Number.NaN,
      ];
      const expected = [
        0,
        0,
        1,
        -1,
        2 ** 31 - 1,
        2 ** 31 - 128,
        -(2 ** 31),
        -(2 ** 31),
        2 ** 31 - 1,
        -(2 ** 31),
        0,
      ];
      for (const type of ["f32", "f64"] as const) {
        const kernel: RowKernel = {
          name: `cut off ${type}`,
          inputs: [type],
          outputs: [{ dtype: "i32", per: "element" }],
          scalars: [],
          stages: [{ kind: "store", output: 0, value: term.convert(term.load(0, type), "i32") }],
        };
        const actual = runtime.step(() => {
          const input = put(runtime, new arrays[type](values), "floats");
          const output = runtime.arena.allocate(4 * values.length, "whole");
          const iteration = iterateElements([values.length], [[1], [1]]);
          submit(runtime, rowCalls({ kernel, iteration, operands: [input, output] }));
          return [...new Int32Array(runtime.read(output).buffer)];
        });
        assert.deepEqual(actual, expected, type);
      }
    });

    test("constants are exact to the last bit", () => {
      const constants = [
        0.1,
        -0.1,
        -0,
        2 ** -149,
        3.4e38,
        -1e-30,
        Math.PI,
        1e10,
        Infinity,
        -Infinity,
        Number.NaN,
      ];
      for (const type of ["f32", "f64"] as const) {
        const x = term.load(0, type);
        // A select keeps a constant as it is: no sum with a zero, no product with a one.
        const values = constants.map((value) => term.select(term.gt(x, 0), term.constant(value, type), x));
        const actual = compute(type, values, new arrays[type]([1, 1, 1, 1, 1]));
        for (const [which, constant] of constants.entries()) {
          const held = type === "f32" ? Math.fround(constant) : constant;
          for (const operand of actual[which]!)
            assert.ok(Object.is(operand, held), `${constant} is ${operand} in ${type}`);
        }
      }
    });
  });
}
