/** Row reductions on every device: every length, dtype, layout and address, and later stages that use the results. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import fc from "fast-check";
import { effort } from "../../test/support/effort.js";
import { rounded } from "../../test/support/ir-reference.js";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { ReduceOp, RowKernel } from "../ir/index.js";
import { dtypes, iterateRows, narrowToF16, term, widenF16 } from "../ir/index.js";
import type { Storage } from "../runtime/index.js";
import { rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const x = term.load(0, "f32");
const squares = term.mul(x, x);

/** Stores the row's sum of squares, and each element minus the row's maximum. */
const sumAndRest: RowKernel = {
  name: "rows",
  inputs: ["f32"],
  outputs: [
    { dtype: "f32", per: "row" },
    { dtype: "f32", per: "element" },
  ],
  scalars: [],
  stages: [
    { kind: "reduce", op: "add", value: squares },
    { kind: "reduce", op: "max", value: x },
    { kind: "store", output: 0, value: term.reduced(0, "f32") },
    { kind: "store", output: 1, value: term.sub(x, term.reduced(1, "f32")) },
  ],
};

/** Lengths around every limit at which another number of threads shares a row. */
const lengths = effort({
  quick: [1, 2, 3, 4, 7, 16, 129, 256, 1024, 1025, 8195],
  thorough: [
    ...[1, 2, 3, 4, 5, 7, 8, 13, 16, 64, 128, 129, 193, 256],
    ...[1000, 1024, 1025, 4096, 8192, 8195, 40_000],
  ],
});

const longestWave = Float32Array.from({ length: 80_000 }, (_, index) => Math.sin(index) * 10);

const wave = (count: number): Float32Array => longestWave.slice(0, count);

interface Elements {
  readonly array: Float32ArrayConstructor | Float64ArrayConstructor | Int32ArrayConstructor;
  /** A number as an element of the dtype. */
  readonly held: (value: number) => number;
  /** The dtype's array of such numbers. */
  readonly stored: (
    values: readonly number[],
  ) => Float32Array | Float64Array | Int32Array | Uint16Array | Uint8Array;
}

const elements: Readonly<Record<"f32" | "f64" | "f16" | "i32" | "u8", Elements>> = {
  f32: { array: Float32Array, held: Math.fround, stored: (values) => Float32Array.from(values) },
  f64: { array: Float64Array, held: (value) => value, stored: (values) => Float64Array.from(values) },
  f16: {
    array: Float32Array,
    held: (value) => widenF16(narrowToF16(Float32Array.of(value)))[0]!,
    stored: (values) => narrowToF16(Float32Array.from(values)),
  },
  i32: { array: Int32Array, held: Math.trunc, stored: (values) => Int32Array.from(values) },
  u8: {
    array: Int32Array,
    held: (value) => Math.trunc(value) & 255,
    stored: (values) => Uint8Array.from(values),
  },
};

