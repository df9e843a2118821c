/** Functions that make tensors: what is drawn follows from the seed, and what can't be made is refused. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { refuses } from "../../test/support/refuses.js";
import {
  arange,
  eye,
  full,
  linspace,
  manualSeed,
  ones,
  onesLike,
  rand,
  randint,
  randn,
  randperm,
  type Tensor,
  tensor,
  zeros,
  zerosLike,
} from "./index.js";

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

/** Makers of more elements than the device has memory for, or any host. */
const tooLarge: Readonly<Record<string, () => Tensor>> = {
  "randn([2**30])": () => randn([2 ** 30], { device }),
  "rand([2**30])": () => rand([2 ** 30], { device }),
  "randint(0, 9, [2**30])": () => randint(0, 9, [2 ** 30], { device }),
  "randperm(2**30)": () => randperm(2 ** 30, { device }),
  "ones([2**40])": () => ones([2 ** 40], { device }),
  "full([2**33], 2)": () => full([2 ** 33], 2, { device }),
  "eye(2**20)": () => eye(2 ** 20, 2 ** 20, { device }),
  "arange(2**40)": () => arange(0, 2 ** 40, 1, { device }),
  "linspace(0, 1, 2**40)": () => linspace(0, 1, 2 ** 40, { device }),
};

for (const [call, make] of Object.entries(tooLarge)) {
  test(`${call} is refused by the device before any value is made`, () => {
    const { live } = device.runtime.arena.figures;
    manualSeed(4);
    refuses("ARENA_FULL", make);
    assert.equal(device.runtime.arena.figures.live, live);
    // Nothing was drawn for what was refused.
    const next = device.step(() => rand([3], { device }).tolist());
    manualSeed(4);
    assert.deepEqual(
      device.step(() => rand([3], { device }).tolist()),
      next,
    );
  });
}

test("values that the host can't hold are refused, and their memory is given back", () => {
  const { live } = device.runtime.arena.figures;
  const none = (): never => {
    throw new RangeError("Array buffer allocation failed");
  };
  refuses(
    "OUT_OF_MEMORY",
    () => device.make(none, [3, 4], "f32"),
    /\[3, 4\] has 12 elements of f32.*Array buffer/,
  );
  assert.equal(device.runtime.arena.figures.live, live);
});

test("sizes that are none, or too many to count, are refused", () => {
  refuses("BAD_SHAPE", () => zeros([2 ** 27, 2 ** 27], { device }), /more elements than can be counted/);
  refuses("BAD_SHAPE", () => eye(-1, 2, { device }));
  refuses("BAD_SHAPE", () => linspace(0, 1, 1.5, { device }));
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
