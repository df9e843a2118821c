/** Thousands of steps of 500 allocations: nothing grows. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { effort } from "./support/effort.js";
import { heapAfterCollection } from "./support/gc.js";
import { withRuntime } from "./support/runtimes.js";

const [warmUp, stretch] = effort({ quick: [200, 200], thorough: [1000, 1800] });
/** The heap is measured after each. V8 compiles code in some of them; a leak grows in all. */
const stretches = 5;
const steps = warmUp + stretches * stretch;
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
      runSteps(warmUp - 2);
      let heap = heapAfterCollection();
      const growths = Array.from({ length: stretches }, () => {
        const before = heap;
        runSteps(stretch);
        heap = heapAfterCollection();
        return heap - before;
      });
      const median = growths.toSorted((a, b) => a - b)[Math.floor(stretches / 2)] ?? Infinity;
      const now = runtime.arena.figures;
      assert.equal(now.committed, committed);
      assert.equal(runtime.budget.used, used);
      assert.equal(now.resetsByStep, steps);
      assert.equal(now.allocations, steps * allocationsPerStep);
      assert.equal(now.live, 0);
      assert.ok(
        median < 16 * stretch,
        `the JS heap grew by ${growths.join(", ")} bytes in stretches of ${stretch} steps`,
      );
    },
    // The plain driver: under strict the same holds, at twenty times the time.
    (device) => device,
  );
});
