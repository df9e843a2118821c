/** Optimizers: frozen and absent gradients, settings in memory, replays, and errors. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { CallLog } from "../../test/support/call-log.js";
import { openDevice } from "../../test/support/devices.js";
import { effort } from "../../test/support/effort.js";
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
const initialValues = shapes.map((shape, index) =>
  numbers(
    index,
    shape.reduce((a, b) => a * b, 1),
  ),
);

test("half floats have moments of f32 with the parameters' shapes", () => {
  const parameters = placeParameters(cpu, "bf16", shapes, initialValues);
  const state = new optim.AdamW(parameters).stateDict();
  assert.deepEqual([state["3.firstMoment"]!.dtype, state["3.firstMoment"]!.shape], ["f32", [2, 130]]);
});

test("frozen parameters and parameters without a gradient are not changed", () => {
  const parameters = placeParameters(cpu, "f32", shapes, initialValues);
  const optimizer = new optim.AdamW(parameters, { lr: 0.1 });
  for (const [index, parameter] of parameters.entries()) {
    if (index !== 2) setGradient(cpu, parameter, numbers(index, parameter.numel));
  }
  parameters[0]!.requiresGrad = false;
  const before = parameters.map((parameter) => parameter.dataSync());
  optimizer.step();
  sameBytes(parameters[0]!.dataSync(), before[0]!, "the frozen parameter");
  sameBytes(parameters[2]!.dataSync(), before[2]!, "the parameter without a gradient");
  assert.notDeepEqual(parameters[1]!.dataSync(), before[1]);
  assert.notDeepEqual(parameters[3]!.dataSync(), before[3]);
  optimizer.zeroGrad();
  assert.ok(parameters.every(({ grad }) => grad === null));
});

test("a leaf that is not contiguous is trained in place", () => {
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

test("backward detects that a step has changed a saved tensor", () => {
  const w = tensor([1, 2], { requiresGrad: true, device: cpu });
  setGradient(cpu, w, [1, 1]);
  const loss = w.mul(w).sum();
  new optim.SGD([w], { lr: 0.1 }).step();
  rejects("SAVED_CHANGED", () => loss.backward());
});

test("setting a learning rate writes eight bytes, and only if it has changed", () => {
  const optimizer = new optim.SGD(placeParameters(cpu, "f32", shapes, initialValues), { lr: 0.5 });
  const start = log.calls.length;
  optimizer.lr = 0.5;
  assert.deepEqual(log.namesFrom(start), []);
  optimizer.lr = 0.25;
  const copies = log.calls.slice(start).filter(({ call }) => call === "copyToDevice");
  assert.equal(copies.length, 1);
  assert.equal((copies[0]!.args[1] as { size: number }).size, 8);
});

test("a state that does not fit is rejected, and nothing is written", () => {
  const parameters = placeParameters(cpu, "f32", shapes, initialValues);
  const optimizer = new optim.AdamW(parameters, { lr: 0.1 });
  const { "0.step": step, ...rest } = new optim.AdamW(placeParameters(cpu, "f32", shapes, initialValues), {
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

test("tensors that can't be trained and invalid options are rejected", () => {
  const w = tensor([1], { requiresGrad: true, device: cpu });
  const integers = tensor([1], { dtype: "i32", device: cpu });
  rejects("BAD_ARGUMENT", () => new optim.SGD([], { lr: 1 }), /no parameters/);
  rejects("BAD_ARGUMENT", () => new optim.SGD([w, w], { lr: 1 }), /is a duplicate/);
  rejects("BAD_ARGUMENT", () => new optim.SGD([w.mul(2)], { lr: 1 }), /the result of an op/);
  rejects("BAD_DTYPE", () => new optim.SGD([integers], { lr: 1 }), /only float tensors/);
  rejects("BAD_ARGUMENT", () => new optim.SGD([w], { lr: -1 }), /lr is -1/);
  rejects(
    "BAD_ARGUMENT",
    () => new optim.SGD([w], { lr: 1, nesterov: true }),
    /nesterov needs momentum above 0/,
  );
  rejects("BAD_ARGUMENT", () => new optim.Adam([w], { betas: [0.9, 1] }), /beta is 1/);
  rejects("BAD_ARGUMENT", () => new optim.Adam([w], { eps: 0 }), /eps is 0/);
});

test("a step rejects a parameter that has moved since the optimizer was created", () => {
  const model = new ParameterModule(shapes, initialValues).to(cpu, "f32");
  const optimizer = new optim.SGD(model.list, { lr: 1 });
  model.to(cpu, "f64");
  rejects("BAD_STATE", () => optimizer.step(), /"list.0" has moved since/);
});

test("a step works inside noGrad", () => {
  const w = tensor([3], { requiresGrad: true, device: cpu });
  setGradient(cpu, w, [1]);
  noGrad(() => new optim.SGD([w], { lr: 1 }).step());
  assert.deepEqual(w.tolist(), [2]);
});

test("replays of a captured step count as steps, and read the current learning rate", () => {
  const run = (makeStep: (optimizer: optim.Optimizer) => () => void): Tensor[] => {
    const parameters = placeParameters(cpu, "f32", shapes, initialValues);
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

test("adjacent parameters in one span train to the same bits as separate ones, for any pattern of gradients", () => {
  const pattern = fc.array(fc.boolean(), { minLength: shapes.length, maxLength: shapes.length });
  fc.assert(
    fc.property(fc.array(pattern, { minLength: 1, maxLength: 4 }), (patterns) => {
      const [adjacent, separate] = [
        placeParameters(cpu, "f32", shapes, initialValues),
        shapes.flatMap((shape, index) => placeParameters(cpu, "f32", [shape], [initialValues[index]!])),
      ];
      const optimizers = [adjacent, separate].map((parameters) => {
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
      for (const [index, parameter] of adjacent.entries()) {
        sameBytes(parameter.dataSync(), separate[index]!.dataSync(), `parameter ${index}`);
      }
      const { home } = adjacent[0]!.array.storage! as PersistentStorage;
      const padding = new Float32Array(cpu.runtime.read(home.whole).buffer).subarray(15, 64);
      assert.ok(
        padding.every((value) => value === 0),
        "padding stays zero",
      );
      for (const optimizer of optimizers) optimizer.release();
    }),
    { numRuns: effort({ quick: 8, thorough: 25 }) },
  );
});

test("a released optimizer frees its memory and rejects further steps", () => {
  const [w] = placeParameters(cpu, "f32", [[3]], [[1, 2, 3]]);
  const before = cpu.runtime.budget.used;
  const optimizer = new optim.AdamW([w!]);
  setGradient(cpu, w!, [1, 1, 1]);
  optimizer.step();
  optimizer.release();
  assert.equal(cpu.runtime.budget.used, before);
  rejects("DEAD_STORAGE", () => optimizer.step());
});

test("a constructor that fails leaves no memory allocated, and release is idempotent", () => {
  const parameters = placeParameters(cpu, "f32", shapes, initialValues);
  const before = cpu.runtime.budget.used;
  rejects("BAD_ARGUMENT", () => new optim.Adam(parameters, { lr: -1 }), /lr is -1/);
  rejects("BAD_ARGUMENT", () => new optim.SGD(parameters, {} as optim.SGDOptions), /SGD: lr is NaN/);
  assert.equal(cpu.runtime.budget.used, before);
  const adam = new optim.Adam(parameters);
  adam.release();
  adam.release();
  assert.equal(cpu.runtime.budget.used, before);
});
