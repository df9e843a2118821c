/** Schedules with side branches: what goes aside, that every wait is needed, and that nothing else runs than the program. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { agree, granuleBytes, runPlanned, runProgram } from "../../../test/support/modelled-run.js";
import { reachability, Sketch, sliceOf } from "../../../test/support/proposed-steps.js";
import { rejectionOf } from "../../../test/support/rejections.js";
import { planMemory } from "../memory/plan.js";
import type { Buffer, Call, Schedule } from "../program/program.js";
import { verifyPlan } from "../verify/verify.js";
import { lifetimesOf } from "./liveness.js";
import { scheduleCalls } from "./schedule.js";

/** A backward pass: each layer's input gradient is what the next one waits for, its weight gradient is read at the end. */
function backwardPass(layers: number): readonly Call[] {
  const sketch = new Sketch();
  const weights = sketch.persistent("weights", 0x10_000, 256 * layers);
  const gradients = sketch.persistent("gradients", 0x20_000_000, 256 * layers);
  let gradient = sketch.step("seed", 256);
  sketch.fill("seed", gradient);
  for (let layer = 0; layer < layers; layer++) {
    const next = sketch.step("gradient", 256);
    const partial = sketch.step("partial", 256);
    sketch.launch("weight", { reads: [gradient], writes: [partial] });
    sketch.launch("sum", { reads: [partial], updates: [sliceOf(gradients, 256 * layer, 256)] });
    sketch.launch("input", { reads: [gradient, sliceOf(weights, 256 * layer, 256)], writes: [next] });
    gradient = next;
  }
  sketch.launch("update", { reads: [gradients, gradient], updates: [weights] });
  return sketch.program;
}

function streamsByOp({ calls }: Schedule, op: string): Set<number> {
  return new Set(calls.flatMap(({ call, stream }) => (call.op === op ? [stream] : [])));
}

test("without side branches calls run one after the other", () => {
  const program = backwardPass(3);
  const { calls } = scheduleCalls(program, { streams: 0, lag: 8 });
  assert.deepEqual(
    calls,
    program.map((call) => ({ call, stream: 0, after: [] })),
  );
});

test("weight gradients and what is made of them go aside, while the chain of input gradients stays on the main branch", () => {
  const schedule = scheduleCalls(backwardPass(8), { streams: 2, lag: 2 });
  assert.deepEqual(streamsByOp(schedule, "input"), new Set([0]));
  assert.deepEqual(streamsByOp(schedule, "update"), new Set([0]));
  assert.deepEqual(streamsByOp(schedule, "weight"), new Set([1, 2, 0]));
  // The last two are needed too soon.
  const aside = schedule.calls.filter(({ stream }) => stream !== 0);
  assert.deepEqual(
    aside.map(({ call }) => call.op),
    Array.from({ length: 6 }, () => ["weight", "sum"]).flat(),
  );
  // What is made of a side call stands behind it and need not wait for it.
  for (const { call, after } of aside) assert.equal(after.length, call.op === "weight" ? 1 : 0);
});

test("what can wait for few calls goes aside all the same where that is enough, and then runs beside as many as it can", () => {
  const program = backwardPass(8);
  const sideStreamOf = (options: { lag: number; slack?: number }): number =>
    scheduleCalls(program, { streams: 2, ...options }).calls.filter(({ stream }) => stream !== 0).length;
  assert.ok(sideStreamOf({ lag: 6, slack: 2 }) > sideStreamOf({ lag: 6 }));
  assert.equal(sideStreamOf({ lag: 6, slack: 2 }), sideStreamOf({ lag: 2 }));
});

test("fills and copies stay on the main branch, and so does the last call", () => {
  const sketch = new Sketch();
  const kept = sketch.persistent("kept", 0x1000, 1024);
  const [a, b] = [sketch.step("a", 256), sketch.step("b", 256)];
  sketch.fill("fill", a);
  sketch.copy("copy", a, b);
  for (let time = 0; time < 4; time++) sketch.launch("work", { updates: [sliceOf(kept, 256 * time, 256)] });
  const { calls } = scheduleCalls(sketch.program, { streams: 3, lag: 0 });
  assert.deepEqual(
    calls.map(({ stream }) => stream),
    [0, 0, 1, 2, 3, 0],
  );
  assert.deepEqual(calls.at(-1)?.after, [2, 3, 4]);
});

const pieces = 6;
const randomAccess = fc.record({
  how: fc.constantFrom("reads", "reads", "writes", "updates"),
  buffer: fc.nat({ max: 7 }),
  first: fc.nat({ max: pieces - 1 }),
  count: fc.integer({ min: 1, max: pieces }),
});
const randomCalls = fc.array(
  fc.record({
    kind: fc.constantFrom("launch", "launch", "launch", "fill"),
    accesses: fc.array(randomAccess, { minLength: 1, maxLength: 3 }),
  }),
  { minLength: 1, maxLength: 24 },
);
const drawnOptions = fc.record(
  { streams: fc.integer({ min: 1, max: 3 }), lag: fc.nat({ max: 4 }), slack: fc.nat({ max: 4 }) },
  { requiredKeys: ["streams", "lag"] },
);

