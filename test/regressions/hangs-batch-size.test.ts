/**
 * H15 in data loading: a batch size of 0 looped for ever. A size without a batch is an error when the loader
 * is created.
 */

import assert from "node:assert/strict";
import { DataLoader, HoldfastError, TensorDataset } from "holdfast";
import { openDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";

const cpu = openDevice();

const data = new TensorDataset([[1], [2], [3]]);

/** Creates a loader; returns the number of its batches, counted up to a limit. */
type Load = (batchSize: number, dropLast: boolean) => number;

regressionRow<Load>({
  row: "H15",
  rule: "a batch size that is 0, negative, fractional or not a number, or that makes no batch, is an error at the start",
  sound: (batchSize, dropLast) => new DataLoader(data, { batchSize, dropLast, device: cpu }).length,
  faults: {
    "a loop that advances by the batch size, whatever it is"(batchSize) {
      let batches = 0;
      for (let row = 0; row < data.rows && batches < 1000; row += batchSize) batches++;
      return batches;
    },
  },
  check(load) {
    assert.equal(load(2, false), 2);
    const settings: [number, boolean][] = [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY].map((size) => [
      size,
      false,
    ]);
    for (const [batchSize, dropLast] of [...settings, [4, true] as const]) {
      assert.throws(
        () => load(batchSize, dropLast),
        (error) =>
          error instanceof HoldfastError && error.code === "BAD_ARGUMENT" && /batch/.test(error.message),
        `a batch size of ${batchSize}`,
      );
    }
  },
});
