/** Schedules with side streams: which calls move there, that every wait is needed, and that the result stays the same. */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
import { agree, granuleBytes, runPlanned, runProgram } from "../../../test/support/modelled-run.js";
import { reachability, Sketch, sliceOf } from "../../../test/support/proposed-steps.js";
import { rejectionOf } from "../../../test/support/rejections.js";
import { planMemory } from "../memory/plan.js";
import type { Buffer, Call, Schedule } from "../program/program.js";
import { verifyPlan } from "../verify/verify.js";
import { lifetimesOf } from "./liveness.js";
import { scheduleCalls } from "./schedule.js";

/** A backward pass: each layer waits for the input gradient of the layer before; weight gradients are read at the end. */
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

test("without side streams calls run one after the other", () => {
  const program = backwardPass(3);
  const { calls } = scheduleCalls(program, { streams: 0, lag: 8 });
  assert.deepEqual(
    calls,
    program.map((call) => ({ call, stream: 0, after: [] })),
  );
});

test("weight gradients and their sums move to side streams, and the chain of input gradients stays on the main stream", () => {
  const schedule = scheduleCalls(backwardPass(8), { streams: 2, lag: 2 });
  assert.deepEqual(streamsByOp(schedule, "input"), new Set([0]));
  assert.deepEqual(streamsByOp(schedule, "update"), new Set([0]));
  assert.deepEqual(streamsByOp(schedule, "weight"), new Set([1, 2, 0]));
  // The last two are needed too soon.
  const sideCalls = schedule.calls.filter(({ stream }) => stream !== 0);
  assert.deepEqual(
    sideCalls.map(({ call }) => call.op),
    Array.from({ length: 6 }, () => ["weight", "sum"]).flat(),
  );
  // A consumer of a side call follows it on the same stream, without a wait.
  for (const { call, after } of sideCalls) assert.equal(after.length, call.op === "weight" ? 1 : 0);
});

test("with a smaller slack more calls move to side streams", () => {
  const program = backwardPass(8);
  const sideStreamOf = (options: { lag: number; slack?: number }): number =>
    scheduleCalls(program, { streams: 2, ...options }).calls.filter(({ stream }) => stream !== 0).length;
  assert.ok(sideStreamOf({ lag: 6, slack: 2 }) > sideStreamOf({ lag: 6 }));
  assert.equal(sideStreamOf({ lag: 6, slack: 2 }), sideStreamOf({ lag: 2 }));
});

