/** Attention: operands that are not copied, masks, and errors. Gradients are tested with those of all ops. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { CallLog } from "../../../test/support/call-log.js";
import { openDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { openTestDriver } from "../../../test/support/test-device.js";
import type { Tensor } from "../../tensor/index.js";
import { scaledDotProductAttention as attend } from "./attention.js";

const cpu = openDevice({ threads: 1 });

function waves(shape: readonly number[], phase: number, device = cpu): Tensor {
  const size = shape.reduce((product, length) => product * length, 1);
  return device.fromHost(
    Array.from({ length: size }, (_, index) => Math.sin(phase + 1.7 * index)),
    shape,
    "f64",
  );
}

function near(actual: Tensor, expected: Tensor, name: string): void {
  assert.deepEqual(actual.shape, expected.shape, name);
  const expectedValues = expected.dataSync();
  for (const [index, value] of actual.dataSync().entries()) {
    const expectedValue = expectedValues[index]!;
    assert.ok(
      Math.abs(value - expectedValue) <= 1e-12,
      `${name}, at ${index}: ${value}, expected ${expectedValue}`,
    );
  }
}

/** softmax(q · kᵀ / √width + mask) · v with separate ops. */
function attendWithOps(query: Tensor, key: Tensor, value: Tensor, mask?: Tensor): Tensor {
  const scores = query.matmul(key.transpose(-2, -1)).mul(1 / Math.sqrt(query.shape.at(-1)!));
  return (mask ? scores.add(mask) : scores).softmax(-1).matmul(value);
}

