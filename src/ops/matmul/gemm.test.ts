/** Products with a bias, wherever in memory the bias lies: a library loads more of it at once than one element. */

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

/** An array whose first element lies so many elements behind a boundary. */
function place(runtime: Runtime, shape: readonly number[], dtype: FloatName, offset = 0): DeviceArray {
  const count = shape.reduce((product, size) => product * size, 1);
  const values = Array.from({ length: count }, (_, index) => valueAt(index + shape.length));
  const storage = put(
    runtime,
    encodeFloats([...new Array(offset).fill(Number.NaN), ...values], dtype),
    "operand",
  );
  const whole = { shape: [offset + count], strides: [1], dtype, storage };
  return viewArray(runtime, whole, { shape, strides: contiguousStrides(shape), offset }, "operand");
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
        const at = (offset: number): number[] =>
          runtime.step(() => {
            const [x, weight] = [place(runtime, [rows, width], dtype), place(runtime, [out, width], dtype)];
            const operands = [x, weight, place(runtime, [out], dtype, offset)];
            return read(runtime, runOp(runtime, linear, operands, {}));
          });
        const expected = Array.from({ length: rows * out }, (_, index) => {
          const [row, column] = [Math.floor(index / out), index % out];
          let sum = valueAt(column + 1);
          for (let term = 0; term < width; term++)
            sum += valueAt(row * width + term + 2) * valueAt(column * width + term + 2);
          return sum;
        });
        for (let offset = 0; offset < 9; offset++) assert.deepEqual(at(offset), expected, `offset ${offset}`);
      });
    }

    test("the biases of several layers may lie at any step, and be of any width", () => {
      for (const out of [1, 3, 4, 5, 8]) {
        for (const offset of [0, 1]) {
          const [rows, groups, width] = [2, 3, 2];
          const found = runtime.step(() => {
            const x = place(runtime, [rows, groups, width], "f32");
            const each = <T>(make: () => T): T[] => Array.from({ length: groups }, make);
            const weights = each(() => place(runtime, [width, out], "f32"));
            const biases = each(() => place(runtime, [out], "f32", offset));
            return read(runtime, runOp(runtime, batchedLinear, [x, ...weights, ...biases], {}));
          });
          const expected = found.map((_, index) => {
            const [row, group, column] = [
              Math.floor(index / (groups * out)),
              Math.floor(index / out) % groups,
              index % out,
            ];
            let sum = valueAt(column + 1);
            for (let term = 0; term < width; term++)
              sum += valueAt((row * groups + group) * width + term + 3) * valueAt(term * out + column + 2);
            return sum;
          });
          assert.deepEqual(found, expected, `${out} wide, offset ${offset}`);
        }
      }
    });
  });
}
