/** GEMMs with a bias at any offset in memory: a vectorised load reads several of its elements at once. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeFloats, encodeFloats, type FloatName } from "../../../test/support/encoded-values.js";
import { kernelDevices, put } from "../../../test/support/kernel-runtime.js";
import type { Runtime } from "../../runtime/index.js";
import { contiguousStrides, type DeviceArray, viewArray } from "../device-array.js";
import { runOp } from "../run.js";
import { batchedLinear } from "./batched-linear.js";
import { linear } from "./matmul.js";

/** Small whole numbers, so that every dtype holds every sum. */
const valueAt = (index: number): number => (index % 5) - 2;

/** An array whose first element is `offset` elements after an aligned address. */
function allocate(runtime: Runtime, shape: readonly number[], dtype: FloatName, offset = 0): DeviceArray {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, (_, index) => valueAt(index + shape.length));
  const storage = put(
    runtime,
    encodeFloats([...new Array(offset).fill(Number.NaN), ...values], dtype),
    "operand",
  );
  const padded = { shape: [offset + count], strides: [1], dtype, storage };
  return viewArray(runtime, padded, { shape, strides: contiguousStrides(shape), offset }, "operand");
}

function read(runtime: Runtime, [result]: readonly DeviceArray[]): number[] {
  return [...decodeFloats(runtime.read(result!.storage!), result!.dtype as FloatName)];
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = skip ? undefined! : open();

    for (const dtype of ["f32", "f64", "f16", "bf16"] as const) {
      test(`the bias of a linear layer in ${dtype} may begin anywhere`, () => {
        const [rows, width, out] = [2, 3, 7];
        const resultAt = (offset: number): number[] =>
          runtime.step(() => {
            const [x, weight] = [
              allocate(runtime, [rows, width], dtype),
              allocate(runtime, [out, width], dtype),
            ];
            const operands = [x, weight, allocate(runtime, [out], dtype, offset)];
            return read(runtime, runOp(runtime, linear, operands, {}));
          });
        const expected = Array.from({ length: rows * out }, (_, index) => {
          const [row, column] = [Math.floor(index / out), index % out];
          let sum = valueAt(column + 1);
          for (let index = 0; index < width; index++)
            sum += valueAt(row * width + index + 2) * valueAt(column * width + index + 2);
          return sum;
        });
        for (let offset = 0; offset < 9; offset++)
          assert.deepEqual(resultAt(offset), expected, `offset ${offset}`);
      });
    }

    test("the biases of several layers may have any distance and any width", () => {
      for (const out of [1, 3, 4, 5, 8]) {
        for (const offset of [0, 1]) {
          const [rows, groups, width] = [2, 3, 2];
          const actual = runtime.step(() => {
            const x = allocate(runtime, [rows, groups, width], "f32");
            const each = <T>(make: () => T): T[] => Array.from({ length: groups }, make);
            const weights = each(() => allocate(runtime, [width, out], "f32"));
            const biases = each(() => allocate(runtime, [out], "f32", offset));
            return read(runtime, runOp(runtime, batchedLinear, [x, ...weights, ...biases], {}));
          });
          const expected = actual.map((_, index) => {
            const [row, group, column] = [
              Math.floor(index / (groups * out)),
              Math.floor(index / out) % groups,
              index % out,
            ];
            let sum = valueAt(column + 1);
            for (let index = 0; index < width; index++)
              sum += valueAt((row * groups + group) * width + index + 3) * valueAt(index * out + column + 2);
            return sum;
          });
          assert.deepEqual(actual, expected, `${out} wide, offset ${offset}`);
        }
      }
    });
  });
}
