/** Live ranges in schedules with and without side streams. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { StepScript } from "../../../test/support/random-steps.js";
import type { Storage } from "../../runtime/index.js";
import { address, bytes } from "../../units/index.js";
import { accessesOf, type Buffer, type Schedule } from "../program/program.js";
import { type Lifetime, lifetimesOf, peakOf } from "./liveness.js";

const storage: Storage = {
  kind: "persistent",
  span: { address: address(0), size: bytes(256) },
  generation: 0,
  label: "weight",
  home: {},
  owner: undefined,
};

function rangesOf(schedule: Schedule): Record<string, readonly [number, number]> {
  return Object.fromEntries(
    lifetimesOf(schedule).map(({ buffer, first, last }) => [buffer.label, [first, last]]),
  );
}

test("a step buffer is live from its first access to its last, and persistent memory is left out", () => {
  const step = new StepScript();
  const [a, b, weight] = [step.buffer("a", 8), step.buffer("b", 8), step.buffer("weight", 256, storage)];
  step.touch("make", [weight]);
  step.touch("make", [weight, b]);
  step.touch("make", [b, a]);
  step.touch("update", [weight, b]);
  assert.deepEqual(rangesOf(step.schedule), { b: [1, 3], a: [2, 2] });
  assert.deepEqual(lifetimesOf({ calls: [] }), []);
});

test("a buffer of a side call is live from after the main call it waits for to before the main call that waits for it", () => {
  // Main 0 and 1, side 2 after 0, main 3 and 4, main 5 after 2, main 6.
  const step = new StepScript();
  const touched = ["zero", "one", "two", "three", "four", "five", "six"].map((label) =>
    step.buffer(label, 8),
  );
  for (const [position, buffer] of touched.entries()) {
    if (position === 2) step.touch("side", [buffer], 1, [0]);
    else step.touch("main", [buffer], 0, position === 5 ? [2] : []);
  }
  assert.deepEqual(rangesOf(step.schedule), {
    zero: [0, 0],
    one: [1, 1],
    two: [0.5, 4.5],
    three: [3, 3],
    four: [4, 4],
    five: [5, 5],
    six: [6, 6],
  });
});

test("a side stream that no call waits for overlaps with everything to the end", () => {
  const step = new StepScript();
  const [a, b, c] = [step.buffer("a", 8), step.buffer("b", 8), step.buffer("c", 8)];
  const start = step.touch("main", [a]);
  step.touch("side", [b], 1, [start]);
  step.touch("main", [c]);
  step.touch("main", []);
  assert.deepEqual(rangesOf(step.schedule), { a: [0, 0], b: [0.5, 3.5], c: [2, 2] });
});

test("a fork and a join may go through another side stream", () => {
  const step = new StepScript();
  const [a, b, c] = [step.buffer("a", 8), step.buffer("b", 8), step.buffer("c", 8)];
  const start = step.touch("main", []);
  const first = step.touch("side", [a], 1, [start]);
  const second = step.touch("side", [b], 2, [first]);
  step.touch("main", [c], 0, [second]);
  assert.deepEqual(rangesOf(step.schedule), { a: [0.5, 2.5], b: [0.5, 2.5], c: [3, 3] });
});

test("a side call that does not wait for an earlier join overlaps with the joined calls", () => {
  const step = new StepScript();
  const [a, b, c] = [step.buffer("a", 8), step.buffer("b", 8), step.buffer("c", 8)];
  const start = step.touch("main", []);
  const side = step.touch("side", [a], 1, [start]);
  step.touch("main", [b], 0, [side]);
  step.touch("main", []);
  const late = step.touch("side", [c], 2, [start]);
  step.touch("main", [], 0, [late]);
  assert.deepEqual(rangesOf(step.schedule), { a: [0.5, 1.5], b: [2, 2], c: [0.5, 4.5] });
});

test("a side call overlaps with joined calls if it waits for the call before the join, and not if it waits for the join", () => {
  for (const [awaited, expected] of [
    [1, { a: [-0.5, 1.5], b: [1.5, 3.5] }],
    [2, { a: [-0.5, 1.5], b: [2.5, 3.5] }],
  ] as const) {
    const step = new StepScript();
    const [a, b] = [step.buffer("a", 8), step.buffer("b", 8)];
    const side = step.touch("side", [a], 1);
    step.touch("main", []);
    step.touch("main", [], 0, [side]);
    step.touch("side", [b], 2, [awaited]);
    assert.deepEqual(rangesOf(step.schedule), expected);
  }
});

/** Calls on three streams that access a few buffers and wait for some earlier calls of other streams. */
const someSchedule: fc.Arbitrary<Schedule> = fc
  .array(
    fc.record({
      stream: fc.constantFrom(0, 0, 1, 2),
      touched: fc.array(fc.nat(5), { maxLength: 2 }),
      waits: fc.array(fc.nat(), { maxLength: 2 }),
    }),
    { minLength: 1, maxLength: 16 },
  )
  .map((drawn) => {
    const step = new StepScript();
    const buffers = Array.from({ length: 6 }, (_, id) => step.buffer(`${id}`, 8));
    for (const [position, { stream, touched, waits }] of drawn.entries()) {
      const after = waits.map((wait) => wait % Math.max(1, position)).filter((at) => at < position);
      const others = after.filter((at) => drawn[at]!.stream !== stream);
      const accessed = touched.map((id) => buffers[id]!);
      step.touch("call", accessed, stream, others);
    }
    return step.schedule;
  });

