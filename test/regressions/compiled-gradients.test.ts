/**
 * C1 for compiled steps: they have a plan where eager code has pins. A plan that frees memory which backward
 * still needs gives wrong gradients under a correct loss. No reset and no other allocation may overwrite a
 * plan's memory.
 */

import assert from "node:assert/strict";
import { Device, manualSeed } from "holdfast";
import { Guards } from "../../src/autograd/index.js";
import { planStep, traceStep } from "../../src/compile/index.js";
import { planMemory } from "../../src/compile/memory/plan.js";
import { lifetimesOf } from "../../src/compile/schedule/liveness.js";
import {
  type Batch,
  gradientsOf,
  keepBatch,
  nativeGemms,
  prepareTraining,
  type StepBody,
} from "../support/compiled-training.js";
import { openStrictDevice } from "../support/devices.js";
import { regressionRow } from "../support/regressions.js";
import { sameNamedBytes } from "../support/same-bytes.js";
import { openTestCpu, testEnvironment } from "../support/test-device.js";
import { UnverifiedStep } from "../support/unverified-step.js";

/** How a step is run on each of four batches; the returned function runs it on one. */
type Candidate = (device: Device, step: StepBody, first: Batch) => (batch: Batch) => number;

const eagerly: Candidate = (device, step) => (batch) => device.step(() => step(...batch).loss.item());

/** Before each batch the arena is reset, and other allocations take the freed memory. */
const compiled: Candidate = (device, step) => {
  const run = device.compile(step, nativeGemms);
  return (batch) => {
    resetAndReuse(device);
    return run(...batch).loss.item();
  };
};

/** The old fault, as a plan would have it: no activation is kept for backward, and no verifier runs. */
const withoutSaving: Candidate = (device, step, first) => {
  const { runtime } = device;
  const guards = new Guards();
  const trace = traceStep(runtime, () =>
    device.inTracedStep(() => guards.watch(device, () => void step(...first))),
  );
  guards.undo();
  const { schedule } = planStep(runtime, trace, nativeGemms.passes);
  const backward = schedule.calls.findIndex(({ call }) => /Gradient/.test(call.op));
  const lifetimes = lifetimesOf(schedule).map((lifetime) =>
    lifetime.first < backward && lifetime.last > backward ? { ...lifetime, last: backward } : lifetime,
  );
  const unverified = new UnverifiedStep(runtime, { schedule, plan: planMemory(lifetimes) });
  const replayable = runtime.capture("step", unverified.run);
  return (batch) => {
    resetAndReuse(device);
    for (const [index, { array }] of batch.entries()) {
      const target = first[index]?.array;
      if (array.storage && target?.storage && target !== array) runtime.copy(target.storage, array.storage);
    }
    replayable.replay();
    guards.leave();
    return Number.NaN;
  };
};

function resetAndReuse({ runtime }: Device): void {
  runtime.arena.reset();
  for (let index = 0; index < 16; index++) runtime.fill(runtime.arena.allocate(2048, "stranger"), 0xff);
}

interface Run {
  readonly gradients: Record<string, Uint8Array>;
  readonly losses: readonly number[];
}

/** The gradients of four batches, and their losses. */
function train(device: Device, candidate: Candidate): Run {
  const { model, backward } = prepareTraining(device);
  const [first, ...batches] = [0, 1, 2, 3, 4].map((seed) => keepBatch(device, seed));
  manualSeed(9);
  const run = candidate(device, backward, first!);
  const gradients: Record<string, Uint8Array> = {};
  const losses = batches.map((batch, number) => {
    const loss = run(batch);
    for (const [name, bytes] of Object.entries(gradientsOf(model)))
      gradients[`batch ${number}, ${name}`] = bytes;
    return loss;
  });
  return { gradients, losses };
}

interface Expected {
  readonly eager: Run;
  readonly onCpu: Run;
}

let expected: Expected | undefined;

/** The runs of eager code, on the device and on the CPU. */
function trainEagerly(): Expected {
  expected ??= { eager: train(openStrictDevice(), eagerly), onCpu: trainOnCpu() };
  return expected;
}

function trainOnCpu(): Run {
  const driver = openTestCpu();
  const cpu = new Device("cpu", { driver, stallAfter: "off", environment: testEnvironment, print: () => {} });
  const run = train(cpu, eagerly);
  cpu.close();
  driver.close();
  return run;
}

/** Compares a mode's results on a device with eager code there, and on the CPU. */
function checkOn(device: Device, candidate: Candidate): void {
  const { gradients, losses } = train(device, candidate);
  const { eager, onCpu } = trainEagerly();
  sameNamedBytes(gradients, eager.gradients, "the gradients");
  assert.deepEqual(losses, eager.losses);
  for (const [name, expected] of Object.entries(onCpu.gradients)) {
    const [actual, cpu] = [gradients[name]!, expected].map((bytes) => new Float32Array(bytes.buffer));
    for (const [index, value] of cpu!.entries()) {
      const error = Math.abs(actual![index]! - value);
      assert.ok(error <= 1e-5 * Math.max(1, Math.abs(value)), `${name}[${index}]: off by ${error}`);
    }
  }
}

regressionRow<Candidate>({
  row: "C1",
  rule: "four batches of a compiled step with a reset before each, poison on, captured or not: every gradient is eager code's, bit for bit, and the CPU's to 1e-5",
  sound: compiled,
  faults: { "a plan frees memory that backward needs": withoutSaving },
  check(candidate) {
    for (const capture of ["on", "off", "auto"] as const) checkOn(openStrictDevice({ capture }), candidate);
  },
});
