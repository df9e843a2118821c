/** Which bytes count as memory traffic of a row kernel. */

import assert from "node:assert/strict";
import test from "node:test";
import { bufferOf, elementwise } from "../../../test/support/row-calls.js";
import { iterateElements, term } from "../../ir/index.js";
import { sectorBytes } from "../../kernels/index.js";
import type { Call } from "./program.js";
import { bytesOf } from "./traffic.js";

test("of columns of a matrix only the accessed elements count, and a whole sector for a single column", () => {
  const matrix = bufferOf([64, 512], { label: "matrix" });
  const columns = (count: number) => ({
    ...matrix,
    slice: { ...matrix.slice, size: 4 * (63 * 512 + count) },
    shape: [64, count],
    strides: [512, 1],
  });
  const readBytes = (count: number): number =>
    bytesOf(elementwise("half", (x) => term.mul(x!, 0.5), [columns(count)], bufferOf([64, count]))).read;
  assert.deepEqual([readBytes(16), readBytes(1)], [4 * 64 * 16, sectorBytes * 64]);
});

test("of a table only the rows that are picked by index count, and of a small one all", () => {
  const read = (tableRows: number): number => {
    const [table, index, picked] = [
      bufferOf([tableRows, 16]),
      bufferOf([64], { dtype: "i32" }),
      bufferOf([64, 16]),
    ];
    const strides = [
      [0, 1],
      [1, 0],
      [16, 1],
    ];
    const value = term.load(0, "f32", term.mul(term.load(1, "i32"), term.constant(16, "i32")));
    const call: Call = {
      op: "gather",
      work: {
        ...{ kind: "row", scalars: [], iteration: iterateElements([64, 16], strides) },
        operands: [table.slice, index.slice, picked.slice],
        kernel: {
          ...{ name: "gather", inputs: ["f32", "i32"], scalars: [] },
          outputs: [{ dtype: "f32", per: "element" }],
          stages: [{ kind: "store", output: 0, value }],
        },
      },
    };
    return bytesOf(call).read;
  };
  assert.deepEqual([read(1000), read(8)], [4 * 64 * 16 + 4 * 64, 4 * 8 * 16 + 4 * 64]);
});
