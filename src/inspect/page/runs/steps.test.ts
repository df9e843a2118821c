/** Tables of steps: the rows of a range, the times of steps, and the remaining time. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import type { StepTable } from "../wire.js";
import {
  byEpoch,
  covers,
  epochStepMs,
  foldStarts,
  hostByEpoch,
  lastFinite,
  mergeSteps,
  rowsOfSteps,
  secondsLeft,
  stepRange,
  stepTimes,
} from "./steps.js";

/** Ten steps of 100 ms, each with 30 ms of host time; the second fold starts with step 6. */
function table(points = 10, rows = points): StepTable {
  const each = rows / points;
  const list = (make: (index: number) => number): number[] =>
    Array.from({ length: points }, (_, i) => make(i));
  return {
    rows,
    from: 0,
    to: rows,
    columns: {
      step: list((i) => i * each + 1),
      lossMin: list(() => 1),
      lossMax: list(() => 3),
      loss: list(() => 2),
      notFinite: list(() => 0),
      lr: list(() => 0.001),
      hostMs: list(() => 30),
      time: list((i) => i * each * 100),
      samplesPerSecond: list(() => 640),
      fold: list((i) => (i < points / 2 ? 0 : 1)),
      epoch: list(() => 0),
    },
  };
}

const empty: StepTable = { ...table(0), rows: 0, from: 0, to: 0 };

test("the rows of a range of steps contain all its steps", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 1000 }), fc.integer({ min: 1, max: 1000 }), (a, b) => {
      const [min, max] = [Math.min(a, b), Math.max(a, b)];
      const { from, to } = rowsOfSteps(table(100, 1000), { min, max });
      assert.ok(from <= min - 1 && to >= max && from >= 0 && to <= 1000, `${from} to ${to}`);
    }),
  );
});

test("a narrow range has few rows", () => {
  const { from, to } = rowsOfSteps(table(100, 1000), { min: 500, max: 510 });
  assert.ok(to - from <= 60, `${to - from}`);
});

test("a table covers ranges inside it, and the run's ends", () => {
  const partial: StepTable = { ...table(), rows: 100, from: 0, to: 10 };
  assert.ok(covers(partial, { min: -5, max: 8 }));
  assert.ok(!covers(partial, { min: 1, max: 60 }));
  assert.ok(!covers(empty, { min: 1, max: 2 }));
  assert.equal(stepRange(empty), undefined);
});

test("a step's time is the time since the previous step; across folds it is unknown", () => {
  const { host, whole } = stepTimes(table());
  assert.equal(host[0], 30);
  assert.equal(whole[0], null);
  assert.equal(whole[1], 100);
  assert.equal(whole[5], null);
  assert.equal(whole[9], 100);
});

test("a step is never shorter than the host's time for it", () => {
  const quick = table();
  const { whole } = stepTimes({
    ...quick,
    columns: { ...quick.columns, hostMs: quick.columns.step.map(() => 500) },
  });
  assert.equal(whole[1], 500);
});

test("an epoch's figure is at each of its steps, and nowhere else", () => {
  const values = byEpoch(table(4), [{ fold: 1, epoch: 0, value: 7 }]);
  assert.deepEqual(values, [null, null, 7, 7]);
});

test("a fold starts where its index changes", () => {
  assert.deepEqual(foldStarts(table()), [
    { step: 1, fold: 0 },
    { step: 6, fold: 1 },
  ]);
});

test("the remaining time is the remaining steps at the current rate", () => {
  assert.equal(secondsLeft(table(), 20), 1);
  assert.equal(secondsLeft(table(), 10), 0);
  assert.equal(secondsLeft(table(), undefined), undefined);
  assert.equal(secondsLeft(empty, 20), undefined);
});

test("the last finite value ignores gaps", () => {
  assert.equal(lastFinite([1, 2, null, Number.NaN]), 2);
  assert.equal(lastFinite([]), undefined);
});

test("runs with different steps share an axis, and each keeps its values at its own", () => {
  const { steps, align } = mergeSteps([
    [1, 3, 5],
    [1, 4],
  ]);
  assert.deepEqual(steps, [1, 3, 4, 5]);
  assert.deepEqual(align(0, [10, 30, 50]), [10, 30, null, 50]);
  assert.deepEqual(align(1, [11, 41]), [11, null, 41, null]);
});

test("a step's time is the epoch's time without compilation, and unknown if a fold has one epoch", () => {
  // 100 samples in 10 steps take one second. Compilation takes four seconds in the first epoch and one in the second fold's.
  const epochs = [
    { fold: 0, epoch: 0, step: 10, samplesPerSecond: 100, seconds: 5 },
    { fold: 0, epoch: 1, step: 20, samplesPerSecond: 50, seconds: 2 },
    { fold: 1, epoch: 0, step: 30, samplesPerSecond: 100, seconds: 2 },
  ];
  assert.deepEqual(
    epochStepMs(epochs).map(({ value }) => value),
    [100, 200, undefined],
  );
  assert.deepEqual(epochStepMs([]), []);
});

test("the host time of an epoch is its median, even if the first step is slow", () => {
  const some = table(6);
  const host = hostByEpoch({ ...some, columns: { ...some.columns, hostMs: [900, 2, 3, null, 5, 5] } });
  assert.deepEqual(host, [3, 3, 3, 5, 5, 5]);
});