/** Programs over five step buffers and three persistent ones that overlap; a step buffer is written whole first. */
const randomProgram: fc.Arbitrary<readonly Call[]> = randomCalls.map((drawn) => {
  const sketch = new Sketch();
  const buffers: Buffer[] = [
    ...Array.from({ length: 5 }, (_, index) => sketch.step(`step ${index}`, granuleBytes * pieces)),
    ...[0x1000, 0x1100, 0x1080].map((at) => sketch.persistent("kept", at, granuleBytes * pieces)),
  ];
  const met = new Set(buffers.filter(({ storage }) => storage));
  for (const [index, { kind, accesses }] of drawn.entries()) {
    const operands = { reads: [], writes: [], updates: [] } as Record<string, ReturnType<typeof sliceOf>[]>;
    const fresh = new Set<Buffer>();
    for (const { how, buffer: number, first, count } of accesses) {
      const buffer = buffers[number]!;
      const slice = sliceOf(buffer, first * granuleBytes, Math.min(count, pieces - first) * granuleBytes);
      if (met.has(buffer)) operands[how]!.push(slice);
      else fresh.add(buffer);
    }
    for (const buffer of fresh) {
      operands["writes"]!.push(sliceOf(buffer, 0, buffer.bytes));
      met.add(buffer);
    }
    const [target] = [...operands["writes"]!, ...operands["updates"]!];
    if (kind === "fill" && fresh.size === 0 && target) sketch.fill(`fill ${index}`, target);
    else sketch.launch(`op ${index}`, operands);
  }
  return sketch.program;
});

test("whatever the program, the verifier passes its schedule and plan, and any order of its branches computes the same", () => {
  let sides = 0;
  fc.assert(
    fc.property(randomProgram, drawnOptions, fc.infiniteStream(fc.nat()), (program, options, choices) => {
      const schedule = scheduleCalls(program, options);
      const plan = planMemory(lifetimesOf(schedule));
      verifyPlan(program, schedule, plan);
      const step = { program, schedule, plan };
      const choose = (ready: number): number => choices.next().value % ready;
      assert.ok(agree(runPlanned(step, choose), runProgram(step)));
      sides += schedule.calls.filter(({ stream }) => stream !== 0).length;
    }),
    { numRuns: 1000 },
  );
  assert.ok(sides > 500, `${sides} calls went aside`);
});

test("no wait is there twice: without any one of them its call would not surely run behind what it waited for", () => {
  fc.assert(
    fc.property(randomProgram, drawnOptions, (program, options) => {
      const { calls } = scheduleCalls(program, options);
      for (const [place, { after }] of calls.entries()) {
        for (const waited of after) {
          const without = calls.map((one, at) =>
            at === place ? { ...one, after: after.filter((other) => other !== waited) } : one,
          );
          assert.ok(!reachability({ calls: without })(waited, place), `${place} waits for ${waited} anyway`);
        }
      }
    }),
    { numRuns: 300 },
  );
});

test("a side call runs beside so many calls of the main branch: before it and behind it at the most, and behind it as many as it had to be able to wait for", () => {
  fc.assert(
    fc.property(randomProgram, drawnOptions, (program, options) => {
      const schedule = scheduleCalls(program, options);
      const isBefore = reachability(schedule);
      const mains = [...schedule.calls.keys()].filter((place) => schedule.calls[place]!.stream === 0);
      for (const [place, { stream }] of schedule.calls.entries()) {
        if (stream === 0) continue;
        const later = mains.filter((main) => main > place);
        const join = later.findIndex((main) => isBefore(place, main));
        const { lag, slack = lag } = options;
        const [soonest, latest] = [slack, lag].map((most) => Math.min(most, later.length - 1));
        assert.ok(join >= soonest! || join === latest, `call ${place} is waited for ${join} calls behind it`);
        assert.ok(join <= latest!, `call ${place} is waited for ${join} calls behind it`);
        const earlier = mains.filter((main) => main < place).reverse();
        const fork = earlier.findIndex((main) => isBefore(main, place));
        const isFree = fork < 0 && earlier.length <= options.lag;
        assert.ok(isFree || (fork >= 0 && fork <= options.lag), `call ${place} begins ${fork} calls before`);
      }
    }),
    { numRuns: 500 },
  );
});

test("a schedule of twenty thousand calls whose waits are one too few is rejected, and as it was made it passes", () => {
  const program = backwardPass(6666);
  const schedule = scheduleCalls(program, { streams: 3, lag: 8 });
  const plan = planMemory(lifetimesOf(schedule));
  verifyPlan(program, schedule, plan);
  const place = schedule.calls.findIndex(
    ({ stream, after }, at) => stream !== 0 && after.length > 0 && at > 10_000,
  );
  const calls = schedule.calls.map((one, at) => (at === place ? { ...one, after: [] } : one));
  assert.equal(rejectionOf(() => verifyPlan(program, { calls }, plan))?.code, "PLAN_REJECTED");
});