test("fills, copies and the last call stay on the main stream", () => {
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

/** A backward pass whose gradients are exchanged in buckets, each after its layer. */
function exchangingPass(layers: number): readonly Call[] {
  const sketch = new Sketch();
  const weights = sketch.persistent("weights", 0x10_000, 256 * layers);
  let gradient = sketch.step("seed", 256);
  sketch.fill("seed", gradient);
  const averages: Buffer[] = [];
  for (let layer = 0; layer < layers; layer++) {
    const [next, own, received, sum, average] = ["gradient", "own", "received", "sum", "average"].map(
      (name) => sketch.step(name, 256),
    ) as [Buffer, Buffer, Buffer, Buffer, Buffer];
    sketch.launch(`weight ${layer}`, { reads: [gradient], writes: [own] });
    sketch.launch("allToAll", { reads: [own], writes: [received] });
    sketch.launch("sum", { reads: [received], writes: [sum] });
    sketch.launch("allGather", { reads: [sum], writes: [average] });
    sketch.launch("input", { reads: [gradient, sliceOf(weights, 256 * layer, 256)], writes: [next] });
    averages.push(average);
    gradient = next;
  }
  for (const [layer, average] of averages.entries())
    sketch.launch("update", { reads: [average], updates: [sliceOf(weights, 256 * layer, 256)] });
  return sketch.program;
}

for (const streams of [0, 2])
  test(`collectives and the sums between them have one stream, next to ${streams} side streams, and backward does not wait for them`, () => {
    const layers = 6;
    const program = exchangingPass(layers);
    const isCollective = ({ op }: Call): boolean => op.startsWith("all");
    const schedule = scheduleCalls(program, { streams, lag: 2, isCollective });
    verifyPlan(program, schedule, planMemory(lifetimesOf(schedule)));
    const isBefore = reachability(schedule);
    const positionsOf = (op: string): number[] =>
      program.flatMap((call, position) => (call.op === op ? [position] : []));
    for (const op of ["allToAll", "sum", "allGather"])
      assert.deepEqual(streamsByOp(schedule, op), new Set([streams + 1]));
    assert.ok(!streamsByOp(schedule, "input").has(streams + 1));
    const [first = -1] = positionsOf("allToAll");
    const [lastGradient = -1] = positionsOf(`weight ${layers - 1}`);
    assert.ok(isBefore(positionsOf("weight 0")[0] ?? -1, first));
    assert.ok(!isBefore(lastGradient, first) && !isBefore(first, lastGradient));
    for (const position of positionsOf("input")) assert.ok(!isBefore(first, position));
    assert.ok(isBefore(positionsOf("allGather")[0] ?? -1, positionsOf("update")[0] ?? -1));
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
const randomOptions = fc.record(
  { streams: fc.integer({ min: 1, max: 3 }), lag: fc.nat({ max: 4 }), slack: fc.nat({ max: 4 }) },
  { requiredKeys: ["streams", "lag"] },
);

/** The same with collectives: every second to fourth launch. */
const withCollectives = fc
  .record({ options: randomOptions, streams: fc.nat({ max: 3 }), every: fc.integer({ min: 2, max: 4 }) })
  .map(({ options, streams, every }) => ({
    ...{ ...options, streams },
    isCollective: ({ op }: Call) => op.startsWith("op") && Number(op.slice(3)) % every === 0,
  }));
const anyOptions = fc.oneof(randomOptions, withCollectives);

/** Programs over five step buffers and three persistent ones that overlap; a step buffer is written whole first. */
const randomProgram: fc.Arbitrary<readonly Call[]> = randomCalls.map((drawn) => {
  const sketch = new Sketch();
  const buffers: Buffer[] = [
    ...Array.from({ length: 5 }, (_, index) => sketch.step(`step ${index}`, granuleBytes * pieces)),
    ...[0x1000, 0x1100, 0x1080].map((address) => sketch.persistent("kept", address, granuleBytes * pieces)),
  ];
  const written = new Set(buffers.filter(({ storage }) => storage));
  for (const [index, { kind, accesses }] of drawn.entries()) {
    const operands = { reads: [], writes: [], updates: [] } as Record<string, ReturnType<typeof sliceOf>[]>;
    const fresh = new Set<Buffer>();
    for (const { how, buffer: number, first, count } of accesses) {
      const buffer = buffers[number]!;
      const slice = sliceOf(buffer, first * granuleBytes, Math.min(count, pieces - first) * granuleBytes);
      if (written.has(buffer)) operands[how]!.push(slice);
      else fresh.add(buffer);
    }
    for (const buffer of fresh) {
      operands["writes"]!.push(sliceOf(buffer, 0, buffer.bytes));
      written.add(buffer);
    }
    const [target] = [...operands["writes"]!, ...operands["updates"]!];
    if (kind === "fill" && fresh.size === 0 && target) sketch.fill(`fill ${index}`, target);
    else sketch.launch(`op ${index}`, operands);
  }
  return sketch.program;
});

test("for any program, the verifier accepts schedule and plan, and any order of the streams computes the same result", () => {
  let sides = 0;
  const numRuns = effort({ quick: 200, thorough: 1000 });
  fc.assert(
    fc.property(randomProgram, anyOptions, fc.infiniteStream(fc.nat()), (program, options, choices) => {
      const schedule = scheduleCalls(program, options);
      const plan = planMemory(lifetimesOf(schedule));
      verifyPlan(program, schedule, plan);
      const step = { program, schedule, plan };
      const choose = (ready: number): number => choices.next().value % ready;
      assert.ok(agree(runPlanned(step, choose), runProgram(step)));
      sides += schedule.calls.filter(({ stream }) => stream !== 0).length;
    }),
    { numRuns },
  );
  assert.ok(sides > numRuns / 4, `${sides} calls moved to side streams`);
});

test("no wait is redundant: without it, the order of its two calls is not guaranteed", () => {
  fc.assert(
    fc.property(randomProgram, anyOptions, (program, options) => {
      const { calls } = scheduleCalls(program, options);
      for (const [position, { after }] of calls.entries()) {
        for (const waited of after) {
          const without = calls.map((entry, index) =>
            index === position ? { ...entry, after: after.filter((other) => other !== waited) } : entry,
          );
          assert.ok(
            !reachability({ calls: without })(waited, position),
            `${position} waits for ${waited} anyway`,
          );
        }
      }
    }),
    { numRuns: effort({ quick: 60, thorough: 300 }) },
  );
});

test("a side call overlaps with at most `lag` main calls before and after it, and with at least `slack` after it", () => {
  fc.assert(
    fc.property(randomProgram, randomOptions, (program, options) => {
      const schedule = scheduleCalls(program, options);
      const isBefore = reachability(schedule);
      const mains = [...schedule.calls.keys()].filter((position) => schedule.calls[position]!.stream === 0);
      for (const [position, { stream }] of schedule.calls.entries()) {
        if (stream === 0) continue;
        const later = mains.filter((main) => main > position);
        const join = later.findIndex((main) => isBefore(position, main));
        const { lag, slack = lag } = options;
        const [soonest, latest] = [slack, lag].map((count) => Math.min(count, later.length - 1));
        assert.ok(join >= soonest! || join === latest, `call ${position} is awaited ${join} calls after it`);
        assert.ok(join <= latest!, `call ${position} is awaited ${join} calls after it`);
        const earlier = mains.filter((main) => main < position).reverse();
        const fork = earlier.findIndex((main) => isBefore(main, position));
        const isFree = fork < 0 && earlier.length <= options.lag;
        assert.ok(
          isFree || (fork >= 0 && fork <= options.lag),
          `call ${position} starts ${fork} calls earlier`,
        );
      }
    }),
    { numRuns: effort({ quick: 100, thorough: 500 }) },
  );
});

const layers = effort({ quick: 1000, thorough: 6666 });

test(`a schedule of ${3 * layers} calls is accepted, and rejected if one wait is missing`, () => {
  const program = backwardPass(layers);
  const schedule = scheduleCalls(program, { streams: 3, lag: 8 });
  const plan = planMemory(lifetimesOf(schedule));
  verifyPlan(program, schedule, plan);
  const position = schedule.calls.findIndex(
    ({ stream, after }, index) => stream !== 0 && after.length > 0 && index > 1.5 * layers,
  );
  const calls = schedule.calls.map((entry, index) => (index === position ? { ...entry, after: [] } : entry));
  assert.equal(rejectionOf(() => verifyPlan(program, { calls }, plan))?.code, "PLAN_REJECTED");
});
