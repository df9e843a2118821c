/** Column kernels on every device: every width and dtype, broadcast inputs, and bits that follow from the shape alone. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
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

    test("columns of every count are added up over any number of rows, on each column's own", () => {
      for (const columns of [1, 2, 3, 5, 7, 8, 9, 16, 17, 33, 100]) {
        for (const rows of [1, 2, 31, 32, 33, 100, 1023, 1024, 1500, 5000, 20_000]) {
          if (rows > 100 && columns > 9) continue;
          if (rows > 1500 && columns > 3) continue;
          const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 100);
          const weights = Float32Array.from({ length: rows }, (_, index) => Math.cos(index));
          const found = weigh(values, weights, columns);
          for (let column = 0; column < columns; column++) {
            let [expected, size] = [0, 0];
            for (let row = 0; row < rows; row++) {
              const part = values[row * columns + column]! * weights[row]!;
              expected += part;
              size += Math.abs(part);
            }
            const error = Math.abs(found[column]! - expected);
            assert.ok(error <= 1e-6 * size, `column ${column} of ${columns}, ${rows} rows: off by ${error}`);
          }
        }
      }
    });

    test("a column's bits don't depend on the columns beside it, nor on where it lies", () => {
      // On a GPU they have other columns beside them in a block, and share its threads with them.
      for (const rows of [70, 1500, 5000]) {
        const [columns, wide] = [300, 304];
        const values = Float32Array.from({ length: rows * wide }, (_, index) => Math.sin(index) * 1e3);
        const weights = Float32Array.from({ length: rows }, (_, index) => Math.cos(index));
        const together = weigh(values, weights, columns, wide);
        for (const column of [0, 1, 7, 8, 299]) {
          const own = Float32Array.from({ length: rows }, (_, row) => values[row * wide + column]!);
          const [alone] = weigh(own, weights, 1);
          assert.ok(Object.is(alone, together[column]), `column ${column} of ${rows} rows`);
        }
      }
    });

    test("doubles, scalars, rows and positions work in columns too", () => {
      const place = term.sub(term.convert(term.row, "f64"), term.convert(term.position, "f64"));
      const kernel: ColumnKernel = {
        name: "largest",
        inputs: ["f64"],
        outputs: ["f64"],
        scalars: ["f64"],
        op: "max",
        values: [term.add(term.mul(term.load(0, "f64"), term.scalar(0, "f64")), place)],
      };
      const [rows, columns] = [5, 21];
      const values = Float64Array.from({ length: rows * columns }, (_, index) => Math.sin(index) * 1e-3);
      const found = runtime.step(() => {
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
      assert.deepEqual(found, expected);
    });

    test("several values in one pass have the bits of each in a pass of its own", () => {
      const [x1, x2] = [term.load(0, "f32"), term.load(1, "i32")];
      const square = term.mul(x1, x1);
      const outputs = ["f32", "f64", "i32", "bf16"] as const;
      const values = [square, term.convert(term.add(square, x1), "f64"), x2, term.sub(x1, square)];
      const kernelOf = (...chosen: readonly number[]): ColumnKernel => ({
        name: "several",
        inputs: ["f32", "i32"],
        outputs: chosen.map((index) => outputs[index]!),
        scalars: [],
        op: "add",
        values: chosen.map((index) => values[index]!),
      });
      for (const [rows, columns] of [
        [3, 21],
        [100, 5],
        [1100, 9],
        [2500, 1],
      ] as const) {
        const first = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index));
        const second = Int32Array.from({ length: rows }, (_, index) => (index * 7919) | 0);
        const run = (...chosen: readonly number[]): Uint8Array[] =>
          runtime.step(() => {
            const made = chosen.map(() => runtime.arena.allocate(8 * columns, "sums"));
            const operands = [put(runtime, first, "x"), put(runtime, second, "y"), ...made];
            const strides = [
              { row: columns, column: "unit" },
              { row: 1, column: "none" },
            ] as const;
            submit(runtime, columnCalls({ kernel: kernelOf(...chosen), rows, columns, strides, operands }));
            return made.map((one, place) =>
              runtime.read(one).slice(0, dtypes[outputs[chosen[place]!]!].bytes * columns),
            );
          });
        const together = run(0, 1, 2, 3);
        for (const index of values.keys()) {
          const [alone] = run(index);
          sameBytes(together[index]!, alone!, `value ${index} of ${rows} rows`);
        }
        const [twice, again] = run(0, 0);
        sameBytes(twice!, again!, "the same value twice");
      }
    });

    test("results stand apart where a kernel says so, between what is not touched; a CPU rejects that", () => {
      const [rows, columns] = [70, 12];
      const values = Float32Array.from({ length: rows * columns }, (_, index) => Math.sin(index));
      const run = (places: ColumnKernel["places"], length: number): Float32Array =>
        runtime.step(() => {
          const output = put(runtime, new Float32Array(length).fill(-7), "sums");
          const strides = [{ row: columns, column: "unit" }] as const;
          const operands = [put(runtime, values, "x"), output];
          const kernel = places ? { ...sum, places } : sum;
          submit(runtime, columnCalls({ kernel, rows, columns, strides, operands }));
          return new Float32Array(runtime.read(output).buffer);
        });
      const layouts = [{ step: 3 }, { step: 1, runs: { length: 4, between: 9 } }] as const;
      if (device === "the CPU") {
        for (const places of layouts) rejects("UNSUPPORTED", () => run(places, 40), /only a GPU/);
        return;
      }
      const plain = run(undefined, columns);
      const [stepped, inRuns] = layouts.map((places) => run(places, 40));
      const [expected, expectedInRuns] = [new Float32Array(40).fill(-7), new Float32Array(40).fill(-7)];
      for (const [column, one] of plain.entries()) {
        expected[3 * column] = one;
        expectedInRuns[9 * Math.floor(column / 4) + (column % 4)] = one;
      }
      sameBytes(stepped!, expected, "three apart");
      sameBytes(inRuns!, expectedInRuns, "runs of four");
    });

    test("every op and dtype reduces columns, and half floats are widened and rounded once", () => {
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

    test("no rows leave every column at the reduction's start, and no columns everything as it was", () => {
      const [sums, untouched] = runtime.step(() => {
        const operands = ["sums", "untouched"].map((label) =>
          put(runtime, new Float32Array(18).fill(7), label),
        );
        const input = put(runtime, new Float32Array(1), "x");
        const strides = [{ row: 18, column: "unit" }] as const;
        const launch = { kernel: sum, strides };
        submit(runtime, columnCalls({ ...launch, rows: 0, columns: 18, operands: [input, operands[0]!] }));
        submit(runtime, columnCalls({ ...launch, rows: 3, columns: 0, operands: [input, operands[1]!] }));
        return operands.map((one) => new Float32Array(runtime.read(one).buffer));
      });
      assert.ok(sums!.every((one) => one === 0));
      assert.ok(untouched!.every((one) => one === 7));
    });
  });
}
