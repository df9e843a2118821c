/** Indexed loads on every device against a plain implementation, in every dtype, in row and column kernels. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../test/support/effort.js";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import type { ColumnKernel, Compute, Expression, RowKernel } from "../ir/index.js";
import {
  type Dtype,
  dtypeNames,
  dtypes,
  type Iteration,
  isFloat8,
  iterateElements,
  iterateRows,
} from "../ir/index.js";
import { columnCalls, rowCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const load = (input: number, type: Compute, at?: Expression): Expression =>
  at ? { kind: "load", input, type, at } : { kind: "load", input, type };
const times = (a: Expression, b: Expression): Expression => ({
  kind: "binary",
  op: "mul",
  a,
  b,
  type: a.type,
});
const scalar: Expression = { kind: "scalar", index: 0, type: "i32" };

const widths = [1, 2, 3, 4, 7, 16, 33];

/** A quick run tries all widths in f32. In the other dtypes it tries an odd width and a width of whole vectors. */
function widthsFor(dtype: Dtype): readonly number[] {
  return effort({ quick: dtype === "f32" ? widths : [3, 16], thorough: widths });
}

/** An array of a dtype whose elements all differ; 16-bit floats are bits of numbers. */
function valuesOf(dtype: Dtype, count: number): ArrayBufferView {
  const array: { from(values: ArrayLike<number>): ArrayBufferView } = {
    f32: Float32Array,
    f64: Float64Array,
    bf16: Uint16Array,
    f16: Uint16Array,
    i64: { from: (values: ArrayLike<number>) => BigInt64Array.from(values, BigInt) },
    i32: Int32Array,
    i8: Int8Array,
    u8: Uint8Array,
    f8e4m3: Uint8Array,
    f8e5m2: Uint8Array,
    bool: Uint8Array,
  }[dtype];
  const make = (index: number): number => {
    if (dtype === "bool") return index % 2;
    if (dtype === "bf16" || dtype === "f16") return 0x3c00 + index;
    // All NaNs become one.
    if (isFloat8(dtype)) return (index * 3) % 0x7c;
    return index * 3 + 1;
  };
  return array.from(Array.from({ length: count }, (_, index) => make(index)));
}

/** The elements of an array at these indices, in order. */
function select(values: ArrayBufferView, dtype: Dtype, positions: readonly number[]): Uint8Array {
  const { bytes } = dtypes[dtype];
  const source = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const selected = new Uint8Array(positions.length * bytes);
  for (const [to, from] of positions.entries()) {
    selected.set(source.subarray(from * bytes, (from + 1) * bytes), to * bytes);
  }
  return selected;
}

