/** One training step of a small network as a program with a sound schedule and plan, for tests that break them. */

import {
  accessesOf,
  type Buffer,
  type Call,
  type Plan,
  type RowCall,
  type Schedule,
} from "../../src/compile/program/program.js";
import { iterateElements, type RowKernel, term } from "../../src/ir/index.js";
import { alignUp, span } from "../../src/units/index.js";
import { type ProposedStep, planFirstFit, Sketch, scheduleOn } from "./proposed-steps.js";

/** Forward, loss, backward, clip and update. Backward reads the values that forward saved: h, a and y. */
function writeProgram(): readonly Call[] {
  const sketch = new Sketch();
  const x = sketch.persistent("x", 0x10000, 1024);
  const target = sketch.persistent("target", 0x10400, 512);
  const w1 = sketch.persistent("w1", 0x20000, 1024);
  const w2 = sketch.persistent("w2", 0x20400, 512);
  const g1 = sketch.persistent("g1", 0x30000, 1024);
  const g2 = sketch.persistent("g2", 0x30400, 512);
  const gradients = sketch.persistent("gradients", 0x30000, 1536); // The bytes of g1 and g2 under another name.
  const keptLoss = sketch.persistent("kept loss", 0x40000, 64);
  const keptErrors = sketch.persistent("kept errors", 0x40100, 512);
  const h = sketch.step("h", 1024);
  const a = sketch.step("a", 1024);
  const y = sketch.step("y", 512);
  const e = sketch.step("e", 512);
  const loss = sketch.step("loss", 64);
  const dy = sketch.step("dy", 512);
  const da = sketch.step("da", 1024);
  const dh = sketch.step("dh", 1024);
  const norm = sketch.step("norm", 64);

  sketch.fill("clearGradients", gradients);
  sketch.launch("matmul1", { reads: [x, w1], writes: [h] });
  sketch.launch("gelu", { reads: [h], writes: [a] });
  sketch.launch("matmul2", { reads: [a, w2], writes: [y] });
  sketch.launch("bias", { updates: [y] });
  sketch.launch("squaredError", { reads: [y, target], writes: [e] });
  sketch.launch("mean", { reads: [e], writes: [loss] });
  sketch.copy("keepLoss", loss, keptLoss);
  sketch.launch("clampErrors", { updates: [e] });
  sketch.copy("keepErrors", e, keptErrors);
  sketch.launch("errorBackward", { reads: [y, target], writes: [dy] });
  sketch.launch("weightGradient2", { reads: [a, dy], updates: [g2] });
  sketch.launch("matmulBackward", { reads: [dy, w2], writes: [da] });
  sketch.launch("geluBackward", { reads: [da, h], writes: [dh] });
  sketch.launch("weightGradient1", { reads: [x, dh], updates: [g1] });
  sketch.fill("clearNorm", norm);
  sketch.launch("sumSquares", { reads: [gradients], updates: [norm] });
  sketch.launch("clip", { reads: [norm], updates: [gradients] });
  sketch.launch("update1", { reads: [g1], updates: [w1] });
  sketch.launch("update2", { reads: [g2], updates: [w2] });
  return sketch.program;
}

const streamOfOp: Readonly<Record<string, number>> = {
  mean: 2,
  keepLoss: 2,
  clampErrors: 2,
  keepErrors: 2,
  weightGradient2: 1,
  clearNorm: 1,
};

/** The losses on one stream, a weight's gradient on another, everything else on the main one. */
export function streamedStep(): ProposedStep {
  const program = writeProgram();
  const schedule = scheduleOn(
    program,
    program.map(({ op }) => streamOfOp[op] ?? 0),
  );
  return { program, schedule, plan: planFirstFit(schedule), block: span(0x80000, 0x10000) };
}

/** All calls on the main stream. */
export function straightStep(): ProposedStep {
  const program = writeProgram();
  const schedule = scheduleOn(program, []);
  return { program, schedule, plan: planFirstFit(schedule), block: span(0x80000, 0x10000) };
}

export function indexOf({ schedule: { calls } }: ProposedStep, op: string): number {
  return calls.findIndex(({ call }) => call.op === op);
}

export function offsetOf({ plan }: ProposedStep, label: string): number {
  return plan.offsets.get(bufferOf(plan, label))!;
}

export function bufferOf({ offsets }: Plan, label: string): Buffer {
  return [...offsets.keys()].find((buffer) => buffer.label === label)!;
}

/** Gives buffers other offsets, and the plan its new size. */
export function moveBuffers(step: ProposedStep, moved: Readonly<Record<string, number>>): ProposedStep {
  const offsets = new Map(
    [...step.plan.offsets].map(([buffer, offset]) => [buffer, moved[buffer.label] ?? offset]),
  );
  const ends = [...offsets].map(([{ bytes }, offset]) => offset + bytes);
  return { ...step, plan: { offsets, bytes: alignUp(Math.max(...ends), 256) } };
}

/** Moves a call of a schedule without side streams before another. */
export function moveCall(step: ProposedStep, op: string, before: string): ProposedStep {
  const calls = [...step.schedule.calls];
  const [moved] = calls.splice(indexOf(step, op), 1);
  calls.splice(
    calls.findIndex(({ call }) => call.op === before),
    0,
    moved!,
  );
  return { ...step, schedule: { calls } };
}

/** Gives one call of the schedule other waits. */
export function changeWaits(
  step: ProposedStep,
  op: string,
  change: (after: readonly number[], index: number) => readonly number[],
): ProposedStep {
  const calls = step.schedule.calls.map((scheduled, index) =>
    scheduled.call.op === op ? { ...scheduled, after: change(scheduled.after, index) } : scheduled,
  );
  return { ...step, schedule: { calls } };
}

/** Replaces calls in the program and in the schedule alike, or removes them; waits are kept for the others. */
export function rewrite(step: ProposedStep, change: (call: Call) => Call | undefined): ProposedStep {
  const changed = new Map(step.program.map((call) => [call, change(call)]));
  const program = [...changed.values()].filter((call) => call !== undefined);
  const streams = new Map(step.schedule.calls.map(({ call, stream }) => [changed.get(call), stream]));
  const schedule: Schedule = scheduleOn(
    program,
    program.map((call) => streams.get(call) ?? 0),
  );
  return { ...step, program, schedule };
}

/** The same with two calls as row kernels of one launch, at the position of the first. */
export function sideBySideCalls(step: ProposedStep, first: string, second: string): ProposedStep {
  const rows = [first, second].map((op) => rowsOf(step.program.find((call) => call.op === op)!));
  const changed = rewrite(step, (call) => {
    if (call.op === second) return undefined;
    return call.op === first ? { op: `${first} + ${second}`, work: { kind: "combo", rows } } : call;
  });
  return { ...changed, plan: planFirstFit(changed.schedule) };
}

/** A row kernel with the accesses of a call. */
function rowsOf(call: Call): RowCall {
  const accesses = accessesOf(call);
  const [read, written] = [
    accesses.filter(({ reads }) => reads).map(({ slice }) => slice),
    accesses.filter(({ writes }) => writes).map(({ slice }) => slice),
  ];
  const kernel: RowKernel = {
    ...{ name: call.op, inputs: read.map(() => "f32" as const), scalars: [] },
    outputs: written.map(() => ({ dtype: "f32", per: "element" })),
    stages: written.map((_, output) => ({ kind: "store", output, value: term.load(0, "f32") })),
  };
  const operands = [...read, ...written];
  const iteration = iterateElements(
    [16],
    operands.map(() => [1]),
  );
  return { kind: "row", kernel, iteration, operands, scalars: [] };
}
