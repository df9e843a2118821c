/** Plans of random live ranges and of realistic steps. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
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

test("buffers that are live at the same time never share bytes, and each is aligned to 256 bytes inside the plan", () => {
  fc.assert(planIsSound(planMemory), { numRuns: effort({ quick: 200, thorough: 1000 }) });
});

test("a planner that ends live ranges one position too early is found", () => {
  const early = (lifetimes: readonly Lifetime[]): Plan =>
    planMemory(lifetimes.map((range) => ({ ...range, last: Math.max(range.first, range.last - 1) })));
  const { failed, counterexample } = fc.check(planIsSound(early), { numRuns: 2000 });
  assert.ok(failed);
  assert.equal(counterexample?.[0].length, 2, "the smallest example is two buffers");
});

test("a plan needs at least the lower bound, ends where its highest buffer ends, and is deterministic", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const { bytes, offsets } = planMemory(lifetimes);
      assert.ok(bytes >= lowerBound(lifetimes));
      const ends = lifetimes.map(({ buffer }) => offsets.get(buffer)! + Math.ceil(buffer.bytes / 256) * 256);
      assert.equal(bytes, Math.max(0, ...ends));
      assert.deepEqual([...planMemory(lifetimes).offsets.values()], [...offsets.values()]);
    }),
    { numRuns: effort({ quick: 100, thorough: 500 }) },
  );
});

test("an empty plan has no bytes, and a single buffer has offset 0", () => {
  assert.deepEqual(planMemory([]), { bytes: 0, offsets: new Map() });
  const single = lifetime(0, 3, 9, 300);
  assert.deepEqual(planMemory([single]), { bytes: 512, offsets: new Map([[single.buffer, 0]]) });
});

test("an empty buffer gets offset 0 and no bytes", () => {
  const lifetimes = [lifetime(0, 0, 9, 0), lifetime(1, 0, 9, 256), lifetime(2, 0, 9, 0)];
  const { bytes, offsets } = planMemory(lifetimes);
  assert.equal(bytes, 256);
  assert.deepEqual([...offsets.values()], [0, 0, 0]);
});

test("equal buffers are stacked if they are live at the same time, and share memory if not", () => {
  const concurrent = Array.from({ length: 5 }, (_, id) => lifetime(id, 2, 4, 1024));
  const { bytes, offsets } = planMemory(concurrent);
  assert.equal(bytes, 5 * 1024);
  assert.deepEqual(new Set(offsets.values()), new Set([0, 1024, 2048, 3072, 4096]));
  const serialized = Array.from({ length: 5 }, (_, id) => lifetime(id, id, id, 1024));
  assert.equal(planMemory(serialized).bytes, 1024);
});

test("nested live ranges need exactly the lower bound", () => {
  const nested = Array.from({ length: 30 }, (_, id) => lifetime(id, id, 100 - id, 256 * (1 + (id % 7))));
  assert.equal(planMemory(nested).bytes, lowerBound(nested));
});

test("the lower bound is the largest sum of live bytes over all positions", () => {
  fc.assert(
    fc.property(someLifetimes, (lifetimes) => {
      const positions = Array.from({ length: 120 }, (_, index) => index / 2);
      const sums = positions.map((position) =>
        lifetimes
          .filter(({ first, last }) => first <= position && position <= last)
          .reduce((sum, { buffer }) => sum + Math.ceil(buffer.bytes / 256) * 256, 0),
      );
      assert.equal(lowerBound(lifetimes), Math.max(...sums));
    }),
  );
});

const many = {
  layers: effort({ quick: 100, thorough: 600 }),
  ops: effort({ quick: 1500, thorough: 6000 }),
  blocks: effort({ quick: 150, thorough: 900 }),
};

const steps = {
  "a transformer of 2 layers": transformerSchedule(2, false),
  "a transformer of 12 layers": transformerSchedule(12, false),
  "a transformer of 12 layers that writes its scores": transformerSchedule(12, true),
  [`a transformer of ${many.layers} layers`]: transformerSchedule(many.layers, true),
  [`a step of ${many.ops} random ops`]: randomSchedule(many.ops, 4),
  "a residual network of 8 blocks": convnetSchedule(8),
  "a residual network of 16 blocks": convnetSchedule(16),
  [`a residual network of ${many.blocks} blocks`]: convnetSchedule(many.blocks),
  ...Object.fromEntries(
    [20, 50, 100, 300, 1000].flatMap((ops) =>
      effort({ quick: [1], thorough: [1, 2, 3] }).map((seed) => [
        `step ${seed} of ${ops} random ops`,
        randomSchedule(ops, seed),
      ]),
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

test("the steps of the search grow at most as n·log n", () => {
  const families = {
    shortLived: (count: number) => randomLifetimes(count, 8, 1),
    savedForBackward: (count: number) => lifetimesOf(transformerSchedule(Math.ceil(count / 32), true)),
    allConcurrent: (count: number) => randomLifetimes(count, count, 2),
  };
  const sizes = effort({ quick: [2500, 6000], thorough: [2500, 20_000] });
  for (const [name, draw] of Object.entries(families)) {
    const [few, many] = sizes.map((count) => {
      const lifetimes = draw(count);
      return searchPlan(lifetimes).steps / (lifetimes.length * Math.log2(lifetimes.length));
    });
    assert.ok(
      many! < 1.25 * few!,
      `${name}: ${few} n·log n for ${sizes[0]} buffers, ${many} for ${sizes[1]}`,
    );
  }
});
