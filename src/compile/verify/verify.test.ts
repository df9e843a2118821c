/**
 * The verifier over drawn programs, schedules and plans: it lets sound ones pass, agrees with the rules applied call by
 * call and byte by byte, and whatever passes computes what the program says. Planted faults: test/compile-faults.test.ts.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { agree, granuleBytes, runPlanned, runProgram } from "../../../test/support/modelled-run.js";
import {
  haveConflict,
  type ProposedStep,
  planDisjoint,
  planFirstFit,
  reachability,
  rejectionBy,
  Sketch,
  scheduleOn,
  share,
  sliceOf,
} from "../../../test/support/proposed-steps.js";
import { rejectionOf } from "../../../test/support/rejections.js";
import { alignUp } from "../../units/index.js";
import { accessesOf, type Buffer, type BufferSlice, type Call } from "../program/program.js";
import { verifyPlan } from "./verify.js";

const stepBuffers = 6;
const pieces = 8;

interface RandomAccess {
  readonly how: "reads" | "writes" | "updates";
  /** The step's buffers, then three persistent ones that overlap each other. */
  readonly buffer: number;
  readonly first: number;
  readonly count: number;
}

const randomAccess: fc.Arbitrary<RandomAccess> = fc.record({
  how: fc.constantFrom("reads", "reads", "writes", "updates"),
  buffer: fc.nat({ max: stepBuffers + 2 }),
  first: fc.nat({ max: pieces - 1 }),
  count: fc.integer({ min: 1, max: pieces }),
});

const randomCalls = fc.array(fc.array(randomAccess, { minLength: 1, maxLength: 3 }), { maxLength: 14 });
const randomStreams = fc.array(fc.nat({ max: 3 }), { minLength: 14, maxLength: 14 });

/** With care, a step buffer is first met by a write of all of it. */
function programOf(drawn: readonly (readonly RandomAccess[])[], isCareful: boolean): readonly Call[] {
  const sketch = new Sketch();
  const buffers: readonly Buffer[] = [
    ...Array.from({ length: stepBuffers }, (_, index) => sketch.step(`step ${index}`, granuleBytes * pieces)),
    ...[0x1000, 0x1200, 0x1100].map((address) => sketch.persistent("kept", address, granuleBytes * pieces)),
  ];
  const met = new Set(buffers.filter(({ storage }) => storage !== undefined));
  for (const [index, accesses] of drawn.entries()) {
    const operands: Record<RandomAccess["how"], BufferSlice[]> = { reads: [], writes: [], updates: [] };
    for (const { how, buffer: number, first, count } of accesses) {
      const buffer = buffers[number]!;
      const size = Math.min(count, pieces - first) * granuleBytes;
      if (!isCareful || met.has(buffer)) operands[how].push(sliceOf(buffer, first * granuleBytes, size));
      else operands.writes.push(sliceOf(buffer, 0, buffer.bytes));
    }
    const call = sketch.launch(`op ${index}`, operands);
    for (const { slice } of accessesOf(call)) met.add(slice.buffer);
  }
  return sketch.program;
}

function ruleBrokenBy(step: ProposedStep): unknown {
  const error = rejectionBy(step);
  return error === undefined ? "none" : error.numbers["rule"];
}

test("a schedule with a wait for every meeting passes, with every buffer apart or in shared places", () => {
  fc.assert(
    fc.property(randomCalls, randomStreams, (calls, streams) => {
      const program = programOf(calls, true);
      const schedule = scheduleOn(program, streams);
      verifyPlan(program, schedule, planDisjoint(schedule));
      verifyPlan(program, schedule, planFirstFit(schedule));
    }),
    { numRuns: 300 },
  );
});

