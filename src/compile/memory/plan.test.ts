/** Plans of drawn lifetimes and of steps that are shaped like real ones. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  findClash,
  lifetime,
  randomLifetimes,
  someLifetimes,
} from "../../../test/support/random-lifetimes.js";
import { convnetSchedule, randomSchedule, transformerSchedule } from "../../../test/support/random-steps.js";
import type { Plan } from "../program/program.js";
import { type Lifetime, lifetimesOf, lowerBound } from "../schedule/liveness.js";
import { planMemory, searchPlan } from "./plan.js";

const planIsSound = (planner: (lifetimes: readonly Lifetime[]) => Plan) =>
  fc.property(someLifetimes, (lifetimes) => {
    assert.equal(findClash(lifetimes, planner(lifetimes)), undefined);
  });

test("buffers that are live together never share bytes, and each begins on 256 bytes inside the plan", () => {
  fc.assert(planIsSound(planMemory), { numRuns: 1000 });
});

test("a planner that takes a buffer for dead one place too early is found", () => {
  const early = (lifetimes: readonly Lifetime[]): Plan =>
    planMemory(lifetimes.map((one) => ({ ...one, last: Math.max(one.first, one.last - 1) })));
  const { failed, counterexample } = fc.check(planIsSound(early), { numRuns: 2000 });
  assert.ok(failed);
  assert.equal(counterexample?.[0].length, 2, "the smallest example is two buffers");
});

test("a plan takes at least the lower bound, ends where its highest buffer does, and is the same every time", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const { bytes, offsets } = planMemory(lifetimes);
      assert.ok(bytes >= lowerBound(lifetimes));
      const ends = lifetimes.map(({ buffer }) => offsets.get(buffer)! + Math.ceil(buffer.bytes / 256) * 256);
      assert.equal(bytes, Math.max(0, ...ends));
      assert.deepEqual([...planMemory(lifetimes).offsets.values()], [...offsets.values()]);
    }),
    { numRuns: 500 },
  );
});

test("nothing takes nothing, and one buffer lies at 0", () => {
  assert.deepEqual(planMemory([]), { bytes: 0, offsets: new Map() });
  const one = lifetime(0, 3, 9, 300);
  assert.deepEqual(planMemory([one]), { bytes: 512, offsets: new Map([[one.buffer, 0]]) });
});

test("a buffer of no bytes gets offset 0 and takes nothing", () => {
  const lifetimes = [lifetime(0, 0, 9, 0), lifetime(1, 0, 9, 256), lifetime(2, 0, 9, 0)];
  const { bytes, offsets } = planMemory(lifetimes);
  assert.equal(bytes, 256);
  assert.deepEqual([...offsets.values()], [0, 0, 0]);
});

test("equal buffers that live together are stacked, and one after the other take one place", () => {
  const together = Array.from({ length: 5 }, (_, id) => lifetime(id, 2, 4, 1024));
  const { bytes, offsets } = planMemory(together);
  assert.equal(bytes, 5 * 1024);
  assert.deepEqual(new Set(offsets.values()), new Set([0, 1024, 2048, 3072, 4096]));
  const serialized = Array.from({ length: 5 }, (_, id) => lifetime(id, id, id, 1024));
  assert.equal(planMemory(serialized).bytes, 1024);
});

test("nested lifetimes take just the lower bound", () => {
  const nested = Array.from({ length: 30 }, (_, id) => lifetime(id, id, 100 - id, 256 * (1 + (id % 7))));
  assert.equal(planMemory(nested).bytes, lowerBound(nested));
});

test("the lower bound is the largest sum of live bytes, counted place by place", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const sums = Array.from({ length: 60 }, (_, place) =>
        lifetimes
          .filter(({ first, last }) => first <= place && place <= last)
          .reduce((sum, { buffer }) => sum + Math.ceil(buffer.bytes / 256) * 256, 0),
      );
      assert.equal(lowerBound(lifetimes), Math.max(...sums));
    }),
  );
});

const steps = {
  "a transformer of 2 layers": transformerSchedule(2, false),
  "a transformer of 12 layers": transformerSchedule(12, false),
  "a transformer of 12 layers that writes its scores": transformerSchedule(12, true),
  "a transformer of 600 layers": transformerSchedule(600, true),
  "a step of 6000 random ops": randomSchedule(6000, 4),
  "a residual network of 8 blocks": convnetSchedule(8),
  "a residual network of 16 blocks": convnetSchedule(16),
  "a residual network of 900 blocks": convnetSchedule(900),
  ...Object.fromEntries(
    [20, 50, 100, 300, 1000].flatMap((ops) =>
      [1, 2, 3].map((seed) => [`step ${seed} of ${ops} random ops`, randomSchedule(ops, seed)]),
    ),
  ),
};

for (const [name, schedule] of Object.entries(steps)) {
  test(`the plan of ${name} is within a tenth of the lower bound`, () => {
    const lifetimes = lifetimesOf(schedule);
    const [{ bytes }, bound] = [planMemory(lifetimes), lowerBound(lifetimes)];
    assert.ok(bytes <= 1.1 * bound, `${lifetimes.length} buffers take ${bytes} bytes for ${bound}`);
    if (lifetimes.length < 2000) assert.equal(findClash(lifetimes, planMemory(lifetimes)), undefined);
  });
}

test("eight times the buffers take no more steps than n·log n allows", () => {
  const families = {
    shortLived: (count: number) => randomLifetimes(count, 8, 1),
    savedForBackward: (count: number) => lifetimesOf(transformerSchedule(Math.ceil(count / 32), true)),
    allTogether: (count: number) => randomLifetimes(count, count, 2),
  };
  for (const [name, draw] of Object.entries(families)) {
    const [few, many] = [2500, 20_000].map((count) => {
      const lifetimes = draw(count);
      return searchPlan(lifetimes).steps / (lifetimes.length * Math.log2(lifetimes.length));
    });
    assert.ok(many! < 1.25 * few!, `${name}: ${few} n·log n for 2,500 buffers, ${many} for 20,000`);
  }
});
