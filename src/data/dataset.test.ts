/** Data sets: column sources, errors with their row, and the upload. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { openDevice, withDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { HoldfastError } from "../errors/index.js";
import { tensor } from "../tensor/index.js";
import { TensorDataset } from "./dataset.js";

const cpu = openDevice({ memory: "64MiB" });

test("columns are nested arrays, typed arrays, flat arrays with a shape, and tensors", () => {
  const data = new TensorDataset(
    [
      [1, 2],
      [3, 4],
    ],
    new Int32Array([5, 6]),
    { values: new Float64Array([1, 2, 3, 4, 5, 6]), shape: [2, 1, 3] },
    { values: [0.5, 0.25], shape: [2], dtype: "bf16" },
    [true, false],
    tensor([7, 8], { dtype: "f16" }),
  );
  assert.deepEqual(
    data.columns.map(({ dtype, shape }) => `${dtype} ${shape}`),
    ["f32 2,2", "i32 2", "f64 2,1,3", "bf16 2", "bool 2", "f16 2"],
  );
  assert.deepEqual([data.rows, data.bytes], [2, 16 + 8 + 48 + 4 + 2 + 4]);
});

test("a NaN or an infinity anywhere is found with its row, column and element", () => {
  const sizes = fc.record({ rows: fc.integer({ min: 1, max: 20 }), width: fc.integer({ min: 1, max: 5 }) });
  const bad = fc.constantFrom(Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY);
  fc.assert(
    fc.property(
      sizes,
      fc.nat(),
      bad,
      fc.constantFrom("f32", "f64", "bf16", "f16"),
      ({ rows, width }, position, value, dtype) => {
        const values = new Float64Array(rows * width);
        const index = position % values.length;
        values[index] = value;
        const labels = new Int32Array(rows);
        assert.throws(
          () => new TensorDataset(labels, { values, shape: [rows, width], dtype }),
          (error) => {
            assert.ok(error instanceof HoldfastError && error.code === "NOT_FINITE", String(error));
            assert.deepEqual(error.numbers, {
              row: Math.floor(index / width),
              column: 1,
              element: index % width,
            });
            return true;
          },
        );
      },
    ),
    { numRuns: 100 },
  );
});

test("a number outside its dtype's range is rejected", () => {
  rejects(
    "NOT_FINITE",
    () => new TensorDataset([[1], [1e300]]),
    /Row 1 of column 0 has 1e\+300 .* outside the range of f32/,
  );
  rejects("BAD_DTYPE", () => new TensorDataset({ values: [0.5], shape: [1], dtype: "i32" }), /0\.5/);
});

test("the constructor checks labels if their classes are given", () => {
  const make = (values: readonly number[], ignoreIndex?: number) => () =>
    new TensorDataset({
      values,
      shape: [values.length / 2, 2],
      dtype: "i32",
      labels: { classes: 3, ...(ignoreIndex !== undefined && { ignoreIndex }) },
    });
  assert.equal(make([0, 1, 2, -100])().rows, 2);
  assert.equal(make([0, 1, 2, -1], -1)().rows, 2);
  rejects("BAD_INDEX", make([0, 1, 2, 3]), /^Row 1 of column 0 has the label 3; the 3 classes are 0 to 2\./);
  rejects("BAD_INDEX", make([-1, 1]), /^Row 0 of column 0 has the label -1;.* set it to -100/);
  rejects("BAD_INDEX", make([-100, 1], -1), /label -100;.* set it to -1 /);
});

test("columns of different lengths, without rows, or with a wrong shape are rejected", () => {
  rejects(
    "BAD_SHAPE",
    () => new TensorDataset([1, 2], [1, 2, 3]),
    /Column 1 has shape \[3\] and column 0 has 2 rows/,
  );
  rejects("BAD_SHAPE", () => new TensorDataset([]), /Column 0 has 0 elements/);
  rejects("BAD_SHAPE", () => new TensorDataset(3), /Column 0 has 1 elements and shape \[\]/);
  rejects(
    "BAD_SHAPE",
    () => new TensorDataset({ values: [1, 2, 3], shape: [2, 2] }),
    /3 elements and shape \[2, 2\]/,
  );
  rejects("BAD_ARGUMENT", () => new TensorDataset(), /at least one column/);
});

test("a data set is uploaded once per device, is charged under its label, and can be released", () => {
  const data = new TensorDataset(
    [
      [1, 2],
      [3, 4],
    ],
    new Int32Array([1, 0]),
  );
  const { runtime } = cpu;
  const before = runtime.diagnostics().transfers.up.bytes;
  const [first] = data.placeOn(cpu);
  assert.equal(data.placeOn(cpu)[0]?.storage, first?.storage);
  assert.equal(runtime.diagnostics().transfers.up.bytes - before, data.bytes);
  assert.ok(runtime.budget.usedBy("data set") > 0);
  data.release(cpu);
  data.release(cpu);
  assert.equal(runtime.budget.usedBy("data set"), 0);
});

test("a data set that does not fit on the device is rejected with the table of holders", () => {
  const data = new TensorDataset({ values: new Float32Array(8 * 2 ** 20), shape: [8, 2 ** 20] });
  withDevice({ memory: "18MiB", arena: "1MiB" }, (small) =>
    rejects("OUT_OF_BUDGET", () => data.placeOn(small), /data set/),
  );
});
