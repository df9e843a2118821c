/** Initialisers: bounds, standard deviations, fans, and seeds. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { rejects } from "../../test/support/rejects.js";
import { manualSeed } from "../tensor/index.js";
import * as nn from "./index.js";

const { init } = nn;

function draw(shape: readonly number[], initializer: nn.Initializer, seed = 1n): Float32Array {
  return Float32Array.from(initializer(shape, { seed, id: 1 }));
}

function deviationOf(values: Float32Array): number {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
}

test("constant initialisers give their constants", () => {
  assert.deepEqual([...draw([2], init.zeros())], [0, 0]);
  assert.deepEqual([...draw([2], init.ones())], [1, 1]);
  assert.deepEqual([...draw([2, 1], init.constant(-3))], [-3, -3]);
  assert.equal(draw([0, 3], init.normal()).length, 0);
});

test("uniform values fill the range between their bounds", () => {
  const values = draw([100, 100], init.uniform(-2, 3));
  const [min, max] = [Math.min(...values), Math.max(...values)];
  assert.ok(min >= -2 && min < -1.99 && max <= 3 && max > 2.99, `${min} to ${max}`);
});

test("each random initialiser has the standard deviation of its formula", () => {
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
    const actual = deviationOf(draw(shape, initializer));
    assert.ok(Math.abs(actual / deviation - 1) < 0.03, `${index}: ${actual}, expected ${deviation}`);
  }
});

test("kaimingUniform with the default slope stays within 1/√fanIn", () => {
  const values = draw([50, 16], init.kaimingUniform());
  assert.ok(Math.max(...values.map(Math.abs)) <= 0.25);
  assert.ok(Math.max(...values.map(Math.abs)) > 0.24);
});

test("initial values depend on the seed and the draw's number only", () => {
  const make = (): number[] =>
    [...new nn.Linear(3, 4).parameters()].flatMap((parameter) => [
      ...Float32Array.from(parameter.initialValues()),
    ]);
  manualSeed(5);
  const [first, second] = [make(), make()];
  manualSeed(5);
  assert.deepEqual(make(), first);
  assert.notDeepEqual(second, first);
  manualSeed(6);
  assert.notDeepEqual(make(), first);
});

test("shapes without fans and invalid bounds are rejected", () => {
  rejects("BAD_SHAPE", () => draw([3], init.xavierUniform()), /\[3\] has no fan-in/);
  rejects("BAD_ARGUMENT", () => init.uniform(1, 0), /uniform\(1, 0\)/);
  rejects("BAD_ARGUMENT", () => init.uniform(0, Number.NaN));
  rejects("BAD_ARGUMENT", () => init.normal(0, -1), /not negative/);
  rejects("BAD_ARGUMENT", () => draw([2, 2], init.xavierNormal({ gain: Number.NaN })), /gain is NaN/);
});

test("eye and dirac let inputs pass, as in PyTorch", () => {
  assert.deepEqual([...draw([3, 2], init.eye())], [1, 0, 0, 1, 0, 0]);
  const ones = [...draw([4, 1, 3, 2], init.dirac(2)).entries()].flatMap(([at, value]) =>
    value === 1 ? [at] : [],
  );
  assert.deepEqual(ones, [3, 15]);
  rejects("BAD_SHAPE", () => draw([2, 2, 2], init.eye()), /it is for matrices/);
  rejects("BAD_SHAPE", () => draw([3, 2, 3], init.dirac(2)), /2 groups of a weight \[3, 2, 3\]/);
  rejects("BAD_SHAPE", () => draw([3, 2], init.dirac()), /for convolutions/);
});