const joins: Readonly<Record<ReduceOp, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  mul: (a, b) => a * b,
  min: Math.min,
  max: Math.max,
};
const starts: Readonly<Record<ReduceOp, number>> = { add: 0, mul: 1, min: Infinity, max: -Infinity };

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();
    const read = (storage: Storage): Float32Array => new Float32Array(runtime.read(storage).buffer);

    /** The rows' sums of squares, and every element less its row's largest. */
    function reduceRows(
      values: Float32Array,
      rows: number,
      columns: number,
      offset = 0,
    ): readonly [Float32Array, Float32Array] {
      return runtime.step(() => {
        const row = runtime.arena.allocate(4 * rows, "sums");
        const element = uploadAt(runtime, new Float32Array(rows * columns), offset);
        const strides = [
          [columns, 1],
          [1, 0],
          [columns, 1],
        ];
        const iteration = iterateRows([rows, columns], strides, 1);
        const operands = [uploadAt(runtime, values, offset), row, element];
        submit(runtime, rowCalls({ kernel: sumAndRest, iteration, operands }));
        return [read(row), read(element)];
      });
    }

    test("rows of every length reduce to their sum and maximum, and later stages use them", () => {
      for (const columns of lengths) {
        const rows = columns > 1024 ? 2 : 7;
        const values = wave(rows * columns);
        const [sums, rest] = reduceRows(values, rows, columns);
        for (let row = 0; row < rows; row++) {
          const own = values.subarray(row * columns, (row + 1) * columns);
          const largest = own.reduce((most, value) => Math.max(most, value));
          const sum = own.reduce((total, value) => total + value * value, 0);
          assert.ok(
            Math.abs(sums[row]! - sum) <= 1e-6 * sum * columns ** 0.5,
            `sum of row ${row} of ${columns}`,
          );
          for (const [index, value] of own.entries()) {
            assert.equal(rest[row * columns + index], rounded("f32", value - largest));
          }
        }
      }
    });

    test("a row's bits do not depend on other rows, on their number, or on addresses", () => {
      for (const columns of effort({ quick: [12, 256, 2048], thorough: [12, 101, 256, 1024, 2048] })) {
        const run = (rows: number, offset: number): Float32Array => {
          const cosine = (_: unknown, index: number): number => Math.cos(index % columns) * 1e3;
          return reduceRows(Float32Array.from({ length: rows * columns }, cosine), rows, columns, offset)[0];
        };
        const [alone] = run(1, 0);
        for (const [rows, offset] of [
          [50, 0],
          [3, 1],
          [3, 2],
        ] as const) {
          assert.ok(
            run(rows, offset).every((sum) => Object.is(sum, alone)),
            `${rows} rows of ${columns}, ${offset} elements behind an aligned address`,
          );
        }
      }
    });

    test("rows times the columns of a matrix are dot products, for every layout of both", () => {
      for (const count of effort({ quick: [2, 3], thorough: [2, 3, 4] })) {
        const each = Array.from({ length: count }, (_, index) => index);
        const kernel: RowKernel = {
          ...{ name: "dots", inputs: ["f32", ...each.map(() => "f32" as const)], scalars: [] },
          outputs: each.map(() => ({ dtype: "f32", per: "row" })),
          stages: [
            ...each.map((index) => ({
              ...({ kind: "reduce", op: "add" } as const),
              value: term.mul(x, term.load(1 + index, "f32")),
            })),
            ...each.map((index) => ({
              ...({ kind: "store", output: index } as const),
              value: term.reduced(index, "f32"),
            })),
          ],
        };
        for (const [rows, columns, offset] of [
          [5, 64, 0],
          [5, 64, 1],
          [3, 30, 0],
          [2, 2048, 0],
          [2, 8192, 0],
        ] as const) {
          // Whole numbers, whose sums are the same in any order.
          const left = wave(rows * columns).map(Math.round);
          const right = wave(columns * count)
            .map(Math.round)
            .reverse();
          const actual = runtime.step(() => {
            const [a, b] = [uploadAt(runtime, left, offset), uploadAt(runtime, right, offset)];
            const output = runtime.arena.allocate(4 * rows * count, "products");
            const part = (of: Storage, index: number, size: number): Storage =>
              runtime.arena.view(of, 4 * index, 4 * (count * (size - 1) + 1));
            const operands = [
              a,
              ...each.map((index) => part(b, index, columns)),
              ...each.map((index) => part(output, index, rows)),
            ];
            const strides = [[columns, 1], ...each.map(() => [0, count]), ...each.map(() => [count, 0])];
            submit(
              runtime,
              rowCalls({ kernel, iteration: iterateRows([rows, columns], strides, 1), operands }),
            );
            return read(output);
          });
          for (const [place, value] of actual.entries()) {
            const [row, column] = [Math.floor(place / count), place % count];
            const own = left.subarray(row * columns, (row + 1) * columns);
            const sum = own.reduce((sum, value, index) => sum + value * right[index * count + column]!, 0);
            assert.equal(value, sum, `${count} columns: row ${row} of ${columns}, column ${column}`);
          }
        }
      }
    });

    test("empty rows give the identity of the reduction, and a launch without rows writes nothing", () => {
      const [sums, rest] = runtime.step(() => {
        const outputs = ["sums", "rest"].map((label) => put(runtime, Float32Array.of(7, 7, 7), label));
        const operands = [put(runtime, Float32Array.of(1), "x"), ...outputs];
        const strides = [
          [0, 1],
          [1, 0],
          [0, 1],
        ];
        for (const shape of [
          [2, 0],
          [0, 5],
        ]) {
          submit(
            runtime,
            rowCalls({ kernel: sumAndRest, iteration: iterateRows(shape, strides, 1), operands }),
          );
        }
        return outputs.map((output) => [...read(output)]);
      });
      assert.deepEqual(sums, [0, 0, 7]);
      assert.deepEqual(rest, [7, 7, 7]);
    });

    test("every dtype, layout and op gives the result of a plain loop", () => {
      const draw = fc.record({
        dtype: fc.constantFrom("f32", "f64", "f16", "i32", "u8"),
        op: fc.constantFrom<ReduceOp>("add", "mul", "min", "max"),
        shape: fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 5 })),
        columns: fc.oneof(fc.integer({ min: 1, max: 40 }), fc.constantFrom(128, 300, 1100)),
        // Row by row, column by column, one element for the whole row, or every second one.
        layout: fc.constantFrom("rows", "columns", "still", "stretched"),
        offset: fc.nat(3),
      });
      fc.assert(
        fc.property(draw, ({ dtype, op, shape: [planes, rows], columns, layout, offset }) => {
          const { array, held, stored } = elements[dtype];
          const { compute } = dtypes[dtype];
          const value = term.load(0, compute);
          const kernel: RowKernel = {
            name: `${op} of ${dtype}`,
            inputs: [dtype],
            outputs: [{ dtype: compute, per: "row" }],
            scalars: [],
            stages: [
              { kind: "reduce", op, value },
              { kind: "store", output: 0, value: term.reduced(0, compute) },
            ],
          };
          const strides = {
            rows: [rows * columns, columns, 1],
            // The planes are next to the rows, so that axes are not merged.
            columns: [rows, 1, planes * rows],
            still: [1, planes, 0],
            stretched: [rows * columns * 2, columns * 2, 2],
          }[layout];
          const size =
            1 + (planes - 1) * strides[0]! + (rows - 1) * strides[1]! + (columns - 1) * strides[2]!;
          // Products stay near 1, and sums of bytes are no larger than what fits.
          const make = (index: number): number =>
            compute === "i32" ? (index * 7) % 5 : 1 + Math.sin(index) / (op === "mul" ? 50 : 2);
          const values = Array.from({ length: size }, (_, index) => held(make(index)));
          const actual = runtime.step(() => {
            const output = runtime.arena.allocate(planes * rows * dtypes[compute].bytes, "reduced");
            const operands = [uploadAt(runtime, stored(values), offset), output];
            const iteration = iterateRows([planes, rows, columns], [strides, [rows, 1, 0]], 1);
            submit(runtime, rowCalls({ kernel, iteration, operands }));
            return new array(runtime.read(output).buffer);
          });
          // Each combination may round; where all elements are one, all of them the same way.
          const tolerance = columns * (compute === "f64" ? 2 ** -52 : 2 ** -23);
          for (let plane = 0; plane < planes; plane++) {
            for (let row = 0; row < rows; row++) {
              let expected = starts[op];
              for (let column = 0; column < columns; column++) {
                const place = plane * strides[0]! + row * strides[1]! + column * strides[2]!;
                const joined = joins[op](expected, values[place]!);
                expected = compute === "i32" && op === "mul" ? Math.imul(expected, values[place]!) : joined;
              }
              const result = actual[plane * rows + row]!;
              const isExact = op === "min" || op === "max" || compute === "i32";
              const error = Math.abs(result - expected);
              assert.ok(
                isExact ? result === expected : error <= tolerance * Math.abs(expected),
                `row ${plane}, ${row} is ${result}, expected ${expected}`,
              );
            }
          }
        }),
        { numRuns: effort({ quick: 10, thorough: 40 }) },
      );
    });

    test("argmax: the position of a row's maximum, the first one of several", () => {
      const isLargest = term.eq(x, term.reduced(0, "f32"));
      const argmax: RowKernel = {
        name: "argmax",
        inputs: ["f32"],
        outputs: [{ dtype: "i32", per: "row" }],
        scalars: [],
        stages: [
          { kind: "reduce", op: "max", value: x },
          { kind: "reduce", op: "min", value: term.select(isLargest, term.position, 2 ** 31 - 1) },
          { kind: "store", output: 0, value: term.reduced(1, "i32") },
        ],
      };
      for (const columns of effort({ quick: [1, 3, 4, 193], thorough: [1, 3, 4, 6, 11, 193] })) {
        const rows = 9;
        const values = Float32Array.from({ length: rows * columns }, (_, index) => (index * 7) % 5);
        const actual = runtime.step(() => {
          const output = runtime.arena.allocate(4 * rows, "places");
          const strides = [
            [columns, 1],
            [1, 0],
          ];
          const iteration = iterateRows([rows, columns], strides, 1);
          submit(
            runtime,
            rowCalls({ kernel: argmax, iteration, operands: [put(runtime, values, "x"), output] }),
          );
          return new Int32Array(runtime.read(output).buffer);
        });
        for (let row = 0; row < rows; row++) {
          const own = values.subarray(row * columns, (row + 1) * columns);
          assert.equal(actual[row], own.indexOf(Math.max(...own)), `row ${row} of ${columns}`);
        }
      }
    });

    test("in a kernel with doubles, integers are reduced over the used lanes only", () => {
      const allPositive: RowKernel = {
        name: "all positive",
        inputs: ["f64"],
        outputs: [{ dtype: "bool", per: "row" }],
        scalars: [],
        stages: [
          { kind: "reduce", op: "min", value: term.gt(term.load(0, "f64"), 0) },
          { kind: "store", output: 0, value: term.reduced(0, "i32") },
        ],
      };
      for (const columns of [1, 2, 3, 4, 9]) {
        const values = Float64Array.from({ length: 2 * columns }, (_, index) => (index === columns ? -1 : 1));
        const actual = runtime.step(() => {
          const output = runtime.arena.allocate(2, "truths");
          const strides = [
            [columns, 1],
            [1, 0],
          ];
          const operands = [put(runtime, values, "x"), output];
          const iteration = iterateRows([2, columns], strides, 1);
          submit(runtime, rowCalls({ kernel: allPositive, iteration, operands }));
          return [...runtime.read(output)];
        });
        assert.deepEqual(actual, [1, 0], `rows of ${columns}`);
      }
    });

    test("a row-invariant subexpression has the same value in every element", () => {
      const columns = 7;
      const factor = term.div(term.load(1, "f32"), term.sqrt(term.reduced(0, "f32")));
      const scaled: RowKernel = {
        name: "scaled",
        inputs: ["f32", "f32"],
        outputs: [{ dtype: "f32", per: "element" }],
        scalars: [],
        stages: [
          { kind: "reduce", op: "add", value: squares },
          { kind: "store", output: 0, value: term.mul(x, factor) },
        ],
      };
      const values = Float32Array.from({ length: 3 * columns }, (_, index) => 1 + (index % 4));
      const weights = Float32Array.of(2, -3, 0.5);
      const actual = runtime.step(() => {
        const output = runtime.arena.allocate(4 * values.length, "output");
        const strides = [
          [columns, 1],
          [1, 0],
          [columns, 1],
        ];
        const operands = [put(runtime, values, "x"), put(runtime, weights, "weights"), output];
        submit(
          runtime,
          rowCalls({ kernel: scaled, iteration: iterateRows([3, columns], strides, 1), operands }),
        );
        return read(output);
      });
      for (let row = 0; row < 3; row++) {
        const own = values.subarray(row * columns, (row + 1) * columns);
        const length = rounded("f32", Math.sqrt(own.reduce((sum, value) => sum + value * value, 0)));
        const expected = rounded("f32", weights[row]! / length);
        for (const [index, value] of own.entries()) {
          assert.equal(actual[row * columns + index], rounded("f32", value * expected));
        }
      }
    });

    test("rows are normalised in place: a row is read before it is overwritten", () => {
      // The row's first element is an operand of its own, which the row's store changes.
      const kernel: RowKernel = {
        name: "by the first",
        inputs: ["f32", "f32"],
        outputs: [{ dtype: "f32", per: "element" }],
        scalars: [],
        stages: [
          { kind: "reduce", op: "max", value: x },
          {
            kind: "store",
            output: 0,
            value: term.add(term.sub(x, term.load(1, "f32")), term.reduced(0, "f32")),
          },
        ],
      };
      for (const columns of effort({ quick: [5, 3000], thorough: [5, 64, 1000, 3000] })) {
        const rows = 3;
        const values = wave(rows * columns);
        const actual = runtime.step(() => {
          const whole = put(runtime, values, "rows");
          const strides = [
            [columns, 1],
            [columns, 0],
            [columns, 1],
          ];
          const iteration = iterateRows([rows, columns], strides, 1);
          submit(runtime, rowCalls({ kernel, iteration, operands: [whole, whole, whole] }));
          return runtime.read(whole);
        });
        const expected = new Float32Array(values.length);
        for (let first = 0; first < values.length; first += columns) {
          const own = values.subarray(first, first + columns);
          const largest = own.reduce((most, value) => Math.max(most, value));
          expected.set(
            own.map((value) => Math.fround(value - own[0]!) + largest),
            first,
          );
        }
        sameBytes(actual, new Uint8Array(expected.buffer), `rows of ${columns}`);
      }
    });

    test("a softmax of many rows from -29 to 122 is finite, sums to 1 and differs from float64 by at most 1e-6", () => {
      // The numbers are the same again after 152 rows.
      const [rows, columns] = [effort({ quick: 200, thorough: 2000 }), 37];
      const weight = term.exp(term.sub(x, term.reduced(0, "f32")));
      const softmax: RowKernel = {
        name: "softmax",
        inputs: ["f32"],
        outputs: [{ dtype: "f32", per: "element" }],
        scalars: [],
        stages: [
          { kind: "reduce", op: "max", value: x },
          { kind: "reduce", op: "add", value: weight },
          { kind: "store", output: 0, value: term.div(weight, term.reduced(1, "f32")) },
        ],
      };
      const values = Float32Array.from(
        { length: rows * columns },
        (_, index) => -29 + ((index * 7919) % 152),
      );
      const actual = runtime.step(() => {
        const output = runtime.arena.allocate(values.byteLength, "y");
        const strides = [columns, 1];
        const iteration = iterateRows([rows, columns], [strides, strides], 1);
        submit(
          runtime,
          rowCalls({ kernel: softmax, iteration, operands: [put(runtime, values, "x"), output] }),
        );
        return read(output);
      });
      for (let row = 0; row < rows; row++) {
        const own = values.subarray(row * columns, (row + 1) * columns);
        const most = Math.max(...own);
        const weights = Array.from(own, (value) => Math.exp(value - most));
        const sum = weights.reduce((a, b) => a + b);
        for (const [column, one] of weights.entries()) {
          const error = Math.abs(actual[row * columns + column]! - one / sum);
          assert.ok(error <= 1e-6, `row ${row}, column ${column}: off by ${error}`);
        }
      }
    });
  });
}
