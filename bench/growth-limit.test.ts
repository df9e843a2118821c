/** The judgement of growth finds what is quadratic, and is not misled by noise. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { growsTooFast } from "./growth-limit.js";

const floor = 20;
const series = (calls: readonly number[], amountOf: (calls: number) => number) =>
  calls.map((count) => ({ calls: count, amount: amountOf(count) }));
const growing = [100, 400, 1600, 6400];

test("n and n log n are slow enough, with a noise of a third", () => {
  for (const noise of [1, 4 / 3]) {
    const amounts = (calls: number): number => (calls === 6400 ? noise : 1) * 0.02 * calls * Math.log(calls);
    assert.ok(!growsTooFast(series(growing, amounts), floor));
    assert.ok(
      !growsTooFast(
        series(growing, (calls) => (calls === 6400 ? noise : 1) * calls),
        floor,
      ),
    );
  }
});

test("n² and n^1.6 are too fast", () => {
  for (const exponent of [2, 1.6])
    assert.ok(
      growsTooFast(
        series(growing, (calls) => 1e-3 * calls ** exponent),
        floor,
      ),
      `${exponent}`,
    );
});

test("a stage that takes less than the floor until the last size is judged by the floor", () => {
  const jump = (last: number) => series(growing, (calls) => (calls === 6400 ? last : 1));
  assert.ok(!growsTooFast(jump(100), floor));
  assert.ok(growsTooFast(jump(200), floor));
});

test("with as many calls, the time of a pass that finds work at some sizes only is no growth", () => {
  const fixed = [96, 15, 14, 78].map((amount) => ({ calls: 316, amount }));
  assert.ok(!growsTooFast(fixed, floor));
  assert.ok(growsTooFast([...fixed, { calls: 322, amount: 160 }], floor));
});