const counts = (from: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => from + index);

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();
    /** A kernel of (values, indices) → elements like the values, and what it leaves. */
    function runIndexing(
      dtype: Dtype,
      at: Expression,
      request: {
        values: ArrayBufferView;
        indices: Int32Array;
        iteration: Iteration;
        count: number;
        scalar?: number;
      },
    ): Uint8Array {
      const kernel: RowKernel = {
        name: "indexing",
        inputs: [dtype, "i32"],
        outputs: [{ dtype, per: "element" }],
        scalars: ["i32"],
        stages: [{ kind: "store", output: 0, value: load(0, dtypes[dtype].compute, at) }],
      };
      return runtime.step(() => {
        const output = runtime.arena.allocate(request.count * dtypes[dtype].bytes, "output");
        const operands = [
          put(runtime, request.values, "values"),
          put(runtime, request.indices, "indices"),
          output,
        ];
        submit(
          runtime,
          rowCalls({ kernel, iteration: request.iteration, operands, scalars: [request.scalar ?? 0] }),
        );
        return runtime.read(output);
      });
    }

    for (const dtype of dtypeNames) {
      test(`rows of ${dtype} are selected by an index per row, as in an embedding`, () => {
        for (const width of widthsFor(dtype)) {
          const indices = Int32Array.of(4, 0, 2, 2, 4, 1, 3);
          const count = indices.length * width;
          const values = valuesOf(dtype, 5 * width);
          const iteration = iterateElements(
            [indices.length, width],
            [
              [0, 1],
              [1, 0],
              [width, 1],
            ],
          );
          const at = times(load(1, "i32"), scalar);
          const actual = runIndexing(dtype, at, { values, indices, iteration, count, scalar: width });
          const positions = [...indices].flatMap((index) => counts(index * width, width));
          sameBytes(actual, select(values, dtype, positions), `${dtype}, rows of ${width}`);
        }
      });

      test(`elements of ${dtype} are gathered by an index per element, along rows and columns`, () => {
        for (const width of widthsFor(dtype)) {
          const rows = 6;
          const indices = Int32Array.from({ length: rows * width }, (_, index) => (index * 5) % rows);
          const values = valuesOf(dtype, rows * width);
          const count = indices.length;
          // Across: output[i, j] = values[index[i, j], j].
          const across = iterateElements(
            [rows, width],
            [
              [0, 1],
              [width, 1],
              [width, 1],
            ],
          );
          const fromRows = runIndexing(dtype, times(load(1, "i32"), scalar), {
            values,
            indices,
            iteration: across,
            count,
            scalar: width,
          });
          const acrossPlaces = [...indices].map((index, position) => index * width + (position % width));
          sameBytes(fromRows, select(values, dtype, acrossPlaces), `${dtype} across rows of ${width}`);
          // Along: output[i, j] = values[i, index[i, j]].
          const alongIndices = indices.map((index) => index % width);
          const along = iterateElements(
            [rows, width],
            [
              [width, 0],
              [width, 1],
              [width, 1],
            ],
          );
          const request = { values, indices: alongIndices, iteration: along, count };
          const positions = [...alongIndices].map(
            (index, position) => Math.floor(position / width) * width + index,
          );
          sameBytes(
            runIndexing(dtype, load(1, "i32"), request),
            select(values, dtype, positions),
            `${dtype} along rows of ${width}`,
          );
        }
      });

      test(`an array of ${dtype} is flipped by negative strides and the index of its last element`, () => {
        const [rows, width] = [5, 7];
        const values = valuesOf(dtype, rows * width);
        const flips = [
          {
            strides: [width, -1],
            at: width - 1,
            from: (row: number) => counts(row * width, width).toReversed(),
          },
          {
            strides: [-width, 1],
            at: (rows - 1) * width,
            from: (row: number) => counts((4 - row) * width, width),
          },
          {
            strides: [-width, 0],
            at: (rows - 1) * width,
            from: (row: number) => Array(width).fill((4 - row) * width),
          },
        ];
        for (const { strides, at, from } of flips) {
          const iteration = iterateElements([rows, width], [strides, [0, 0], [width, 1]]);
          const request = { values, indices: new Int32Array(1), iteration, count: rows * width, scalar: at };
          const expected = select(values, dtype, counts(0, rows).flatMap(from));
          sameBytes(runIndexing(dtype, scalar, request), expected, `${dtype}, strides ${strides}`);
        }
      });
    }

    test("an index may itself be read at an index", () => {
      const values = valuesOf("f32", 40);
      const indices = Int32Array.from({ length: 20 }, (_, index) => (index * 7) % 20);
      const position: Expression = { kind: "position", type: "i32" };
      const iteration = iterateRows([20], [[0], [0], [1]], 1);
      const at = load(1, "i32", load(1, "i32", position));
      const actual = runIndexing("f32", at, { values, indices, iteration, count: 20 });
      const positions = counts(0, 20).map((position) => indices[indices[position]!]!);
      sameBytes(actual, select(values, "f32", positions), "twice indexed");
    });

    describe("one value per row", () => {
      const selected = load(0, "f32", load(1, "i32"));
      const largest: Expression = { kind: "reduced", stage: 0, type: "f32" };
      /** Each row's element at its index, its weight, and its largest element, the last two as sums. */
      const kernel: RowKernel = {
        name: "picks",
        inputs: ["f32", "i32", "f32"],
        outputs: [
          { dtype: "f32", per: "row" },
          { dtype: "f32", per: "row" },
        ],
        scalars: [],
        stages: [
          { kind: "reduce", op: "max", value: load(0, "f32") },
          { kind: "store", output: 0, value: selected },
          {
            kind: "store",
            output: 1,
            value: { kind: "binary", op: "add", a: load(2, "f32"), b: largest, type: "f32" },
          },
        ],
      };

      for (const [how, step] of [
        ["that moves along the row", 1],
        ["that stands at its start", 0],
      ] as const) {
        test(`an index selects an element of the row, from an operand ${how}`, () => {
          for (const columns of effort({ quick: [1, 3, 64], thorough: [1, 2, 3, 4, 9, 64] })) {
            const rows = 11;
            const values = Float32Array.from({ length: rows * columns }, (_, index) => (index * 7) % 13);
            const indices = Int32Array.from({ length: rows }, (_, row) => (row * 5) % columns);
            const weights = Float32Array.from({ length: rows }, (_, row) => row / 4);
            const [picks, sums] = runtime.step(() => {
              const outputs = ["picks", "sums"].map((label) => runtime.arena.allocate(4 * rows, label));
              const strides = [[columns, step], ...[1, 2, 3, 4].map(() => [1, 0])];
              const inputs = [values, indices, weights].map((array) => put(runtime, array, "input"));
              submit(
                runtime,
                rowCalls({
                  kernel,
                  iteration: iterateRows([rows, columns], strides, 1),
                  operands: [...inputs, ...outputs],
                }),
              );
              return outputs.map((output) => new Float32Array(runtime.read(output).buffer));
            });
            for (let row = 0; row < rows; row++) {
              const own = values.subarray(row * columns, (row + 1) * columns);
              assert.equal(picks![row], own[indices[row]!], `row ${row} of ${columns}`);
              const most = step === 1 ? Math.max(...own) : own[0]!;
              assert.equal(sums![row], most + weights[row]!, `row ${row} of ${columns}`);
            }
          }
        });
      }
    });

    test("column kernels read at an index, one per row or one per element", () => {
      for (const type of ["f32", "f64"] as const) {
        const position: Expression = { kind: "position", type: "i32" };
        const row: Expression = { kind: "row", type: "i32" };
        const kernel: ColumnKernel = {
          name: "indexed columns",
          inputs: [type, type, "i32"],
          outputs: [type],
          scalars: ["i32"],
          op: "add",
          values: [
            {
              kind: "binary",
              op: "add",
              // values[index[row], column] and table[index[row] · position], which is no load of neighbours.
              a: load(0, type, times(load(2, "i32"), scalar)),
              b: load(1, type, times(row, position)),
              type,
            },
          ],
        };
        for (const columns of effort({ quick: [1, 5, 40], thorough: [1, 2, 3, 5, 17, 40] })) {
          const rows = 6;
          const array = { f32: Float32Array, f64: Float64Array }[type];
          const values = new array(counts(0, 4 * columns).map((index) => index * 2 + 1));
          const table = new array(counts(0, rows * columns).map((index) => index * 1000));
          const indices = Int32Array.of(3, 1, 1, 0, 2, 3);
          const actual = runtime.step(() => {
            const output = runtime.arena.allocate(values.BYTES_PER_ELEMENT * columns, "sums");
            submit(
              runtime,
              columnCalls({
                kernel,
                rows,
                columns,
                strides: [
                  { row: 0, column: "unit" },
                  { row: 0, column: "none" },
                  { row: 1, column: "none" },
                ],
                operands: [...[values, table, indices].map((array) => put(runtime, array, "input")), output],
                scalars: [columns],
              }),
            );
            return new array(runtime.read(output).buffer);
          });
          for (let column = 0; column < columns; column++) {
            let sum = 0;
            for (let at = 0; at < rows; at++) {
              sum += values[indices[at]! * columns + column]! + table[at * column]!;
            }
            assert.equal(actual[column], sum, `column ${column} of ${columns} in ${type}`);
          }
        }
      }
    });
  });
}
