/** Random orthogonal matrices: orthogonal, uniform, and with the same bits on every device. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices, put } from "../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../test/support/same-bytes.js";
import type { Runtime } from "../../runtime/index.js";
import { normal } from "./normal.js";
import { orthogonal, orthogonalShape } from "./orthogonal.js";
import { blocksForRows, orthogonalKernels } from "./orthogonal-kernel.js";

const stream = { seed: 42, id: 7 };

/** The largest difference of the Gram matrix of rows, or of columns if there are more rows, from gain² · I. */
function gramError(matrix: Float32Array, rows: number, columns: number, gain: number): number {
  const [count, length] = [Math.min(rows, columns), Math.max(rows, columns)];
  const at = (vector: number, i: number): number =>
    matrix[rows <= columns ? vector * columns + i : i * columns + vector]!;
  let error = 0;
  for (let a = 0; a < count; a++)
    for (let b = 0; b <= a; b++) {
      let product = 0;
      for (let i = 0; i < length; i++) product += at(a, i) * at(b, i);
      error = Math.max(error, Math.abs(product - (a === b ? gain ** 2 : 0)));
    }
  return error;
}

const shapes = [
  [1, 1],
  [1, 5],
  [3, 3],
  [7, 3],
  [9, 40],
  [33, 33],
  [70, 64],
] as const;

test("rows or columns are orthogonal and have the norm of the gain", () => {
  for (const [rows, columns] of shapes) {
    const error = gramError(orthogonal(rows, columns, 1.5, stream), rows, columns, 1.5);
    assert.ok(error < 2e-6, `${rows} × ${columns}: ${error}`);
  }
  const spoilt = orthogonal(9, 40, 1, stream);
  spoilt[5]! += 1e-4;
  assert.ok(gramError(spoilt, 9, 40, 1) > 2e-6, "the check sees one wrong element");
});

test("the first vector has the direction of the first drawn vector, as in a QR decomposition", () => {
  const drawn = normal(stream, 5);
  const norm = Math.hypot(...drawn);
  for (const [i, value] of orthogonal(3, 5, 1, stream).slice(0, 5).entries())
    assert.ok(Math.abs(value - drawn[i]! / norm) < 1e-6);
});

test("rotations and reflections are equally likely, and every element has mean 0 and variance 1/n", () => {
  const draws = 2000;
  const sums = Array.from({ length: 4 }, () => ({ sum: 0, squares: 0 }));
  let rotations = 0;
  for (let id = 0; id < draws; id++) {
    const matrix = orthogonal(2, 2, 1, { seed: 5, id });
    const [a, b, c, d] = matrix as unknown as [number, number, number, number];
    if (a * d - b * c > 0) rotations += 1;
    for (const [index, value] of matrix.entries()) {
      sums[index]!.sum += value;
      sums[index]!.squares += value ** 2;
    }
  }
  assert.ok(Math.abs(rotations / draws - 0.5) < 0.045, `${rotations} of ${draws}`);
  for (const { sum, squares } of sums) {
    assert.ok(Math.abs(sum / draws) < 0.064, `mean ${sum / draws}`);
    assert.ok(Math.abs(squares / draws - 0.5) < 0.032, `variance ${squares / draws}`);
  }
});

/** The matrix by the kernels, from normal values of the host; the vectors are rows. */
function byKernels(
  runtime: Runtime,
  drawn: Float32Array,
  { count, length, stride }: ReturnType<typeof orthogonalShape>,
  gain: number,
): Float32Array {
  const reflectors = put(runtime, drawn, "reflectors");
  const vectors = put(runtime, new Float32Array(count * stride).fill(Number.NaN), "vectors");
  const { scaleReflectors, reflectUnits } = orthogonalKernels;
  const blocks = blocksForRows(count);
  runtime.launch({
    op: "scale",
    kernel: runtime.kernel(scaleReflectors),
    blocks,
    arguments: [reflectors, count, length, stride],
  });
  runtime.launch({
    op: "reflect",
    kernel: runtime.kernel(reflectUnits),
    blocks,
    arguments: [vectors, reflectors, count, stride, gain],
  });
  const padded = new Float32Array(runtime.read(vectors).buffer);
  for (const storage of [reflectors, vectors]) runtime.arena.free(storage);
  const rows = Array.from({ length: count }, (_, row) => [
    ...padded.slice(row * stride, row * stride + length),
  ]);
  return Float32Array.from(rows.flat());
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = skip ? undefined : open();

    test("the kernels have the bits of the host", () => {
      for (const [rows, columns] of shapes) {
        const shape = orthogonalShape(rows, columns);
        const drawn = normal(stream, shape.count * shape.stride);
        const actual = byKernels(runtime!, drawn, shape, 1.25);
        sameBytes(actual, orthogonal(shape.count, shape.length, 1.25, stream), `${rows} × ${columns}`);
      }
    });

    test("another order of a sum is other bits", () => {
      const shape = orthogonalShape(33, 40);
      const drawn = normal(stream, shape.count * shape.stride);
      drawn.subarray(0, 40).reverse();
      const reversed = byKernels(runtime!, drawn, shape, 1).slice(0, 40).reverse();
      const expected = orthogonal(33, 40, 1, stream).slice(0, 40);
      assert.ok(reversed.every((value, i) => Math.abs(value - expected[i]!) < 1e-6));
      assert.throws(() => sameBytes(reversed, expected, "reversed"));
    });

    test("a drawn vector of zeros still gives an orthogonal matrix", () => {
      const shape = orthogonalShape(3, 4);
      const drawn = normal(stream, shape.count * shape.stride);
      drawn.fill(0, shape.stride, 2 * shape.stride);
      assert.ok(gramError(byKernels(runtime!, drawn, shape, 1), 3, 4, 1) < 2e-6);
    });
  });
}
