/** Column kernels on every device: every width and dtype, broadcast inputs, and bits that depend only on the shape. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { effort } from "../../test/support/effort.js";
import { kernelDevices, put } from "../../test/support/kernel-runtime.js";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { uploadAt } from "../../test/support/unaligned-memory.js";
import type { ColumnKernel } from "../ir/index.js";
import { dtypes, narrowToBf16, term } from "../ir/index.js";
import { columnCalls } from "./kernel-call.js";
import { submit } from "./submit.js";

const x = term.load(0, "f32");

const weighted: ColumnKernel = {
  name: "weighted",
  inputs: ["f32", "f32"],
  outputs: ["f32"],
  scalars: [],
  op: "add",
  values: [term.mul(x, term.load(1, "f32"))],
};

const sum: ColumnKernel = {
  name: "sum",
  inputs: ["f32"],
  outputs: ["f32"],
  scalars: [],
  op: "add",
  values: [x],
};

const maxRows = 20_000;
const sines = Float32Array.from({ length: 3 * maxRows }, (_, index) => Math.sin(index) * 100);
const cosines = Float32Array.from({ length: maxRows }, (_, index) => Math.cos(index));

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    /** Each column times a weight for each row, added up. */
    function weigh(
      values: Float32Array,
      weights: Float32Array,
      columns: number,
      stride = columns,
    ): Float32Array {
      return runtime.step(() => {
        const output = uploadAt(runtime, new Float32Array(columns), 1);
        const strides = [
          { row: stride, column: "unit" },
          { row: 1, column: "none" },
        ] as const;
        const operands = [uploadAt(runtime, values, 1), put(runtime, weights, "w"), output];
        submit(runtime, columnCalls({ kernel: weighted, rows: weights.length, columns, strides, operands }));
        return new Float32Array(runtime.read(output).buffer);
      });
    }

    test("every number of columns is summed over every number of rows", () => {
      for (const columns of effort({
        quick: [1, 3, 8, 9, 33],
        thorough: [1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 100],
      })) {
        for (const rows of [1, 2, 31, 32, 33, 100, 1023, 1024, 1500, 5000, maxRows]) {
          if (rows > 100 && columns > 9) continue;
          if (rows > 1500 && columns > 3) continue;
          const values = sines.subarray(0, rows * columns);
          const weights = cosines.subarray(0, rows);
          const actual = weigh(values, weights, columns);
          for (let column = 0; column < columns; column++) {
            let [expected, size] = [0, 0];
            for (let row = 0; row < rows; row++) {
              const part = values[row * columns + column]! * weights[row]!;
              expected += part;
              size += Math.abs(part);
            }
            const error = Math.abs(actual[column]! - expected);
            assert.ok(error <= 1e-6 * size, `column ${column} of ${columns}, ${rows} rows: off by ${error}`);
          }
        }
      }
    });

    test("a column's bits do not depend on other columns or on addresses", () => {
      // On a GPU a block reduces several neighbouring columns.
      for (const [rows, columns, wide] of effort({
        quick: [
          [70, 300, 304],
          [1500, 30, 34],
          [5000, 9, 10],
        ],
        thorough: [
          [70, 300, 304],
          [1500, 300, 304],
          [5000, 300, 304],
        ],
      } as const)) {
        const values =
          rows * wide <= sines.length
            ? sines.subarray(0, rows * wide)
            : Float32Array.from({ length: rows * wide }, (_, index) => Math.sin(index) * 1e3);
        const weights = cosines.subarray(0, rows);
        const all = weigh(values, weights, columns, wide);
        for (const column of [0, 1, 7, 8, columns - 1]) {
          const single = Float32Array.from({ length: rows }, (_, row) => values[row * wide + column]!);
          const [expected] = weigh(single, weights, 1);
          assert.ok(Object.is(expected, all[column]), `column ${column} of ${rows} rows`);
        }
      }
    });

    test("column kernels support doubles, scalars, row indices and positions", () => {
      const indices = term.sub(term.convert(term.row, "f64"), term.convert(term.position, "f64"));
      const kernel: ColumnKernel = {
        name: "largest",
        inputs: ["f64"],
        outputs: ["f64"],
        scalars: ["f64"],
        op: "max",
        values: [term.add(term.mul(term.load(0, "f64"), term.scalar(0, "f64")), indices)],
      };
      const [rows, columns] = [5, 21];
      const values = Float64Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 1e-3);
      const actual = runtime.step(() => {
        const output = runtime.arena.allocate(8 * columns, "largest");
        submit(
          runtime,
          columnCalls({
            kernel,
            rows,
            columns,
            strides: [{ row: columns, column: "unit" }],
            operands: [put(runtime, values, "x"), output],
            scalars: [0.1],
          }),
        );
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
      assert.deepEqual(actual, expected);
    });

    test("several values in one pass have the bits of separate passes", () => {
      const [x1, x2] = [term.load(0, "f32"), term.load(1, "i32")];
      const square = term.mul(x1, x1);
      const outputs = ["f32", "f64", "i32", "bf16"] as const;
      const values = [square, term.convert(term.add(square, x1), "f64"), x2, term.sub(x1, square)];
      const kernelOf = (...selection: readonly number[]): ColumnKernel => ({
        name: "several",
        inputs: ["f32", "i32"],
        outputs: selection.map((index) => outputs[index]!),
        scalars: [],
        op: "add",
        values: selection.map((index) => values[index]!),
      });
      for (const [rows, columns] of [
        [3, 21],
        [100, 5],
        [1100, 9],
        [2500, 1],
      ] as const) {
        const first = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index));
        const second = Int32Array.from({ length: rows }, (_, index) => (index * 7919) | 0);
        const run = (...selection: readonly number[]): Uint8Array[] =>
          runtime.step(() => {
            const results = selection.map(() => runtime.arena.allocate(8 * columns, "sums"));
            const operands = [put(runtime, first, "x"), put(runtime, second, "y"), ...results];
            const strides = [
              { row: columns, column: "unit" },
              { row: 1, column: "none" },
            ] as const;
            submit(
              runtime,
              columnCalls({ kernel: kernelOf(...selection), rows, columns, strides, operands }),
            );
            return results.map((item, position) =>
              runtime.read(item).slice(0, dtypes[outputs[selection[position]!]!].bytes * columns),
            );
          });
        const all = run(0, 1, 2, 3);
        for (const index of values.keys()) {
          const [separate] = run(index);
          sameBytes(all[index]!, separate!, `value ${index} of ${rows} rows`);
        }
        const [twice, again] = run(0, 0);
        sameBytes(twice!, again!, "the same value twice");
      }
    });

    test("outputs can be strided, and memory between them is not written; the CPU rejects this", () => {
      const [rows, columns] = [70, 12];
      const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index));
      const run = (outputLayout: ColumnKernel["outputLayout"], length: number): Float32Array =>
        runtime.step(() => {
          const output = put(runtime, new Float32Array(length).fill(-7), "sums");
          const strides = [{ row: columns, column: "unit" }] as const;
          const operands = [put(runtime, values, "x"), output];
          const kernel = outputLayout ? { ...sum, outputLayout } : sum;
          submit(runtime, columnCalls({ kernel, rows, columns, strides, operands }));
          return new Float32Array(runtime.read(output).buffer);
        });
      const layouts = [{ stride: 3 }, { stride: 1, runs: { length: 4, runStride: 9 } }] as const;
      if (device === "the CPU") {
        for (const layout of layouts) rejects("UNSUPPORTED", () => run(layout, 40), /only a GPU/);
        return;
      }
      const plain = run(undefined, columns);
      const [strided, inRuns] = layouts.map((layout) => run(layout, 40));
      const [expected, expectedInRuns] = [new Float32Array(40).fill(-7), new Float32Array(40).fill(-7)];
      for (const [column, value] of plain.entries()) {
        expected[3 * column] = value;
        expectedInRuns[9 * Math.floor(column / 4) + (column % 4)] = value;
      }
      sameBytes(strided!, expected, "a stride of three");
      sameBytes(inRuns!, expectedInRuns, "runs of four");
    });

    test("columns can be in runs that are apart, with a value for each run and for each group of columns; the CPU rejects this", () => {
      const kernel: ColumnKernel = {
        ...{
          name: "centred",
          inputs: ["f32", "f32", "f32"],
          outputs: ["f32", "f32"],
          scalars: [],
          op: "add",
        },
        values: [x, term.mul(term.sub(x, term.load(1, "f32")), term.load(2, "f32"))],
      };
      // Few rows and many, and runs whose length is not a multiple of the columns of a block.
      for (const [rows, images, length, group] of [
        [3, 5, 6, 2],
        [70, 2, 12, 3],
        [1100, 3, 5, 1],
      ] as const) {
        const columns = images * length;
        const values = Float32Array.from({ length: columns * rows }, (_, index) => Math.sin(index));
        const firsts = Float32Array.from({ length: images }, (_, index) => index / 4);
        const scales = Float32Array.from({ length: columns / group }, (_, index) => index + 1);
        const run = (): readonly Float32Array[] =>
          runtime.step(() => {
            const results = [0, 1].map(() => put(runtime, new Float32Array(columns), "sums"));
            const strides = [
              { row: length, column: "unit", run: rows * length },
              { row: 0, column: "none", run: 1 },
              { row: 0, column: "group", run: length / group },
            ] as const;
            const operands = [
              put(runtime, values, "x"),
              put(runtime, firsts, "y"),
              put(runtime, scales, "z"),
            ];
            const launch = { kernel, rows, columns, strides, runs: { length, group } };
            submit(runtime, columnCalls({ ...launch, operands: [...operands, ...results] }));
            return results.map((result) => new Float32Array(runtime.read(result).buffer));
          });
        if (device === "the CPU") {
          rejects("UNSUPPORTED", run, /only a GPU/);
          continue;
        }
        const [sums, centred] = run();
        for (let column = 0; column < columns; column++) {
          const image = Math.floor(column / length);
          const scale = scales[Math.floor(column / group)]!;
          let [plain, scaled] = [0, 0];
          for (let row = 0; row < rows; row++) {
            const value = values[image * rows * length + row * length + (column % length)]!;
            plain += value;
            scaled += (value - firsts[image]!) * scale;
          }
          for (const [actual, expected] of [
            [sums![column]!, plain],
            [centred![column]!, scaled],
          ] as const)
            assert.ok(
              Math.abs(actual - expected) <= 1e-6 * rows * scale,
              `column ${column}: ${actual} and ${expected}`,
            );
        }
      }
    });

    test("every op and dtype reduces columns; 16-bit floats are widened and rounded once", () => {
      const [rows, columns] = [40, 11];
      const halves = Uint16Array.from({ length: rows * columns }, (_, index) => 0x3f80 + (index % 5));
      const kernel: ColumnKernel = {
        name: "sum of halves",
        inputs: ["bf16"],
        outputs: ["bf16"],
        scalars: [],
        op: "add",
        values: [x],
      };
      const bytes = Uint8Array.from({ length: rows * columns }, (_, index) => (index * 37) % 251);
      const least: ColumnKernel = {
        name: "least byte",
        inputs: ["u8"],
        outputs: ["i32"],
        scalars: [],
        op: "min",
        values: [term.load(0, "i32")],
      };
      const run = (one: ColumnKernel, values: Uint16Array | Uint8Array, elementBytes: number): Uint8Array =>
        runtime.step(() => {
          const output = runtime.arena.allocate(elementBytes * columns, "reduced");
          const strides = [{ row: columns, column: "unit" }] as const;
          const operands = [put(runtime, values, "x"), output];
          submit(runtime, columnCalls({ kernel: one, rows, columns, strides, operands }));
          return runtime.read(output);
        });
      // Each is 1 + k / 128, so that sums are exact in f32.
      const sums = Float32Array.from({ length: columns }, (_, column) => {
        let total = 0;
        for (let row = 0; row < rows; row++) total += 1 + ((row * columns + column) % 5) / 128;
        return total;
      });
      sameBytes(run(kernel, halves, 2), new Uint8Array(narrowToBf16(sums).buffer), "sums");
      const expected = Int32Array.from({ length: columns }, (_, column) => {
        const own = Array.from({ length: rows }, (_, row) => bytes[row * columns + column]!);
        return Math.min(...own);
      });
      sameBytes(run(least, bytes, 4), new Uint8Array(expected.buffer), "least");
    });

    test("without rows every column is the identity of the reduction; without columns nothing is written", () => {
      const [sums, untouched] = runtime.step(() => {
        const operands = ["sums", "untouched"].map((label) =>
          put(runtime, new Float32Array(18).fill(7), label),
        );
        const input = put(runtime, new Float32Array(1), "x");
        const strides = [{ row: 18, column: "unit" }] as const;
        const launch = { kernel: sum, strides };
        submit(runtime, columnCalls({ ...launch, rows: 0, columns: 18, operands: [input, operands[0]!] }));
        submit(runtime, columnCalls({ ...launch, rows: 3, columns: 0, operands: [input, operands[1]!] }));
        return operands.map((operand) => new Float32Array(runtime.read(operand).buffer));
      });
      assert.ok(sums!.every((sum) => sum === 0));
      assert.ok(untouched!.every((item) => item === 7));
    });
  });
}
