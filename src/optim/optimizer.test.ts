/** Optimizers: frozen and absent gradients, settings in memory, replays, and what they reject. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { CallLog } from "../../test/support/call-log.js";
import { openDevice } from "../../test/support/devices.js";
import { ParameterModule, placeParameters, setGradient } from "../../test/support/parameter-module.js";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { openTestDriver } from "../../test/support/test-device.js";
import { noGrad } from "../autograd/index.js";
import { strict } from "../driver/index.js";
import type { PersistentStorage } from "../runtime/index.js";
import { type Tensor, tensor } from "../tensor/index.js";
import * as optim from "./index.js";

const driver = openTestDriver({ threads: 2 });
const log = new CallLog();
const cpu = openDevice({ driver: log.wrap(strict(driver)), poison: true });
after(() => driver.close());

const shapes = [[3, 5], [7], [1], [2, 130]];
const numbers = (seed: number, length: number): number[] =>
  Array.from({ length }, (_, index) => Math.sin(seed * 37.1 + index * 1.7));
const firstValues = shapes.map((shape, index) =>
  numbers(
    index,
    shape.reduce((a, b) => a * b, 1),
  ),
);

test("half floats have moments in f32, side by side like the parameters", () => {
  const parameters = placeParameters(cpu, "bf16", shapes, firstValues);
  const state = new optim.AdamW(parameters).stateDict();
  assert.deepEqual([state["3.firstMoment"]!.dtype, state["3.firstMoment"]!.shape], ["f32", [2, 130]]);
});

test("frozen parameters and those without a gradient stay as they are", () => {
  const parameters = placeParameters(cpu, "f32", shapes, firstValues);
  const optimizer = new optim.AdamW(parameters, { lr: 0.1 });
  for (const [index, parameter] of parameters.entries()) {
    if (index !== 2) setGradient(cpu, parameter, numbers(index, parameter.numel));
  }
  parameters[0]!.requiresGrad = false;
  const before = parameters.map((one) => one.dataSync());
  optimizer.step();
  sameBytes(parameters[0]!.dataSync(), before[0]!, "the frozen one");
  sameBytes(parameters[2]!.dataSync(), before[2]!, "the one without a gradient");
  assert.notDeepEqual(parameters[1]!.dataSync(), before[1]);
  assert.notDeepEqual(parameters[3]!.dataSync(), before[3]);
  optimizer.zeroGrad();
  assert.ok(parameters.every((one) => one.grad === null));
});

test("a leaf that does not lie row by row is trained where it lies", () => {
  const plain = tensor([1, 2, 3, 4, 5, 6], { device: cpu }).reshape([2, 3]);
  const leaf = plain.permute([1, 0]).detach();
  leaf.requiresGrad = true;
  setGradient(cpu, leaf, [1, 2, 3, 4, 5, 6]);
  new optim.SGD([leaf], { lr: 1, momentum: 0.5 }).step();
  assert.deepEqual(leaf.tolist(), [
    [0, 2],
    [-1, 1],
    [-2, 0],
  ]);
});

test("a step is a write that backward knows of", () => {
  const w = tensor([1, 2], { requiresGrad: true, device: cpu });
  setGradient(cpu, w, [1, 1]);
  const loss = w.mul(w).sum();
  new optim.SGD([w], { lr: 0.1 }).step();
  rejects("SAVED_CHANGED", () => loss.backward());
});

test("setting a learning rate writes eight bytes, and only where it has changed", () => {
  const optimizer = new optim.SGD(placeParameters(cpu, "f32", shapes, firstValues), { lr: 0.5 });
  const start = log.calls.length;
  optimizer.lr = 0.5;
  assert.deepEqual(log.namesFrom(start), []);
  optimizer.lr = 0.25;
  const copies = log.calls.slice(start).filter(({ call }) => call === "copyToDevice");
  assert.equal(copies.length, 1);
  assert.equal((copies[0]!.args[1] as { size: number }).size, 8);
});

test("a state that does not fit is rejected, and nothing is written", () => {
  const parameters = placeParameters(cpu, "f32", shapes, firstValues);
  const optimizer = new optim.AdamW(parameters, { lr: 0.1 });
  const { "0.step": step, ...rest } = new optim.AdamW(placeParameters(cpu, "f32", shapes, firstValues), {
    lr: 9,
  }).stateDict();
  rejects("BAD_STATE", () => optimizer.loadStateDict(rest), /missing in the state: 0\.step/);
  rejects(
    "BAD_STATE",
    () => optimizer.loadStateDict({ ...rest, "0.step": step!, x: step! }),
    /not in the optimizer: x/,
  );
  const misshapen = { ...rest, "0.step": rest["1.firstMoment"]! };
  rejects(
    "BAD_STATE",
    () => optimizer.loadStateDict(misshapen),
    /0\.step is \[7\] in the state and \[\] here/,
  );
  assert.equal(optimizer.lr, 0.1);
});

test("what can't be trained is rejected by name", () => {
  const w = tensor([1], { requiresGrad: true, device: cpu });
  const whole = tensor([1], { dtype: "i32", device: cpu });
  rejects("BAD_ARGUMENT", () => new optim.SGD([], { lr: 1 }), /no parameters/);
  rejects("BAD_ARGUMENT", () => new optim.SGD([w, w], { lr: 1 }), /is a duplicate/);
  rejects("BAD_ARGUMENT", () => new optim.SGD([w.mul(2)], { lr: 1 }), /the result of an op/);
  rejects("BAD_DTYPE", () => new optim.SGD([whole], { lr: 1 }), /only float tensors/);
  rejects("BAD_ARGUMENT", () => new optim.SGD([w], { lr: -1 }), /lr is -1/);
  rejects(
    "BAD_ARGUMENT",
    () => new optim.SGD([w], { lr: 1, nesterov: true }),
    /nesterov needs momentum above 0/,
  );
  rejects("BAD_ARGUMENT", () => new optim.Adam([w], { betas: [0.9, 1] }), /beta is 1/);
  rejects("BAD_ARGUMENT", () => new optim.Adam([w], { eps: 0 }), /eps is 0/);
});

test("a parameter that was moved after the optimizer was made is rejected, and none is changed", () => {
  const model = new ParameterModule(shapes, firstValues).to(cpu, "f32");
  const optimizer = new optim.SGD(model.list, { lr: 1 });
  model.to(cpu, "f64");
  rejects("BAD_STATE", () => optimizer.step(), /"list.0" has moved since/);
});

test("inside noGrad a step is a step", () => {
  const w = tensor([3], { requiresGrad: true, device: cpu });
  setGradient(cpu, w, [1]);
  noGrad(() => new optim.SGD([w], { lr: 1 }).step());
  assert.deepEqual(w.tolist(), [2]);
});

test("twenty replays of a captured step are twenty steps: they count, and read the learning rate of their time", () => {
  const run = (makeStep: (optimizer: optim.Optimizer) => () => void): Tensor[] => {
    const parameters = placeParameters(cpu, "f32", shapes, firstValues);
    for (const [index, parameter] of parameters.entries()) {
      setGradient(cpu, parameter, numbers(index, parameter.numel));
    }
    const optimizer = new optim.AdamW(parameters, { lr: 0.05 });
    const step = makeStep(optimizer);
    const schedule = new optim.CosineSchedule(optimizer, { tMax: 20 });
    for (let count = 0; count < 20; count++) {
      step();
      schedule.step();
    }
    return parameters;
  };
  const direct = run((optimizer) => () => optimizer.step());
  const replayed = run((optimizer) => {
    const graph = cpu.runtime.capture("update", () => optimizer.step());
    assert.equal(graph.mode, "graph");
    return () => graph.replay();
  });
  for (const [index, parameter] of replayed.entries()) {
    sameBytes(parameter.dataSync(), direct[index]!.dataSync(), `parameter ${index}`);
  }
});

test("whichever parameters have gradients, neighbours in one run train to the same bits as each on its own", () => {
  const pattern = fc.array(fc.boolean(), { minLength: shapes.length, maxLength: shapes.length });
  fc.assert(
    fc.property(fc.array(pattern, { minLength: 1, maxLength: 4 }), (patterns) => {
      const [joined, alone] = [
        placeParameters(cpu, "f32", shapes, firstValues),
        shapes.flatMap((shape, index) => placeParameters(cpu, "f32", [shape], [firstValues[index]!])),
      ];
      const optimizers = [joined, alone].map((parameters) => {
        const optimizer = new optim.Adam(parameters, { lr: 0.1, weightDecay: 0.1 });
        for (const [step, present] of patterns.entries()) {
          optimizer.zeroGrad();
          for (const [index, parameter] of parameters.entries()) {
            if (present[index]) setGradient(cpu, parameter, numbers(step * 9 + index, parameter.numel));
          }
          optimizer.step();
        }
        return optimizer;
      });
      for (const [index, parameter] of joined.entries()) {
        sameBytes(parameter.dataSync(), alone[index]!.dataSync(), `parameter ${index}`);
      }
      const { home } = joined[0]!.array.storage! as PersistentStorage;
      const padding = new Float32Array(cpu.runtime.read(home.whole).buffer).subarray(15, 64);
      assert.ok(
        padding.every((value) => value === 0),
        "padding stays zero",
      );
      for (const optimizer of optimizers) optimizer.release();
    }),
    { numRuns: 25 },
  );
});

test("a released optimizer gives its memory back and makes no more steps", () => {
  const [w] = placeParameters(cpu, "f32", [[3]], [[1, 2, 3]]);
  const before = cpu.runtime.budget.used;
  const optimizer = new optim.AdamW([w!]);
  setGradient(cpu, w!, [1, 1, 1]);
  optimizer.step();
  optimizer.release();
  assert.equal(cpu.runtime.budget.used, before);
  rejects("DEAD_STORAGE", () => optimizer.step());
});

test("an optimizer that is rejected leaves no memory behind, and release may be repeated", () => {
  const parameters = placeParameters(cpu, "f32", shapes, firstValues);
  const before = cpu.runtime.budget.used;
  rejects("BAD_ARGUMENT", () => new optim.Adam(parameters, { lr: -1 }), /lr is -1/);
  rejects("BAD_ARGUMENT", () => new optim.SGD(parameters, {} as optim.SGDOptions), /SGD: lr is NaN/);
  assert.equal(cpu.runtime.budget.used, before);
  const adam = new optim.Adam(parameters);
  adam.release();
  adam.release();
  assert.equal(cpu.runtime.budget.used, before);
});
