/** Attention: memory that is not copied, masks, and what it rejects. Gradients are tested with all of the table. */

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
  const size = shape.reduce((product, one) => product * one, 1);
  return device.fromHost(
    Array.from({ length: size }, (_, at) => Math.sin(phase + 1.7 * at)),
    shape,
    "f64",
  );
}

function near(found: Tensor, expected: Tensor, what: string): void {
  assert.deepEqual(found.shape, expected.shape, what);
  const [own, other] = [found.dataSync(), expected.dataSync()];
  for (const [at, value] of own.entries()) {
    assert.ok(Math.abs(value - other[at]!) <= 1e-12, `${what}, at ${at}: ${value} for ${other[at]}`);
  }
}

/** softmax(q · kᵀ / √width + mask) · v by plain ops. */
function plain(query: Tensor, key: Tensor, value: Tensor, mask?: Tensor): Tensor {
  const scores = query.matmul(key.transpose(-2, -1)).mul(1 / Math.sqrt(query.shape.at(-1)!));
  return (mask ? scores.add(mask) : scores).softmax(-1).matmul(value);
}

describe("scaledDotProductAttention", () => {
  test("is what plain products and a softmax give, for any number of axes and stretched ones", () => {
    cpu.step(() => {
      for (const [outer, ofKey] of [
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
        const [key, value] = [waves([...ofKey, 6, 4], 1), waves([...ofKey, 6, 3], 2)];
        near(attend(query, key, value), plain(query, key, value), `[${outer}] and [${ofKey}]`);
      }
    });
  });

  test("takes a causal mask, truth values and numbers alike", () => {
    cpu.step(() => {
      const [query, key, value] = [waves([2, 4, 3], 0), waves([2, 4, 3], 1), waves([2, 4, 3], 2)];
      const seen = Array.from({ length: 16 }, (_, at) => (at % 4 <= Math.floor(at / 4) ? 1 : 0));
      const numbers = cpu.fromHost(
        seen.map((one) => (one ? 0 : Number.NEGATIVE_INFINITY)),
        [4, 4],
        "f64",
      );
      const expected = plain(query, key, value, numbers);
      near(attend(query, key, value, null, { isCausal: true }), expected, "causal");
      near(attend(query, key, value, cpu.fromHost(seen, [4, 4], "bool")), expected, "truth values");
      near(attend(query, key, value, numbers), expected, "numbers");
    });
  });

  test("reads heads of one projection and writes what the next takes, with one launch each way and no copy", () => {
    const log = new CallLog();
    const driver = openTestDriver();
    const device = openDevice({ driver: log.wrap(driver) });
    device.step(() => {
      const [batch, rows, heads, width] = [2, 5, 3, 4];
      const made = [0, 1, 2].map((phase) => waves([batch, rows, heads, width], phase, device));
      for (const one of made) one.requiresGrad = true;
      const [query, key, value] = made.map((one) => one.permute([0, 2, 1, 3])) as [Tensor, Tensor, Tensor];
      const before = log.countKernels();
      const out = attend(query, key, value);
      const joined = out.permute([0, 2, 1, 3]).reshape([batch, rows, heads * width]);
      assert.equal(log.countKernels() - before, 1);
      assert.deepEqual(out.shape, [batch, heads, rows, width]);
      assert.ok(joined.isContiguous);
      assert.equal(joined.array.storage?.span.address, out.array.storage?.span.address);
      const upstream = device.fromHost(new Float64Array(joined.numel).fill(1), joined.shape, "f64");
      const beforeBackward = log.countKernels();
      joined.backward(upstream);
      assert.equal(log.countKernels() - beforeBackward, 1);
    });
    device.close();
    driver.close();
  });

  test("of no keys is 0, and of no queries nothing", () => {
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

  test("rejects operands that don't fit each other, and says what would", () => {
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
      const whole = [query, key, value].map((one) => one.to("i32")) as [Tensor, Tensor, Tensor];
      rejects("BAD_DTYPE", () => attend(...whole), /a matrix product needs floats/);
    });
  });
});

describe("attention with dropout", () => {
  test("drops probabilities: all of them with a p of 1, and about half with 0.5", () => {
    cpu.step(() => {
      const [query, key] = [waves([64, 4], 0), waves([64, 4], 1)];
      const ones = cpu.fromHost(new Float64Array(64).fill(1), [64, 1], "f64");
      assert.ok(
        attend(query, key, ones, null, { dropoutP: 1 })
          .dataSync()
          .every((one) => one === 0),
      );
      cpu.reseed(11n);
      const sums = attend(query, key, ones, null, { dropoutP: 0.5 });
      assert.ok(Math.abs(sums.mean().item() - 1) < 0.2);
      assert.ok(new Set(sums.dataSync()).size > 1);
    });
  });

  test("sees what the fused kernel sees: causal, and with masks of both kinds", () => {
    cpu.step(() => {
      const [query, key, value] = [waves([2, 4, 3], 0), waves([2, 4, 3], 1), waves([2, 4, 3], 2)];
      // The least p that is not 0: a threshold that every word lies below.
      const dropoutP = 2 ** -40;
      const truth = cpu.fromHost([1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1], [4, 4], "bool");
      for (const mask of [null, truth, waves([4, 4], 5)]) {
        for (const isCausal of [false, true]) {
          const expected = attend(query, key, value, mask, { isCausal, scale: 0.3 });
          const found = attend(query, key, value, mask, { isCausal, scale: 0.3, dropoutP });
          near(found, expected, `${mask?.dtype} ${isCausal}`);
        }
      }
    });
  });
});
