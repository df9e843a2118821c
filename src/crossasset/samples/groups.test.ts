/** Groups of bars, computed by hand. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { barsOfCloses } from "../../../test/support/random-bars.js";
import { emptyGroups, readGroups } from "./groups.js";

/** Closes 1, 2, 3 … 70: bar n closes at n + 1. */
const rising = () => barsOfCloses(Array.from({ length: 70 }, (_, bar) => bar + 1));

test("a group opens with its first bar, closes with its last, and the last group ends with the requested bar", () => {
  const groups = emptyGroups();
  readGroups(rising(), 67, 2, groups);
  assert.deepEqual([groups.open[31], groups.close[32]], [67, 68]);
  assert.deepEqual([groups.open[0], groups.close[1]], [5, 6]);
  assert.equal(groups.close[0], 4, "the close before the first group");
});

test("a group has the highest high, the lowest low and the sum of the volumes of its bars", () => {
  const bars = rising();
  bars.high[67] = 90;
  bars.low[66] = 0.5;
  bars.volume[66] = 10;
  const groups = emptyGroups();
  readGroups(bars, 67, 2, groups);
  assert.deepEqual([groups.high[31], groups.low[31], groups.volume[31]], [90, 0.5, 11]);
  assert.deepEqual([groups.high[30], groups.low[30], groups.volume[30]], [66, 65, 2]);
});

test("the vwap weighs typical prices by volume, and is their plain mean if nothing was traded", () => {
  const bars = rising();
  bars.high[67] = 71; // typical price (71 + 68 + 68) / 3 = 69
  bars.volume.set([3, 1], 66);
  bars.volume.set([0, 0], 64);
  const groups = emptyGroups();
  readGroups(bars, 67, 2, groups);
  assert.equal(groups.vwap[31], (67 * 3 + 69) / 4);
  assert.equal(groups.vwap[30], 65.5);
});
