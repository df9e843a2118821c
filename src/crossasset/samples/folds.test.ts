/** Folds: the sizes of the blocks, and no information from test blocks in training labels. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { rejects } from "../../../test/support/rejects.js";
import { type Fold, walkForward } from "./folds.js";
import { historyBars, longestHorizon } from "./scales.js";

interface SampleBars {
  readonly count: number;
  readonly bar: Int32Array;
}

function everyBars(stride: number, count: number): SampleBars {
  return { count, bar: Int32Array.from({ length: count }, (_, index) => historyBars - 1 + index * stride) };
}

/** The training samples whose longest label uses bars after the first test sample's bar. */
function overlaps({ bar }: SampleBars, { train, test }: Fold): number {
  const firstTested = bar[test.start]!;
  return bar.subarray(train.start, train.end).filter((at) => at + longestHorizon > firstTested).length;
}

test("24,613 samples in 2 folds train on 8,204 and 16,408, and the gap is taken from the test blocks", () => {
  assert.deepEqual(walkForward(everyBars(60, 24_613), 2), [
    { train: { start: 0, end: 8204 }, test: { start: 8207, end: 16_408 } },
    { train: { start: 0, end: 16_408 }, test: { start: 16_411, end: 24_613 } },
  ]);
});

test("no training label uses a bar of the test block, and the gap is minimal", () => {
  const drawn = fc.record({
    stride: fc.integer({ min: 1, max: 300 }),
    count: fc.integer({ min: 2500, max: 5000 }),
    folds: fc.integer({ min: 1, max: 9 }),
  });
  fc.assert(
    fc.property(drawn, ({ stride, count, folds }) => {
      const samples = everyBars(stride, count);
      for (const fold of walkForward(samples, folds)) {
        assert.equal(overlaps(samples, fold), 0);
        assert.equal(fold.test.start - fold.train.end, Math.ceil(longestHorizon / stride) - 1);
      }
    }),
  );
});

test("without a gap training labels do reach into the test block", () => {
  const samples = everyBars(60, 300);
  for (const fold of walkForward(samples, 2, { gap: 0 })) {
    assert.equal(fold.test.start, fold.train.end);
    assert.equal(overlaps(samples, fold), 3);
  }
});

test("every sample is in one block, and the sizes of the blocks differ by at most one", () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 12 }), fc.integer({ min: 13, max: 1000 }), (folds, count) => {
      const actual = walkForward(everyBars(300, count), folds);
      const ends = [0, ...actual.map(({ train }) => train.end), count];
      const sizes = ends.slice(1).map((end, index) => end - ends[index]!);
      assert.equal(sizes.length, folds + 1);
      assert.ok(Math.max(...sizes) - Math.min(...sizes) <= 1, sizes.join());
      for (const [index, fold] of actual.entries()) assert.equal(fold.test.end, ends[index + 2]);
    }),
  );
});

test("the gap counts bars, not samples, even if samples are uneven", () => {
  const samples = { count: 6, bar: Int32Array.of(0, 10, 20, 30, 260, 300) };
  assert.deepEqual(walkForward(samples, 1)[0]?.test, { start: 4, end: 6 });
});

test("invalid folds, an invalid gap and too few samples are rejected", () => {
  const samples = everyBars(60, 100);
  for (const folds of [0, -1, 1.5, Number.NaN]) {
    rejects("BAD_ARGUMENT", () => walkForward(samples, folds), /^The number of folds is/);
  }
  rejects("BAD_ARGUMENT", () => walkForward(samples, 1, { gap: -1 }), /^The gap is -1/);
  rejects("BAD_ARGUMENT", () => walkForward(everyBars(60, 2), 2), /^2 samples are too few for 2 folds/);
  rejects("BAD_ARGUMENT", () => walkForward(everyBars(60, 9), 2), /a test block would be empty/);
  assert.equal(walkForward(everyBars(60, 12), 2).length, 2);
});
