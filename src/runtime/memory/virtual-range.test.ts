/** How much memory growth commits. */

import assert from "node:assert/strict";
import test from "node:test";
import { openTestDriver } from "../../../test/support/test-device.js";
import { alignUp, bytes } from "../../units/index.js";
import type { Budget, Charge } from "./budget.js";
import { VirtualRange } from "./virtual-range.js";

const mib = 1024 * 1024;

/** The committed MiB after each request. */
function committedAfter(ends: readonly number[], left: number): readonly number[] {
  const driver = openTestDriver();
  let available = bytes(left);
  const budget: Pick<Budget, "left" | "charge" | "release"> = {
    get left() {
      return available;
    },
    charge(label, size, holder): Charge {
      available = bytes(available - size);
      return { label, size, holder };
    },
    release: () => undefined,
  };
  const range = new VirtualRange({ driver, budget: budget as Budget, capacity: bytes(64 * mib) });
  try {
    return ends.map((end) => {
      range.grow(end, "test");
      return range.committed / mib;
    });
  } finally {
    range.release();
    driver.close();
  }
}

test("a large request commits its bytes and no more", () => {
  assert.deepEqual(committedAfter([32 * mib], 64 * mib), [32]);
  assert.deepEqual(committedAfter([2 * mib, 32 * mib], 64 * mib), [2, 32]);
});

test("a small request commits a sixteenth more than before, so that many of them take few commits", () => {
  assert.deepEqual(committedAfter([32 * mib, 32 * mib + 1], 64 * mib), [32, 34]);
});

test("if the budget has less than that, only the request is committed", () => {
  const driver = openTestDriver();
  const { granularity } = driver.describe();
  driver.close();
  const short = committedAfter([32 * mib, 32 * mib + 1], 32 * mib + granularity);
  assert.deepEqual(short, [32, alignUp(32 * mib + 1, granularity) / mib]);
});
