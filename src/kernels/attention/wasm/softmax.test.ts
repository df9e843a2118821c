/** Difficult rows of scores for softmax: huge scores, NaN, and rows that are masked completely. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { kernelDevices, put } from "../../../../test/support/kernel-runtime.js";
import { sameBytes } from "../../../../test/support/same-bytes.js";
import type { Runtime, Storage } from "../../../runtime/index.js";
import type { GemmDtype } from "../../gemm/cpu/element.js";
import { submit } from "../../submit.js";
import { attentionBackwardCalls, attentionCalls } from "../attention.js";

const arrayOf = { f32: Float32Array, f64: Float64Array } as const;

/** Attention over these scores, with the identity matrix as values: the result is the probabilities. */
function probabilitiesOf(
  runtime: Runtime,
  dtype: GemmDtype,
  scores: readonly (readonly number[])[],
): number[][] {
  const columns = scores[0]!.length;
  const array = arrayOf[dtype];
  const dense = { batchStride: 0, headStride: 0 };
  return runtime.step(() => {
    const identity = new array(columns ** 2);
    for (let column = 0; column < columns; column++) identity[column * (columns + 1)] = 1;
    const out = runtime.arena.allocate(scores.length * columns * array.BYTES_PER_ELEMENT, "out");
    const probabilities = runtime.arena.allocate(out.span.size, "probabilities");
    const units = { storage: put(runtime, identity, "identity"), ...dense, rowStride: columns };
    const query = put(runtime, array.from(scores.flat()), "query");
    submit(
      runtime,
      attentionCalls({
        ...{ dtype, batch: 1, heads: 1, rows: scores.length, columns, width: columns, valueWidth: columns },
        scale: 1,
        query: { storage: query, ...dense, rowStride: columns },
        key: units,
        value: units,
        out: { storage: out, ...dense, rowStride: columns },
        probabilities,
      }),
    );
    sameBytes(runtime.read(out), runtime.read(probabilities), "the probabilities and their product with 1");
    const values = [...new array(runtime.read(out).buffer)];
    return scores.map((_, row) => values.slice(row * columns, (row + 1) * columns));
  });
}

/** Forward and backward of two rows and three columns under a mask, in f32. */
function runMasked(runtime: Runtime, mask: readonly number[]) {
  return runtime.step(() => {
    const operand = (name: string, rows: number) => {
      const values = Float32Array.from({ length: rows * 4 }, (_, index) => Math.sin(index + name.length));
      return { storage: put(runtime, values, name), batchStride: 0, headStride: 0, rowStride: 4 };
    };
    const [out, queryGradient] = [operand("out", 2), operand("queryGradient", 2)];
    const probabilities = runtime.arena.allocate(24, "probabilities");
    const inputs = {
      ...({
        dtype: "f32",
        batch: 1,
        heads: 1,
        rows: 2,
        columns: 3,
        width: 4,
        valueWidth: 4,
        scale: 1,
      } as const),
      query: operand("query", 2),
      key: operand("key", 3),
      value: operand("value", 3),
      probabilities,
    };
    const storage = put(runtime, Float32Array.from(mask), "mask");
    const strides = { batchStride: 0, headStride: 0, rowStride: 3, columnStride: 1 };
    submit(runtime, attentionCalls({ ...inputs, mask: { storage, ...strides }, out }));
    submit(
      runtime,
      attentionBackwardCalls({
        ...inputs,
        outGradient: operand("outGradient", 2),
        queryGradient,
        keyGradient: operand("keyGradient", 3),
        valueGradient: operand("valueGradient", 3),
        scoreGradient: runtime.arena.allocate(24, "scoreGradient"),
      }),
    );
    const read = (from: Storage) => [...new Float32Array(runtime.read(from).buffer)];
    return { out: read(out.storage), probabilities: read(probabilities), dq: read(queryGradient.storage) };
  });
}

for (const { device, skip, open } of kernelDevices) {
  describe(`on ${device}`, { skip }, () => {
    const runtime = open();

    for (const dtype of ["f32", "f64"] as const) {
      test(`scores for which exp would overflow are handled in ${dtype}`, () => {
        const [first, second, third] = probabilitiesOf(runtime, dtype, [
          [-29, 122, 121, 0, 60],
          [1e30, -1e30, 0, 1, 1e30],
          [-2000, -2001, -2000, -9000, -2000],
        ]) as [number[], number[], number[]];
        const atOne = 1 / (1 + Math.exp(-1));
        assert.ok(Math.abs(first[1]! - atOne) < 1e-6 && Math.abs(first[2]! - (1 - atOne)) < 1e-6);
        assert.ok(first[0]! < 1e-38 && first[4]! > 0 && first[4]! < 1e-26);
        assert.deepEqual(second, [0.5, 0, 0, 0, 0.5]);
        const share = 1 / (3 + Math.exp(-1));
        for (const [column, power] of [1, Math.exp(-1), 1, 0, 1].entries())
          assert.ok(Math.abs(third[column]! - power * share) < 1e-6);
      });

      test(`a NaN makes its row of ${dtype} NaN, and no other row`, () => {
        const rows = probabilitiesOf(runtime, dtype, [
          [1, 1, 1, 1, 1],
          [1, 2, 3, 4, Number.NaN],
          [1, 1, 1, 1, 1],
        ]);
        // The identity's zeros carry a NaN of the query into every score of its row.
        assert.ok(rows[1]!.every(Number.isNaN));
        for (const row of [rows[0]!, rows[2]!])
          for (const probability of row) assert.ok(Math.abs(probability - 0.2) < 1e-7);
      });
    }

    test("a completely masked row is NaN, forward and backward, and its neighbours are not", () => {
      const hidden = Number.NEGATIVE_INFINITY;
      const { out, probabilities, dq } = runMasked(runtime, [hidden, hidden, hidden, hidden, 0, hidden]);
      assert.ok(probabilities.slice(0, 3).every(Number.isNaN));
      assert.deepEqual(probabilities.slice(3), [0, 1, 0]);
      for (const values of [out, dq]) {
        assert.ok(values.slice(0, 4).every(Number.isNaN));
        assert.ok(values.slice(4).every(Number.isFinite));
      }
    });
  });
}