describe("scaledDotProductAttention", () => {
  test("equals matrix products and a softmax, for any number of axes and with broadcasting", () => {
    cpu.step(() => {
      for (const [outer, keyOuter] of [
        [[], []],
        [[3], [3]],
        [[2, 3], [3]],
        [[2, 3], []],
        [
          [2, 1, 3],
          [2, 2, 1],
        ],
      ] as const) {
        const query = waves([...outer, 5, 4], 0);
        const [key, value] = [waves([...keyOuter, 6, 4], 1), waves([...keyOuter, 6, 3], 2)];
        near(attend(query, key, value), attendWithOps(query, key, value), `[${outer}] and [${keyOuter}]`);
      }
    });
  });

  test("a causal mask, a mask of booleans and a mask of floats give the same result", () => {
    cpu.step(() => {
      const [query, key, value] = [waves([2, 4, 3], 0), waves([2, 4, 3], 1), waves([2, 4, 3], 2)];
      const visible = Array.from({ length: 16 }, (_, index) => (index % 4 <= Math.floor(index / 4) ? 1 : 0));
      const floats = cpu.fromHost(
        visible.map((isVisible) => (isVisible ? 0 : Number.NEGATIVE_INFINITY)),
        [4, 4],
        "f64",
      );
      const expected = attendWithOps(query, key, value, floats);
      near(attend(query, key, value, null, { isCausal: true }), expected, "causal");
      near(attend(query, key, value, cpu.fromHost(visible, [4, 4], "bool")), expected, "booleans");
      near(attend(query, key, value, floats), expected, "floats");
    });
  });

  test("reads the heads of one projection and writes the input of the next, in one launch each way without a copy", () => {
    const log = new CallLog();
    const driver = openTestDriver();
    const device = openDevice({ driver: log.wrap(driver) });
    device.step(() => {
      const [batch, rows, heads, width] = [2, 5, 3, 4];
      const projections = [0, 1, 2].map((phase) => waves([batch, rows, heads, width], phase, device));
      for (const projection of projections) projection.requiresGrad = true;
      const [query, key, value] = projections.map((projection) => projection.permute([0, 2, 1, 3])) as [
        Tensor,
        Tensor,
        Tensor,
      ];
      const before = log.countKernels();
      const out = attend(query, key, value);
      const merged = out.permute([0, 2, 1, 3]).reshape([batch, rows, heads * width]);
      assert.equal(log.countKernels() - before, 1);
      assert.deepEqual(out.shape, [batch, heads, rows, width]);
      assert.ok(merged.isContiguous);
      assert.equal(merged.array.storage?.span.address, out.array.storage?.span.address);
      const upstream = device.fromHost(new Float64Array(merged.numel).fill(1), merged.shape, "f64");
      const beforeBackward = log.countKernels();
      merged.backward(upstream);
      assert.equal(log.countKernels() - beforeBackward, 1);
    });
    device.close();
    driver.close();
  });

  test("without keys is 0, and without queries is empty", () => {
    cpu.step(() => {
      const none = attend(waves([2, 3], 0), waves([0, 3], 0), waves([0, 4], 0));
      assert.deepEqual(none.tolist(), [
        [0, 0, 0, 0],
        [0, 0, 0, 0],
      ]);
      const key = waves([2, 3], 0);
      key.requiresGrad = true;
      const empty = attend(waves([0, 3], 0), key, waves([2, 4], 0));
      assert.deepEqual(empty.shape, [0, 4]);
      empty.sum().backward();
      assert.deepEqual(key.grad?.tolist(), [
        [0, 0, 0],
        [0, 0, 0],
      ]);
    });
  });

  test("with enableGqa each head of keys and values serves neighbouring heads of queries, also with dropout", () => {
    cpu.step(() => {
      const query = waves([2, 6, 5, 4], 0);
      const [key, value] = [waves([2, 3, 7, 4], 1), waves([2, 3, 7, 2], 2)];
      const repeated = [key, value].map((one) => one.repeatInterleave(2, 1)) as [Tensor, Tensor];
      const expected = attendWithOps(query, ...repeated);
      near(attend(query, key, value, null, { enableGqa: true }), expected, "heads first");
      const [q, k, v] = [query, key, value].map((one) => one.transpose(1, 2)) as [Tensor, Tensor, Tensor];
      const rowsFirst = attend(q, k, v, null, { enableGqa: true, rowsFirst: true });
      near(rowsFirst.transpose(1, 2), expected, "rows first");
      cpu.reseed(5n);
      const dropped = attend(query, ...repeated, null, { dropoutP: 0.3 });
      cpu.reseed(5n);
      near(attend(query, key, value, null, { enableGqa: true, dropoutP: 0.3 }), dropped, "dropout");
      rejects(
        "BAD_SHAPE",
        () => attend(query, waves([2, 4, 7, 4], 1), waves([2, 4, 7, 2], 1), null, { enableGqa: true }),
        /divide/,
      );
      rejects(
        "BAD_SHAPE",
        () => attend(query, key, waves([2, 6, 7, 2], 1), null, { enableGqa: true }),
        /the same number of heads/,
      );
    });
  });

  test("rejects operands that do not fit each other, and names the rule", () => {
    cpu.step(() => {
      const [query, key, value] = [waves([2, 4, 3], 0), waves([2, 5, 3], 0), waves([2, 5, 6], 0)];
      rejects("BAD_SHAPE", () => attend(query, waves([2, 5, 4], 0), value), /must have the same last axis/);
      rejects("BAD_SHAPE", () => attend(query, key, waves([2, 4, 6], 0)), /the same number of rows/);
      rejects("BAD_SHAPE", () => attend(waves([3], 0), key, value), /each must be \[rows, width\]/);
      rejects("BAD_SHAPE", () => attend(query, waves([3, 5, 3], 0), value), /don't broadcast/);
      const mask = waves([3, 2, 4, 5], 0);
      rejects(
        "BAD_SHAPE",
        () => attend(query, key, value, mask),
        /does not broadcast to the scores' \[2, 4, 5\]/,
      );
      const integers = [query, key, value].map((operand) => operand.to("i32")) as [Tensor, Tensor, Tensor];
      rejects("BAD_DTYPE", () => attend(...integers), /a matrix product needs floats/);
    });
  });
});

describe("attention with dropout", () => {
  test("drops probabilities: all of them with p = 1, and about half with p = 0.5", () => {
    cpu.step(() => {
      const [query, key] = [waves([64, 4], 0), waves([64, 4], 1)];
      const ones = cpu.fromHost(new Float64Array(64).fill(1), [64, 1], "f64");
      assert.ok(
        attend(query, key, ones, null, { dropoutP: 1 })
          .dataSync()
          .every((value) => value === 0),
      );
      cpu.reseed(11n);
      const sums = attend(query, key, ones, null, { dropoutP: 0.5 });
      assert.ok(Math.abs(sums.mean().item() - 1) < 0.2);
      assert.ok(new Set(sums.dataSync()).size > 1);
    });
  });

  test("has the masks of the fused kernel: causal, booleans and floats", () => {
    cpu.step(() => {
      const [query, key, value] = [waves([2, 4, 3], 0), waves([2, 4, 3], 1), waves([2, 4, 3], 2)];
      // So small a p that no random word reaches the threshold.
      const dropoutP = 2 ** -40;
      const booleans = cpu.fromHost([1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1], [4, 4], "bool");
      for (const mask of [null, booleans, waves([4, 4], 5)]) {
        for (const isCausal of [false, true]) {
          const expected = attend(query, key, value, mask, { isCausal, scale: 0.3 });
          const withDropout = attend(query, key, value, mask, { isCausal, scale: 0.3, dropoutP });
          near(withDropout, expected, `${mask?.dtype} ${isCausal}`);
        }
      }
    });
  });
});
