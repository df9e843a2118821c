/**
 * Launches that begin while the one before them ends, on an emulated GPU that shows them memory as it was before that one until they
 * wait: a step has the eager step's bits all the same, and marks that the verifier rejects, used all the same, give other ones.
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

/** So many steps of a regression, each followed by `look`; what its weights are behind them. */
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
  for (let turn = 0; turn < steps; turn++) {
    step(x);
    look(step);
  }
  return model.parameters().map((one) => one.dataSync() as Float32Array);
}

describe("a step whose launches begin early", { skip: emulatorMissing }, () => {
  const device = emulatorMissing ? undefined! : openEmulatorGpu({ capture: "auto" });
  const training: TracedTraining = emulatorMissing ? undefined! : traceTraining(device);
  const { straight } = training ?? {};

  const isRight = (outcome: RunOutcome): boolean =>
    !("rejection" in outcome) &&
    outcome.gradients.every((bytes, index) => Buffer.compare(bytes, training.eager[index]!) === 0);

  test("has the eager gradients to the bit, and nearly all of its launches may begin early", () => {
    const { calls } = straight.schedule;
    const marked = calls.filter(({ prefetches: early }) => early).length;
    assert.ok(marked > 0.8 * calls.length, `${marked} of ${calls.length}`);
    assert.ok(calls.some(({ prefetches: early = [] }) => early.length > 0));
    assert.equal(rejectionBy(straight), undefined);
    const before = pdlLaunches();
    for (const outcome of training.run(straight)) assert.ok(isRight(outcome));
    assert.ok(pdlLaunches() - before >= marked / 2, `${pdlLaunches() - before} of ${marked}`);
  });

  test("is tried with launches in turn as well, on each schedule, and has the eager weights whichever is kept", () => {
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

  test("red proof: fetches that the verifier rejects give other gradients, and those that it lets pass don't", () => {
    const counts = { passed: 0, rejected: 0, wrong: 0 };
    for (const place of straight.schedule.calls.keys()) {
      if (!straight.schedule.calls[place]!.prefetches) continue;
      const step = splitAt(straight, place, () => true);
      const rejection = rejectionBy(step);
      const isHarmless = training.run(step).every(isRight);
      counts[rejection ? "rejected" : "passed"]++;
      if (!isHarmless) counts.wrong++;
      if (rejection) assert.equal(rejection.numbers["rule"], "pdl", rejection.message);
      else assert.ok(isHarmless, `call ${place} passed, and gives other gradients`);
    }
    // A kernel that fetches nothing early does no harm, whatever is said of it.
    assert.ok(Math.min(counts.passed, counts.rejected) > 3 && counts.wrong > 0, JSON.stringify(counts));
  });
});
