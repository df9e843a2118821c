/** Functions that make tensors: what is drawn follows from the seed, and what can't be made is refused. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { refuses } from "../../test/support/refuses.js";
import { manualSeed, onesLike, rand, randint, randn, randperm, tensor, zerosLike } from "./index.js";

const device = openStrictDevice();

test("random tensors follow from the seed and from how many were drawn before", () => {
  const draw = (): unknown[] => {
    manualSeed(9);
    const makers = [() => rand([5], { device }), () => randn([5], { device })];
    const whole = [() => randint(-3, 9, [5], { device }), () => randperm(5, { device })];
    return [...makers, ...whole, ...makers].map((make) => device.step(() => make().tolist()));
  };
  const [first, second] = [draw(), draw()];
  assert.deepEqual(first, second);
  assert.notDeepEqual(first[0], first[4], "two draws are alike");
});

test("randint has every whole number of its range about equally often, and none beside", () => {
  manualSeed(3);
  const drawn = device.step(() => randint(-2, 4, [6000], { device }).dataSync());
  const counts = new Map<number, number>();
  for (const value of drawn) counts.set(value, (counts.get(value) ?? 0) + 1);
  assert.deepEqual(
    [...counts.keys()].sort((a, b) => a - b),
    [-2, -1, 0, 1, 2, 3],
  );
  // A thousand each; six standard deviations are 173.
  for (const [value, count] of counts)
    assert.ok(Math.abs(count - 1000) < 173, `${value} came ${count} times`);
  refuses("BAD_ARGUMENT", () => randint(4, 4, [1], { device }), /from 4 to 4/);
  refuses("BAD_ARGUMENT", () => randint(0, 1.5, [1], { device }), /whole numbers/);
});

test("randperm has each number once", () => {
  const drawn = device.step(() => Array.from(randperm(100, { device }).dataSync()));
  assert.deepEqual(
    drawn.toSorted((a, b) => a - b),
    Array.from({ length: 100 }, (_, index) => index),
  );
});

test("zerosLike and onesLike take over shape, dtype and device, and nothing of the graph", () => {
  device.step(() => {
    const like = tensor([[1, 2]], { dtype: "f64", device, requiresGrad: true });
    for (const [made, value] of [
      [zerosLike(like), 0],
      [onesLike(like), 1],
    ] as const) {
      assert.deepEqual([made.shape, made.dtype, made.requiresGrad], [[1, 2], "f64", false]);
      assert.equal(made.device, device);
      assert.deepEqual(made.tolist(), [[value, value]]);
    }
  });
});

test("equal and allclose tell shapes, infinities and NaN apart", () => {
  device.step(() => {
    const x = tensor([1, Number.POSITIVE_INFINITY], { device });
    assert.equal(x.equal(x), true);
    assert.equal(x.allclose(x), true);
    assert.equal(x.allclose(tensor([1, Number.NEGATIVE_INFINITY], { device })), false);
    const hole = tensor([Number.NaN], { device });
    assert.equal(hole.equal(hole), false);
    assert.equal(hole.allclose(hole), false);
    assert.deepEqual(x.isinf().tolist(), [false, true]);
  });
});
