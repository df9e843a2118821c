/**
 * The verifier on random programs, schedules and plans: it accepts valid ones, agrees with the rules applied call by call and byte
 * by byte, and accepts only steps that compute the result of the program. Injected faults: test/compile-faults.test.ts.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { effort } from "../../../test/support/effort.js";
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
  /** The step buffers, then three persistent ones that overlap each other. */
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

/** If `isCareful`, the first access of a step buffer writes all of it. */
function programOf(drawn: readonly (readonly RandomAccess[])[], isCareful: boolean): readonly Call[] {
  const sketch = new Sketch();
  const buffers: readonly Buffer[] = [
    ...Array.from({ length: stepBuffers }, (_, index) => sketch.step(`step ${index}`, granuleBytes * pieces)),
    ...[0x1000, 0x1200, 0x1100].map((address) => sketch.persistent("kept", address, granuleBytes * pieces)),
  ];
  const written = new Set(buffers.filter(({ storage }) => storage !== undefined));
  for (const [index, accesses] of drawn.entries()) {
    const operands: Record<RandomAccess["how"], BufferSlice[]> = { reads: [], writes: [], updates: [] };
    for (const { how, buffer: number, first, count } of accesses) {
      const buffer = buffers[number]!;
      const size = Math.min(count, pieces - first) * granuleBytes;
      if (!isCareful || written.has(buffer)) operands[how].push(sliceOf(buffer, first * granuleBytes, size));
      else operands.writes.push(sliceOf(buffer, 0, buffer.bytes));
    }
    const call = sketch.launch(`op ${index}`, operands);
    for (const { slice } of accessesOf(call)) written.add(slice.buffer);
  }
  return sketch.program;
}

function ruleBrokenBy(step: ProposedStep): unknown {
  const error = rejectionBy(step);
  return error === undefined ? "none" : error.numbers["rule"];
}

test("a schedule with a wait for every dependency is accepted, with separate or shared memory", () => {
  fc.assert(
    fc.property(randomCalls, randomStreams, (calls, streams) => {
      const program = programOf(calls, true);
      const schedule = scheduleOn(program, streams);
      verifyPlan(program, schedule, planDisjoint(schedule));
      verifyPlan(program, schedule, planFirstFit(schedule));
    }),
    { numRuns: effort({ quick: 100, thorough: 300 }) },
  );
});

const drawnFaults = fc.record({
  isCareful: fc.boolean(),
  exchanged: fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 1 }),
  lostWaits: fc.array(fc.nat(), { maxLength: 2 }),
  moved: fc.array(fc.tuple(fc.nat(), fc.nat({ max: 5 })), { maxLength: 1 }),
  /** By call: no PDL; PDL with valid prefetches only; or PDL that prefetches every operand. */
  early: fc.array(fc.constantFrom("none", "none", "good", "good", "good", "all"), {
    minLength: 14,
    maxLength: 14,
  }),
});

