/** Edge cases of elementwise ops: booleans, integer bounds, powers, and gradients that meet infinities. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { tensor } from "../index.js";

openStrictDevice();

test("arithmetic of booleans gives booleans, so that their sum counts them", () => {
  const flags = tensor([true, true, false]);
  const both = flags.add(flags);
  assert.equal(both.dtype, "bool");
  assert.deepEqual([...both.dataSync()], [1, 1, 0]);
  assert.equal(both.sum().item(), 2);
  assert.deepEqual([...tensor([true, false]).fill_(2).dataSync()], [1, 1]);
});

test("integers are clamped by one bound or two, and not by a fraction", () => {
  for (const dtype of ["i32", "u8"] as const) {
    const x = tensor([1, 5, 9], { dtype });
    assert.deepEqual(x.clamp(undefined, 5).tolist(), [1, 5, 5]);
    assert.deepEqual(x.clamp(5).tolist(), [5, 5, 9]);
    assert.deepEqual(x.clamp(2, 8).tolist(), [2, 5, 8]);
    rejects("BAD_DTYPE", () => x.clamp(0.5), new RegExp(`clamp: 0.5 with a tensor of ${dtype}`));
    rejects("BAD_DTYPE", () => x.fill_(0.5), new RegExp(`fill: 0.5 with a tensor of ${dtype}`));
  }
});

test("0 to a negative power is 0 among integers, and infinite among floats", () => {
  const x = tensor([0, 1, 2, -1], { dtype: "i32" });
  assert.deepEqual(x.pow(-1).tolist(), [0, 1, 0, -1]);
  assert.deepEqual(x.to("f32").pow(-1).tolist(), [Infinity, 1, 0.5, -1]);
});

test("where relu and clamp have gradient 0, an infinite gradient after them becomes 0 and not NaN", () => {
  const x = tensor([-1, 0, 4], { requiresGrad: true });
  x.relu().sqrt().sum().backward();
  assert.deepEqual(x.grad?.tolist(), [0, 0, 0.25]);
  x.zeroGrad();
  x.clamp(undefined, 0).neg().sqrt().slice([0, 1]).sum().backward();
  assert.deepEqual([...(x.grad?.dataSync() ?? [])].slice(2), [0]);
});

test("large i64 quotients are rounded exactly", () => {
  const x = tensor(BigInt64Array.of(9007199254740993n, -9007199254740993n));
  assert.deepEqual(
    x.div(2, { roundingMode: "trunc" }).bigInts(),
    BigInt64Array.of(4503599627370496n, -4503599627370496n),
  );
  assert.deepEqual(
    x.div(2, { roundingMode: "floor" }).bigInts(),
    BigInt64Array.of(4503599627370496n, -4503599627370497n),
  );
  rejects("BAD_ARGUMENT", () => x.div(2, { roundingMode: "up" as never }), /roundingMode is up/);
});

test("a bound of clamp is a number, a tensor or null", () => {
  const x = tensor([-2, 0.5, 3]);
  assert.deepEqual(x.clamp(null, tensor([0, 1, 2])).tolist(), [-2, 0.5, 2]);
  assert.deepEqual(x.clone().clamp_(tensor(-1), 1).tolist(), [-1, 0.5, 1]);
  rejects("BAD_ARGUMENT", () => x.clamp({ max: 1 } as never), /clamp: a bound is object/);
});