const drawnFaults = fc.record({
  isCareful: fc.boolean(),
  exchanged: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 1 }),
  deadOnExit: fc.array(fc.nat(), { maxLength: 2 }),
  moved: fc.array(fc.tuple(fc.nat(), fc.nat({ max: 5 })), { maxLength: 1 }),
  /** Of each call: does it begin early, and fetch what it reads where nothing before it writes that, or all of it? */
  early: fc.array(fc.constantFrom("none", "none", "good", "good", "good", "all"), {
    minLength: 14,
    maxLength: 14,
  }),
});

/** A step in which calls may have changed places, waits may be missing and buffers may lie elsewhere. */
const randomStep: fc.Arbitrary<ProposedStep> = fc
  .tuple(randomCalls, randomStreams, drawnFaults)
  .map(([calls, streams, { isCareful, exchanged, deadOnExit, moved, early }]) => {
    const program = programOf(calls, isCareful);
    const reordered = [...program];
    for (const [a, b] of program.length === 0 ? [] : exchanged) {
      const [first, second] = [a % program.length, b % program.length];
      [reordered[first], reordered[second]] = [reordered[second]!, reordered[first]!];
    }
    const whole = scheduleOn(reordered, streams);
    const plan = planFirstFit(whole);
    const waits = whole.calls.flatMap(({ after }, place) => after.map((waited) => ({ place, waited })));
    const lost = deadOnExit.map((one) => waits[one % Math.max(waits.length, 1)]);
    const scheduled = whole.calls.map((one, place) => ({
      ...one,
      after: one.after.filter(
        (waited) => !lost.some((wait) => wait?.place === place && wait.waited === waited),
      ),
    }));
    const offsets = new Map(plan.offsets);
    for (const [pick, unit] of offsets.size === 0 ? [] : moved) {
      offsets.set([...offsets.keys()][pick % offsets.size]!, unit * 256);
    }
    const ends = [...offsets].map(([{ bytes }, offset]) => offset + bytes);
    const step = {
      program,
      schedule: { calls: scheduled },
      plan: { offsets, bytes: alignUp(Math.max(0, ...ends), 256) },
    };
    const begun = scheduled.map((one, place) => {
      const how = early[place]!;
      const before = callBefore(step, place);
      if (how === "none" || (how === "good" && (!before || one.after.length > 0))) return one;
      const read = accessesOf(one.call).flatMap(({ slice, reads }) => (reads ? [slice] : []));
      return { ...one, prefetches: read.filter((slice) => how === "all" || !isWrittenBy(before!, slice)) };
    });
    return { ...step, schedule: { calls: begun } };
  });

/** The call before one on its branch. */
function callBefore({ schedule: { calls } }: ProposedStep, place: number): Call | undefined {
  return calls.findLast(({ stream }, at) => at < place && stream === calls[place]!.stream)?.call;
}

/** Does a call write some of a part? Whose buffers have places apart is for the rule of lifetimes to say. */
function isWrittenBy(call: Call, slice: BufferSlice): boolean {
  return accessesOf(call).some(({ slice: other, writes }) => writes && share(slice, other));
}