/** A step in which calls may be exchanged, waits may be missing and buffers may have other offsets. */
const randomStep: fc.Arbitrary<ProposedStep> = fc
  .tuple(randomCalls, randomStreams, drawnFaults)
  .map(([calls, streams, { isCareful, exchanged, lostWaits, moved, early }]) => {
    const program = programOf(calls, isCareful);
    const reordered = [...program];
    for (const [a, b] of program.length === 0 ? [] : exchanged) {
      const [first, second] = [a % program.length, b % program.length];
      [reordered[first], reordered[second]] = [reordered[second]!, reordered[first]!];
    }
    const whole = scheduleOn(reordered, streams);
    const plan = planFirstFit(whole);
    const waits = whole.calls.flatMap(({ after }, position) => after.map((waited) => ({ position, waited })));
    const lost = lostWaits.map((pick) => waits[pick % Math.max(waits.length, 1)]);
    const scheduled = whole.calls.map((entry, position) => ({
      ...entry,
      after: entry.after.filter(
        (waited) => !lost.some((wait) => wait?.position === position && wait.waited === waited),
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
    const marked = scheduled.map((entry, position) => {
      const how = early[position]!;
      const before = callBefore(step, position);
      if (how === "none" || (how === "good" && (!before || entry.after.length > 0))) return entry;
      const read = accessesOf(entry.call).flatMap(({ slice, reads }) => (reads ? [slice] : []));
      return { ...entry, prefetches: read.filter((slice) => how === "all" || !isWrittenBy(before!, slice)) };
    });
    return { ...step, schedule: { calls: marked } };
  });

/** The predecessor of a call on its stream. */
function callBefore({ schedule: { calls } }: ProposedStep, position: number): Call | undefined {
  return calls.findLast(({ stream }, index) => index < position && stream === calls[position]!.stream)?.call;
}

/** True if a call writes any byte of a slice. The rule `lifetimes` checks buffers that share memory. */
function isWrittenBy(call: Call, slice: BufferSlice): boolean {
  return accessesOf(call).some(({ slice: other, writes }) => writes && share(slice, other));
}

/** The rules for several calls, applied to every pair of calls and of buffers. */
function findBrokenRule({ program, schedule, plan }: ProposedStep): string {
  const isBefore = reachability(schedule);
  const positionOf = (call: Call): number => schedule.calls.findIndex((entry) => entry.call === call);
  const usesOf = (buffer: Buffer): number[] =>
    [...schedule.calls.keys()].filter((position) =>
      accessesOf(schedule.calls[position]!.call).some(({ slice }) => slice.buffer === buffer),
    );
  const isOver = (a: Buffer, b: Buffer): boolean =>
    usesOf(a).every((first) => usesOf(b).every((second) => isBefore(first, second)));

  const end = schedule.calls.findLastIndex(({ stream }) => stream === 0);
  const isJoined = schedule.calls.every(({ stream }, position) => stream === 0 || isBefore(position, end));
  if (!isJoined) return "streams";

  const isOrdered = program.every((later, index) =>
    program
      .slice(0, index)
      .every((earlier) => !haveConflict(earlier, later) || isBefore(positionOf(earlier), positionOf(later))),
  );
  if (!isOrdered) return "order";

  const isPdlValid = schedule.calls.every(({ after, prefetches: early }, position) => {
    const before = callBefore({ program, schedule, plan }, position);
    if (!early) return true;
    return before && after.length === 0 && early.every((slice) => !isWrittenBy(before, slice));
  });
  if (!isPdlValid) return "pdl";

  const offsets = [...plan.offsets];
  const isDisjoint = offsets.every(([a, start], index) =>
    offsets.slice(0, index).every(([b, other]) => {
      const share = start < other + b.bytes && other < start + a.bytes;
      return !share || isOver(a, b) || isOver(b, a);
    }),
  );
  if (!isDisjoint) return "lifetimes";

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

test("it agrees with the rules applied to every two calls, every two buffers and every byte", () => {
  const seen = new Set<string>();
  fc.assert(
    fc.property(randomStep, (step) => {
      const rule = findBrokenRule(step);
      seen.add(rule);
      assert.equal(ruleBrokenBy(step), rule);
    }),
    { numRuns: effort({ quick: 300, thorough: 1000 }) },
  );
  assert.deepEqual([...seen].sort(), ["lifetimes", "none", "order", "pdl", "streams", "written"]);
});

test("an accepted step computes the result of the program in any order of its streams", () => {
  const count = { passed: 0, rejected: 0, wrong: 0 };
  const numRuns = effort({ quick: 300, thorough: 1000 });
  fc.assert(
    fc.property(randomStep, fc.array(fc.nat(), { minLength: 28, maxLength: 28 }), (step, choices) => {
      let used = 0;
      const choose = (ready: number): number => choices[used++]! % ready;
      const isRight = agree(runPlanned(step, choose), runProgram(step));
      const isPassed = ruleBrokenBy(step) === "none";
      count[isPassed ? "passed" : "rejected"]++;
      if (!isRight) count.wrong++;
      assert.ok(isRight || !isPassed, "an accepted step computes another result");
    }),
    { numRuns },
  );
  // The property is only meaningful if accepted, rejected and wrong steps occur.
  assert.ok(Math.min(count.passed, count.rejected, count.wrong) > numRuns / 20, JSON.stringify(count));
});

const total = effort({ quick: 1600, thorough: 20_000 });

test(`one missing wait among ${total} calls on eight streams is found`, () => {
  const sketch = new Sketch();
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
  // A chain that changes its stream with every call: each call waits for its predecessor, and the last is on the main stream.
  const calls = sketch.program.map((call, position) => ({
    call,
    stream: (total - 1 - position) % streams,
    after: position === 0 ? [] : [position - 1],
  }));
  const plan = { bytes: 768, offsets };
  verifyPlan(sketch.program, { calls }, plan);
  const late = Math.floor(0.65 * total);
  calls[late] = { ...calls[late]!, after: [] };
  const error = rejectionOf(() => verifyPlan(sketch.program, { calls }, plan));
  assert.deepEqual(error?.numbers, { rule: "order", firstPosition: late - 1, secondPosition: late });
});
