/** The checks of bars before samples are made. */

import { test } from "node:test";
import { copyBars, randomBars } from "../../../test/support/random-bars.js";
import { rejects } from "../../../test/support/rejects.js";
import type { BarColumn } from "../bars/bars.js";
import { requireUsableBars } from "./usable-bars.js";

const bars = randomBars(50);

function rejectsValue(column: BarColumn, value: number, message: RegExp): void {
  const changed = copyBars(bars);
  changed[column][7] = value;
  rejects("BAD_ARGUMENT", () => requireUsableBars(changed), message);
}

test("valid bars pass, even without moves and without trades", () => {
  const still = copyBars(bars);
  for (const column of ["open", "high", "low", "close"] as const) still[column].fill(1);
  still.volume.fill(0);
  requireUsableBars(bars);
  requireUsableBars(still);
});

test("a price that is not a positive number is rejected with its bar and its column", () => {
  for (const column of ["open", "high", "low", "close"] as const) {
    for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 0, -1]) {
      rejectsValue(column, value, new RegExp(`^Bar 7 has ${column} ${value}. It must be a positive number`));
    }
  }
});

test("a volume that is not a number, or below zero, is rejected", () => {
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, -1]) {
    rejectsValue("volume", value, new RegExp(`^Bar 7 has volume ${value}. It must be zero or a positive`));
  }
});

test("a high below its bar's low is rejected", () => {
  rejectsValue("high", 1, /^Bar 7 has high 1. It must be the bar's low or more/);
});

test("columns of different lengths are rejected", () => {
  const cut = { ...bars, volume: bars.volume.slice(1) };
  rejects("BAD_ARGUMENT", () => requireUsableBars(cut), /49 values of volume and 50 of close/);
});
