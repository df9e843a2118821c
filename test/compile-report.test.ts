/** A compiled step's plans as plain data: they agree with the plan, and measuring changes nothing. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import { openDevice } from "./support/devices.js";
import { openTestDriver } from "./support/test-device.js";

const driver = openTestDriver({ threads: 2 });
const device = openDevice({ driver });
after(() => driver.close());

function compileTraining() {
  manualSeed(5);
  const [first, second] = [new nn.Linear(6, 40).to(device), new nn.Linear(40, 3).to(device)];
  const parameters = [...first.parameters(), ...second.parameters()];
  const adam = new optim.AdamW(parameters, { lr: 0.01 });
  const step = device.compile((x: Tensor) => {
    const loss = second.forward(first.forward(x).gelu("tanh")).square().mean();
    loss.backward();
    optim.clipGradNorm(parameters, 1);
    adam.step();
    adam.zeroGrad();
    return { loss };
  });
  return { step, parameters };
}

test("tensors are inside the plan's block, their live bytes at the peak are the lower bound, and saved ones are marked", () => {
  const { step } = compileTraining();
  step(randn([64, 6], { device }));
  const [plan] = step.report();
  assert.ok(plan);
  const { tensors, peak, lowerBound, peakAt } = plan.memory;
  assert.equal(peak, step.memory(randn([64, 6], { device })).peak);
  for (const { offset, bytes } of tensors) assert.ok(offset >= 0 && offset + bytes <= peak);
  const aliveAt = (index: number): number =>
    tensors.reduce((sum, { birth, death, bytes }) => sum + (birth <= index && index <= death ? bytes : 0), 0);
  assert.equal(Math.max(...plan.calls.map((_, index) => aliveAt(index))), lowerBound);
  assert.equal(aliveAt(peakAt), lowerBound);
  const saved = tensors.filter(({ isSaved }) => isSaved);
  assert.ok(saved.some(({ type }) => type === "f32 [64, 40]"));
  assert.ok(tensors.some(({ isSaved }) => !isSaved));
  step.close();
});

test("calls belong to the phases of the step, in order, and the text is explain()'s", () => {
  const { step } = compileTraining();
  step(randn([64, 6], { device }));
  const [plan] = step.report();
  const phases = plan?.calls.map(({ phase }) => phase) ?? [];
  assert.deepEqual([...new Set(phases)], ["forward", "backward", "update"]);
  assert.ok(plan?.calls.findLast(({ phase }) => phase === "update")?.op.includes("AdamW"));
  assert.equal(plan?.text, step.explain());
  assert.deepEqual(plan?.stages.map(({ name }) => name).slice(0, 2), ["trace", "cse"]);
  step.close();
});

test("every call has a measured time, the plan keeps it, and training continues with the same bits", () => {
  const inputs = Array.from({ length: 6 }, () => randn([64, 6], { device }));
  const train = (measures: boolean): number[] => {
    const { step, parameters } = compileTraining();
    for (const [index, x] of inputs.entries()) {
      step(x);
      if (!measures || index !== 2) continue;
      assert.ok(step.report().every(({ calls }) => calls.every(({ us }) => us === undefined)));
      step.report({ times: true });
      const [plan] = step.report();
      assert.ok(plan?.calls.every(({ us }) => us !== undefined && Number.isFinite(us) && us >= 0));
    }
    step.flush();
    assert.equal(step.history["loss"]?.length, inputs.length);
    const values = parameters.flatMap((parameter) => [...parameter.dataSync()].map(Number));
    step.close();
    return values;
  };
  assert.deepEqual(train(true), train(false));
});

test("a plan that has not run is reported without a mode and without times", () => {
  const step = device.compile((x: Tensor) => x.exp().add(1));
  step.memory(randn([3], { device }));
  const [plan] = step.report({ times: true });
  assert.equal(plan?.mode, undefined);
  assert.ok(plan?.calls.every(({ us }) => us === undefined));
  step.close();
});
