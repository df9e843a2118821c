/** Accuracies and confusion matrices, from records as the CrossAsset job writes them, and from others that lack them. */

import assert from "node:assert/strict";
import test from "node:test";
import * as fc from "fast-check";
import type { JsonRecord } from "../wire.js";
import { epochsOf, foldsOf, meanByScale, sumConfusion } from "./predictions.js";

const confusion = [
  [3, 1],
  [2, 4],
];
const figures = { loss: 1, accuracy: 0.7, majority: 0.6, confusion };
const metrics = [
  { step: 5, fold: 0, epoch: 0, loss: 1.8, samplesPerSecond: 640 },
  { step: 10, fold: 0, epoch: 1, loss: 0.8, figures: { accuracy: 0.65 } },
  { step: 10, fold: 0, test: figures },
];
const results = {
  folds: [
    {
      fold: 0,
      test: { ...figures, accuracy: 0.75 },
      perScale: [
        { ...figures, minutes: 2, accuracy: 0.5 },
        { ...figures, minutes: 1, accuracy: 0.6 },
      ],
    },
    { fold: 1, test: figures, perScale: [{ ...figures, minutes: 2, accuracy: 0.9 }] },
  ],
};

test("epochs have their loss, and their accuracy if it was measured", () => {
  assert.deepEqual(epochsOf(metrics), [
    { fold: 0, epoch: 0, step: 5, loss: 1.8, accuracy: undefined, samplesPerSecond: 640, seconds: undefined },
    {
      fold: 0,
      epoch: 1,
      step: 10,
      loss: 0.8,
      accuracy: 0.65,
      samplesPerSecond: undefined,
      seconds: undefined,
    },
  ]);
});

test("a fold's test comes from the metrics until there are results", () => {
  assert.deepEqual(foldsOf(metrics, undefined), [{ ...figures, fold: 0, scales: [] }]);
  assert.deepEqual(
    foldsOf(metrics, results).map(({ fold, accuracy }) => [fold, accuracy]),
    [
      [0, 0.75],
      [1, 0.7],
    ],
  );
});

test("a scale's accuracy is the mean over the folds", () => {
  assert.deepEqual(
    meanByScale(foldsOf([], results)).map(({ minutes, accuracy }) => [minutes, accuracy]),
    [
      [1, 0.6],
      [2, 0.7],
    ],
  );
});

test("confusion matrices are added; without matrices, or with two sizes, there is no sum", () => {
  assert.deepEqual(sumConfusion([{ confusion }, { confusion }]), [
    [6, 2],
    [4, 8],
  ]);
  assert.equal(sumConfusion([]), undefined);
  assert.equal(sumConfusion([{ confusion }, { confusion: [[1]] }]), undefined);
});

test("no JSON record is an error", () => {
  fc.assert(
    fc.property(
      fc.array(fc.dictionary(fc.constantFrom("epoch", "fold", "test", "folds", "x"), fc.jsonValue())),
      (records) => {
        epochsOf(records);
        meanByScale(foldsOf(records, records[0] as JsonRecord | undefined));
        sumConfusion(foldsOf(records, undefined));
      },
    ),
  );
});
