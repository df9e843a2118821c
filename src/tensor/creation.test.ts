/** Functions that create tensors: the seed determines random numbers, and invalid arguments are rejected. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import {
  arange,
  eye,
  fromTyped,
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

test("random tensors depend only on the seed and the number of earlier draws", () => {
  const draw = (): unknown[] => {
    manualSeed(9);
    const makers = [() => rand([5], { device }), () => randn([5], { device })];
    const whole = [() => randint(-3, 9, [5], { device }), () => randperm(5, { device })];
    return [...makers, ...whole, ...makers].map((make) => device.step(() => make().tolist()));
  };
  const [first, second] = [draw(), draw()];
  assert.deepEqual(first, second);
  assert.notDeepEqual(first[0], first[4], "two draws are equal");
});

/** Calls that would create more elements than the device or any host has memory for. */
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
  test(`${call} is rejected by the device before any value is computed`, () => {
    const { live } = device.runtime.arena.figures;
    manualSeed(4);
    rejects("ARENA_FULL", make);
    assert.equal(device.runtime.arena.figures.live, live);
    // A rejected call draws no random numbers.
    const next = device.step(() => rand([3], { device }).tolist());
    manualSeed(4);
    assert.deepEqual(
      device.step(() => rand([3], { device }).tolist()),
      next,
    );
  });
}

test("values that the host can't allocate are rejected, and the device memory is freed", () => {
  const { live } = device.runtime.arena.figures;
  const none = (): never => {
    throw new RangeError("Array buffer allocation failed");
  };
  rejects(
    "OUT_OF_MEMORY",
    () => device.make(none, [3, 4], "f32"),
    /\[3, 4\] has 12 elements of f32.*Array buffer/,
  );
  assert.equal(device.runtime.arena.figures.live, live);
});

test("invalid or too large sizes are rejected", () => {
  rejects("BAD_SHAPE", () => zeros([2 ** 27, 2 ** 27], { device }), /more elements than can be counted/);
  rejects("BAD_SHAPE", () => eye(-1, 2, { device }));
  rejects("BAD_SHAPE", () => linspace(0, 1, 1.5, { device }));
});

test("randint draws every number of its range about equally often, and no other", () => {
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
  rejects("BAD_ARGUMENT", () => randint(4, 4, [1], { device }), /from 4 to 4/);
  rejects("BAD_ARGUMENT", () => randint(0, 1.5, [1], { device }), /whole numbers/);
});

test("randperm has each number once", () => {
  const drawn = device.step(() => Array.from(randperm(100, { device }).dataSync()));
  assert.deepEqual(
    drawn.toSorted((a, b) => a - b),
    Array.from({ length: 100 }, (_, index) => index),
  );
});

test("zerosLike and onesLike copy shape, dtype and device, but not requiresGrad", () => {
  device.step(() => {
    const like = tensor([[1, 2]], { dtype: "f64", device, requiresGrad: true });
    for (const [result, value] of [
      [zerosLike(like), 0],
      [onesLike(like), 1],
    ] as const) {
      assert.deepEqual([result.shape, result.dtype, result.requiresGrad], [[1, 2], "f64", false]);
      assert.equal(result.device, device);
      assert.deepEqual(result.tolist(), [[value, value]]);
    }
  });
});

test("equal and allclose distinguish shapes, infinities and NaN", () => {
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

test("fromTyped takes bigints that fit, and rejects others with their index", () => {
  const typed = (values: Parameters<typeof fromTyped>[0], options = {}): unknown =>
    device.step(() => {
      const result = fromTyped(values, [values.length], { device, ...options });
      return [result.dtype, result.tolist()];
    });
  assert.deepEqual(typed(new BigInt64Array([5n, -(2n ** 31n)])), ["i64", [5, -(2 ** 31)]]);
  assert.deepEqual(typed(new BigUint64Array([7n]), { dtype: "f64" }), ["f64", [7]]);
  assert.deepEqual(typed(new BigInt64Array([2n ** 40n]), { dtype: "f64" }), ["f64", [2 ** 40]]);
  rejects(
    "BAD_DTYPE",
    () => typed(new BigInt64Array([1n, 2n ** 31n]), { dtype: "i32" }),
    /data\[1\] is 2147483648, but i32 holds/,
  );
  rejects(
    "BAD_DTYPE",
    () => typed(new BigInt64Array([-1n]), { dtype: "u8" }),
    /data\[0\] is -1, but u8 holds/,
  );
});

test("fromTyped rejects numbers out of range instead of wrapping them", () => {
  const typed = (values: Parameters<typeof fromTyped>[0], options = {}): unknown =>
    device.step(() => fromTyped(values, [values.length], { device, ...options }).tolist());
  const high = new Uint32Array([7, 2 ** 31]);
  assert.deepEqual(typed(new Uint32Array([2 ** 31 - 1])), [2 ** 31 - 1]);
  rejects("BAD_DTYPE", () => typed(high), /data\[1\] is 2147483648, but i32 holds .*another dtype/);
  assert.deepEqual(typed(high, { dtype: "f64" }), [7, 2 ** 31]);
  rejects("BAD_DTYPE", () => typed(new Int32Array([256]), { dtype: "u8" }), /256, but u8 holds/);
  rejects("BAD_DTYPE", () => typed(new Float32Array([1e10]), { dtype: "i32" }), /10000000000, but i32 holds/);
  assert.deepEqual(typed(new Uint16Array([65_535])), [65_535]);
  assert.deepEqual(typed(new Uint8Array([2, 0]), { dtype: "bool" }), [true, false]);
});

test("fromTyped rejects arguments that are not typed arrays", () => {
  for (const [values, named] of [
    [[0.5], "a plain array"],
    [new DataView(new ArrayBuffer(8)), "a value of type object"],
    [undefined, "a value of type undefined"],
  ] as const)
    rejects("BAD_ARGUMENT", () => fromTyped(values as never, [1], { device }), new RegExp(named));
});