/** The rules that speak of more than one call, applied to every pair of calls and of buffers. */
function findBrokenRule({ program, schedule, plan }: ProposedStep): string {
  const isBefore = reachability(schedule);
  const placeOf = (call: Call): number => schedule.calls.findIndex((one) => one.call === call);
  const usesOf = (buffer: Buffer): number[] =>
    [...schedule.calls.keys()].filter((place) =>
      accessesOf(schedule.calls[place]!.call).some(({ slice }) => slice.buffer === buffer),
    );
  const isOver = (a: Buffer, b: Buffer): boolean =>
    usesOf(a).every((one) => usesOf(b).every((other) => isBefore(one, other)));

  const end = schedule.calls.findLastIndex(({ stream }) => stream === 0);
  const isCombined = schedule.calls.every(({ stream }, place) => stream === 0 || isBefore(place, end));
  if (!isCombined) return "streams";

  const isOrdered = program.every((later, index) =>
    program
      .slice(0, index)
      .every((earlier) => !haveConflict(earlier, later) || isBefore(placeOf(earlier), placeOf(later))),
  );
  if (!isOrdered) return "order";

  const isHandedOver = schedule.calls.every(({ after, prefetches: early }, place) => {
    const before = callBefore({ program, schedule, plan }, place);
    if (!early) return true;
    return before && after.length === 0 && early.every((slice) => !isWrittenBy(before, slice));
  });
  if (!isHandedOver) return "pdl";

  const places = [...plan.offsets];
  const isApart = places.every(([a, start], index) =>
    places.slice(0, index).every(([b, other]) => {
      const share = start < other + b.bytes && other < start + a.bytes;
      return !share || isOver(a, b) || isOver(b, a);
    }),
  );
  if (!isApart) return "lifetimes";

  const written = new Set<string>();
  for (const call of program) {
    const accesses = accessesOf(call).filter(({ slice }) => slice.buffer.storage === undefined);
    const bytesOf = ({ buffer, offset, size }: BufferSlice): string[] =>
      Array.from(
        { length: size / granuleBytes },
        (_, index) => `${buffer.id}:${offset + index * granuleBytes}`,
      );
    const read = accesses.filter(({ reads }) => reads).flatMap(({ slice }) => bytesOf(slice));
    if (read.some((byte) => !written.has(byte))) return "written";
    for (const { slice, writes } of accesses)
      for (const byte of writes ? bytesOf(slice) : []) written.add(byte);
  }
  return "none";
}

test("it says of any step what the rules say of every two calls, every two buffers and every byte", () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(randomStep, (step) => {
      const rule = findBrokenRule(step);
      seen.add(rule);
      assert.equal(ruleBrokenBy(step), rule);
    }),
    { numRuns: 1000 },
  );
  assert.deepEqual([...seen].sort(), ["lifetimes", "none", "order", "pdl", "streams", "written"]);
});

test("what passes computes what the program says, in whatever order its branches happen to run", () => {
  const count = { passed: 0, rejected: 0, wrong: 0 };
  fc.assert(
    fc.property(randomStep, fc.array(fc.nat(), { minLength: 28, maxLength: 28 }), (step, choices) => {
      let made = 0;
      const choose = (ready: number): number => choices[made++]! % ready;
      const isRight = agree(runPlanned(step, choose), runProgram(step));
      const isPassed = ruleBrokenBy(step) === "none";
      count[isPassed ? "passed" : "rejected"]++;
      if (!isRight) count.wrong++;
      assert.ok(isRight || !isPassed, "it passed, and computes something else");
    }),
    { numRuns: 1000 },
  );
  // The property says nothing unless both kinds were drawn, and some that do harm.
  assert.ok(Math.min(count.passed, count.rejected, count.wrong) > 50, JSON.stringify(count));
});

test("among twenty thousand calls on eight branches one forgotten wait is found", () => {
  const sketch = new Sketch();
  const total = 20_000;
  const streams = 8;
  const weights = sketch.persistent("weights", 0x10000, 256);
  let previous = sketch.step("first", 256);
  sketch.fill("fill", previous);
  const offsets = new Map([[previous, 0]]);
  for (let index = 1; index < total; index++) {
    const next = sketch.step("next", 256);
    offsets.set(next, (index % 3) * 256);
    sketch.launch("layer", { reads: [weights, previous], writes: [next] });
    previous = next;
  }
  // A chain that changes its branch with every call: each waits for the one before it, and the last is on the main one.
  const calls = sketch.program.map((call, place) => ({
    call,
    stream: (total - 1 - place) % streams,
    after: place === 0 ? [] : [place - 1],
  }));
  const plan = { bytes: 768, offsets };
  verifyPlan(sketch.program, { calls }, plan);
  calls[13_000] = { ...calls[13_000]!, after: [] };
  const error = rejectionOf(() => verifyPlan(sketch.program, { calls }, plan));
  assert.deepEqual(error?.numbers, { rule: "order", firstPlace: 12_999, secondPlace: 13_000 });
});
