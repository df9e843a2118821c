/** Initialisers: their bounds and moments, their fans, and that the seed alone decides. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { manualSeed } from "../tensor/index.js";
import * as nn from "./index.js";

const { init } = nn;

function drawn(shape: readonly number[], initializer: nn.Initializer, seed = 1n): Float32Array {
  return Float32Array.from(initializer(shape, { seed, id: 1 }));
}

function deviationOf(values: Float32Array): number {
  const mean = values.reduce((sum, one) => sum + one, 0) / values.length;
  return Math.sqrt(values.reduce((sum, one) => sum + (one - mean) ** 2, 0) / values.length);
}

test("constants are what they say", () => {
  assert.deepEqual([...drawn([2], init.zeros())], [0, 0]);
  assert.deepEqual([...drawn([2], init.ones())], [1, 1]);
  assert.deepEqual([...drawn([2, 1], init.constant(-3))], [-3, -3]);
  assert.equal(drawn([0, 3], init.normal()).length, 0);
});

test("uniform values fill their bounds and no more", () => {
  const values = drawn([100, 100], init.uniform(-2, 3));
  const [least, most] = [Math.min(...values), Math.max(...values)];
  assert.ok(least >= -2 && least < -1.99 && most <= 3 && most > 2.99, `${least} to ${most}`);
});

test("each random initialiser has the standard deviation that its fans ask for", () => {
  const shape = [64, 32, 3]; // fan-in 96, fan-out 192
  const expected: [nn.Initializer, number][] = [
    [init.normal(5, 0.02), 0.02],
    [init.kaimingUniform(), 1 / Math.sqrt(3 * 96)],
    [init.kaimingUniform({ a: 0 }), Math.sqrt(2 / 96)],
    [init.kaimingNormal(), Math.sqrt(2 / 96)],
    [init.kaimingNormal({ mode: "fanOut", nonlinearity: "tanh" }), 5 / 3 / Math.sqrt(192)],
    [init.xavierUniform(), Math.sqrt(2 / (96 + 192))],
    [init.xavierNormal({ gain: 2 }), 2 * Math.sqrt(2 / (96 + 192))],
  ];
  for (const [index, [initializer, deviation]] of expected.entries()) {
    const found = deviationOf(drawn(shape, initializer));
    assert.ok(Math.abs(found / deviation - 1) < 0.03, `${index}: ${found} for ${deviation}`);
  }
});

test("kaimingUniform with the default slope stays within 1/√fanIn", () => {
  const values = drawn([50, 16], init.kaimingUniform());
  assert.ok(Math.max(...values.map(Math.abs)) <= 0.25);
  assert.ok(Math.max(...values.map(Math.abs)) > 0.24);
});

test("the seed and the draw's number decide, and nothing else", () => {
  const make = (): number[] =>
    [...new nn.Linear(3, 4).parameters()].flatMap((one) => [...Float32Array.from(one.initialValues())]);
  manualSeed(5);
  const [first, second] = [make(), make()];
  manualSeed(5);
  assert.deepEqual(make(), first);
  assert.notDeepEqual(second, first);
  manualSeed(6);
  assert.notDeepEqual(make(), first);
});

test("shapes without fans and senseless bounds are rejected", () => {
  rejects("BAD_SHAPE", () => drawn([3], init.xavierUniform()), /\[3\] has no fan-in/);
  rejects("BAD_ARGUMENT", () => init.uniform(1, 0), /uniform\(1, 0\)/);
  rejects("BAD_ARGUMENT", () => init.uniform(0, Number.NaN));
  rejects("BAD_ARGUMENT", () => init.normal(0, -1), /not negative/);
  rejects("BAD_ARGUMENT", () => drawn([2, 2], init.xavierNormal({ gain: Number.NaN })), /gain is NaN/);
});
