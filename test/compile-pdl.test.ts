/**
 * Programmatic dependent launch on the emulator, which shows a launch the memory from before its predecessor
 * until it waits. A step still has the eager step's bits, and marks that the verifier rejects give other
 * bits.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import type { TuningResult } from "../src/tensor/compiled/autotune-schedule.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { splitAt } from "./support/injected-plans.js";
import { rejectionBy } from "./support/proposed-steps.js";
import { sameBytes } from "./support/same-bytes.js";
import { type RunOutcome, type TracedTraining, traceTraining } from "./support/traced-training.js";

const pdlLaunches = (): number => openEmulator().calls("cuLaunchKernelEx");

/** Some steps of a regression, each followed by `look`; the weights after them. */
function train(
  device: Device,
  steps: number,
  isCompiled: boolean,
  look: (step: object) => void,
): Float32Array[] {
  manualSeed(5);
  const model = new nn.Sequential(new nn.Linear(12, 24), new nn.GELU(), new nn.Linear(24, 6)).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.01 });
  const body = (x: Tensor): void => {
    model.forward(x).square().mean().backward();
    optimizer.step();
    optimizer.zeroGrad();
  };
  const step = isCompiled ? device.compile(body) : body;
  const x = randn([40, 12], { device });
  device.keep(x);
  for (let round = 0; round < steps; round++) {
    step(x);
    look(step);
  }
  return model.parameters().map((parameter) => parameter.dataSync() as Float32Array);
}

describe("a step with programmatic dependent launches", { skip: emulatorMissing }, () => {
  const device = emulatorMissing ? undefined! : openEmulatorGpu({ capture: "auto" });
  const training: TracedTraining = emulatorMissing ? undefined! : traceTraining(device);
  const { straight } = training ?? {};

  const isRight = (outcome: RunOutcome): boolean =>
    !("rejection" in outcome) &&
    outcome.gradients.every((bytes, index) => Buffer.compare(bytes, training.eager[index]!) === 0);

  test("has the eager gradients to the bit, and nearly all of its launches use PDL", () => {
    const { calls } = straight.schedule;
    const marked = calls.filter(({ prefetches }) => prefetches).length;
    assert.ok(marked > 0.8 * calls.length, `${marked} of ${calls.length}`);
    assert.ok(calls.some(({ prefetches = [] }) => prefetches.length > 0));
    assert.equal(rejectionBy(straight), undefined);
    const before = pdlLaunches();
    for (const outcome of training.run(straight)) assert.ok(isRight(outcome));
    assert.ok(pdlLaunches() - before >= marked / 2, `${pdlLaunches() - before} of ${marked}`);
  });

  test("is also tried without PDL, on each schedule, and has the eager weights with each candidate", () => {
    let tuning: TuningResult | undefined;
    const weights = train(device, 40, true, (step) => {
      tuning = latestPlanOf(step)?.running?.tuning;
    });
    assert.deepEqual(Object.keys(tuning?.times ?? {}), [
      ...["graph", "graph without PDL", "graph with streams", "graph with streams without PDL"],
      ...["graph with low-priority streams", "graph with low-priority streams without PDL", "direct"],
    ]);
    const eager = train(device, 40, false, () => undefined);
    for (const [index, values] of eager.entries()) sameBytes(weights[index]!, values, `parameter ${index}`);
  });

  test("red proof: prefetches that the verifier rejects give other gradients, and those that it accepts do not", () => {
    const counts = { passed: 0, rejected: 0, wrong: 0 };
    for (const index of straight.schedule.calls.keys()) {
      if (!straight.schedule.calls[index]!.prefetches) continue;
      const step = splitAt(straight, index, () => true);
      const rejection = rejectionBy(step);
      const isHarmless = training.run(step).every(isRight);
      counts[rejection ? "rejected" : "passed"]++;
      if (!isHarmless) counts.wrong++;
      if (rejection) assert.equal(rejection.numbers["rule"], "pdl", rejection.message);
      else assert.ok(isHarmless, `call ${index} passed, and gives other gradients`);
    }
    // A kernel that prefetches nothing is safe with any mark.
    assert.ok(Math.min(counts.passed, counts.rejected) >= 3 && counts.wrong > 0, JSON.stringify(counts));
  });
});