/** By call, the positions of all calls that have completed before it starts. */
function endedBefore({ calls }: Schedule): readonly ReadonlySet<number>[] {
  const ended: Set<number>[] = [];
  for (const [position, { stream, after }] of calls.entries()) {
    const sameStream = calls.slice(0, position).flatMap((other, at) => (other.stream === stream ? [at] : []));
    ended.push(new Set([...sameStream, ...after].flatMap((at) => [at, ...ended[at]!])));
  }
  return ended;
}

function positionsOf({ calls }: Schedule, buffer: Buffer): number[] {
  return calls.flatMap(({ call }, position) =>
    accessesOf(call).some(({ slice }) => slice.buffer === buffer) ? [position] : [],
  );
}

const disjointMeansOrdered = (find: (schedule: Schedule) => readonly Lifetime[]) =>
  fc.property(someSchedule, (schedule) => {
    const lifetimes = find(schedule);
    const ended = endedBefore(schedule);
    for (const earlier of lifetimes) {
      for (const later of lifetimes.filter(({ first }) => first > earlier.last)) {
        for (const position of positionsOf(schedule, later.buffer)) {
          const isOrdered = positionsOf(schedule, earlier.buffer).every((at) => ended[position]!.has(at));
          assert.ok(isOrdered, `${earlier.buffer.label} may be in use while call ${position} runs`);
        }
      }
    }
  });

test("if two live ranges are disjoint, all accesses of one buffer complete before the first access of the other", () => {
  fc.assert(disjointMeansOrdered(lifetimesOf), { numRuns: effort({ quick: 1500, thorough: 10_000 }) });
});

test("a live range follows exactly from the forks and joins of its calls on the main stream", () => {
  fc.assert(
    fc.property(someSchedule, (schedule) => {
      const ended = endedBefore(schedule);
      const mains = [...schedule.calls.keys()].filter((position) => schedule.calls[position]!.stream === 0);
      const rangeOf = (position: number): [number, number] => {
        if (schedule.calls[position]!.stream === 0) return [position, position];
        const fork = mains.findLast((main) => ended[position]!.has(main)) ?? -1;
        const join = mains.find((main) => ended[main]!.has(position)) ?? schedule.calls.length;
        return [fork + 0.5, join - 0.5];
      };
      for (const { buffer, first, last } of lifetimesOf(schedule)) {
        const ranges = positionsOf(schedule, buffer).map(rangeOf);
        assert.equal(first, Math.min(...ranges.map(([from]) => from)));
        assert.equal(last, Math.max(...ranges.map(([, to]) => to)));
      }
    }),
    { numRuns: effort({ quick: 300, thorough: 2000 }) },
  );
});

test("a peak may be at a call or between calls", () => {
  const live = (id: number, first: number, last: number): Lifetime => ({
    buffer: { id, bytes: 256, label: "" },
    first,
    last,
  });
  assert.deepEqual(peakOf([live(0, 0, 1), live(1, 1.5, 3.5), live(2, 2, 2)]), { position: 2, bytes: 512 });
  assert.deepEqual(peakOf([live(0, 0, 1.5), live(1, 1.5, 3), live(2, 4, 4)]), { position: 1.5, bytes: 512 });
});

test("live ranges that ignore the streams are found", () => {
  const byPositionOnly = ({ calls }: Schedule): readonly Lifetime[] =>
    lifetimesOf({ calls: calls.map((call) => ({ ...call, stream: 0 })) });
  assert.ok(fc.check(disjointMeansOrdered(byPositionOnly), { numRuns: 3000 }).failed);
});

test("live ranges that start side calls at their position in the schedule are found", () => {
  const bySchedulePosition = ({ calls }: Schedule): readonly Lifetime[] =>
    lifetimesOf({
      calls: calls.map((scheduled, position) => {
        const main = calls.slice(0, position).findLastIndex(({ stream }) => stream === 0);
        const mustWait = scheduled.stream !== 0 && main >= 0;
        return mustWait ? { ...scheduled, after: [...scheduled.after, main] } : scheduled;
      }),
    });
  assert.ok(fc.check(disjointMeansOrdered(bySchedulePosition), { numRuns: 3000 }).failed);
});
