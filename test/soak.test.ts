/** Thousands of steps of 500 allocations: nothing grows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { MiB } from "../src/units/index.js";
import { effort } from "./support/effort.js";
import { heapAfterCollection } from "./support/gc.js";
import { withRuntime } from "./support/runtimes.js";

const [warmUp, steps] = effort({ quick: [400, 1400], thorough: [1000, 10_000] });
const allocationsPerStep = 500;

test(`${steps} steps of 500 allocations leave committed bytes and the JS heap unchanged after the second step`, () => {
  const sizes = Array.from({ length: allocationsPerStep }, (_, index) => 1 + ((index * 7919) % 20_000));
  withRuntime(
    {},
    ({ runtime }) => {
      const runSteps = (count: number): void => {
        for (let done = 0; done < count; done++) {
          runtime.step(() => {
            for (const size of sizes) runtime.arena.allocate(size, "activation");
          });
        }
      };
      runSteps(2);
      const { committed } = runtime.arena.figures;
      const used = runtime.budget.used;
      runSteps(warmUp);
      const heap = heapAfterCollection();
      const rest = steps - 2 - warmUp;
      runSteps(rest);
      const growth = heapAfterCollection() - heap;
      const now = runtime.arena.figures;
      assert.equal(now.committed, committed);
      assert.equal(runtime.budget.used, used);
      assert.equal(now.resetsByStep, steps);
      assert.equal(now.allocations, steps * allocationsPerStep);
      assert.equal(now.live, 0);
      assert.ok(
        growth < Math.min(128 * rest, MiB / 4),
        `the JS heap grew by ${growth} bytes in ${rest} steps`,
      );
    },
    // The plain driver: under strict the same holds, at twenty times the time.
    (device) => device,
  );
});
