/**
 * compile(): the same code as eager, the same numbers, one launch. Code that can't be traced is rejected with
 * its line.
 */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Device, manualSeed, nn, noGrad, optim, randn, type Tensor, tensor, zeros } from "holdfast";
import type { Storage } from "holdfast/internals";
import { bufferSizes } from "../src/units/index.js";
import { openStrictDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { rejects } from "./support/rejects.js";
import { sameBytes } from "./support/same-bytes.js";

const device = openStrictDevice();

interface Training {
  readonly step: (x: Tensor, y: Tensor) => { readonly loss: Tensor };
  readonly optimizer: optim.AdamW;
  read(): Uint8Array[];
}

/** A model with dropout and normalisation, its optimizer, and all state that a step changes. */
function prepare(on: Device): Training {
  manualSeed(5);
  const model = new nn.Sequential(
    new nn.Linear(6, 16),
    new nn.LayerNorm(16),
    new nn.GELU(),
    new nn.Dropout(0.3),
    new nn.Linear(16, 3),
  ).to(on);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.02 });
  const step = (x: Tensor, y: Tensor): { readonly loss: Tensor } => {
    const loss = nn.functional.crossEntropy(model.forward(x), y);
    loss.backward();
    optim.clipGradNorm(model.parameters(), 0.5, { errorIfNonfinite: false });
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  };
  const tensors = [...model.parameters(), ...Object.values(optimizer.stateDict()), on.randomState];
  const states = tensors.flatMap(({ array }) => array.storage ?? []);
  return { step, optimizer, read: () => states.map((storage: Storage) => on.runtime.read(storage)) };
}

function batchOf(rows: number, seed: number): [x: Tensor, y: Tensor] {
  manualSeed(seed);
  const labels = Int32Array.from({ length: rows }, (_, row) => (row * 7 + seed) % 3);
  return [randn([rows, 6], { device }), tensor(labels, { device })];
}

const steps = effort({ quick: 8, thorough: 20 });

test(`${steps} compiled steps with a schedule and dropout equal eager ones bit for bit, the smaller last batch too`, () => {
  const rows = [8, 8, 8, 5];
  const batches = rows.map((count, index) => batchOf(count, index));
  const run = (training: Training, step: Training["step"]): number[] => {
    const schedule = new optim.CosineSchedule(training.optimizer, { tMax: steps });
    return Array.from({ length: steps }, (_, index) => {
      const [x, y] = batches[index % batches.length]!;
      const loss = step(x, y).loss.item();
      schedule.step();
      return loss;
    });
  };
  const eager = prepare(device);
  const losses = run(eager, (x, y) => {
    const loss = device.step(() => eager.step(x, y).loss.item());
    return { loss: tensor(loss, { device }) };
  });
  const expected = eager.read();
  const training = prepare(device);
  // The library's default GEMM algorithms, as in eager code: other algorithms may round differently.
  const compiled = device.compile(training.step, { passes: { autotune: false } });
  assert.deepEqual(run(training, compiled), losses);
  assert.equal(compiled.plans, 2);
  for (const [index, actual] of training.read().entries())
    sameBytes(actual, expected[index]!, `state ${index}`);
  compiled.close();
});

test("reading a value inside a compiled step is rejected, with the line and a remedy", () => {
  const { step } = prepare(device);
  const [x, y] = batchOf(4, 1);
  const looking = device.compile((a: Tensor, b: Tensor) => {
    const { loss } = step(a, b);
    if (loss.item() > 1) loss.square();
    return { loss };
  });
  rejects("NOT_TRACEABLE", () => looking(x, y), /compile\.test\.[jt]s:\d+.*Return the tensor/s);
  assert.equal(looking.plans, 0);
});

test("random numbers of the host, numbers as inputs and results that are not tensors are rejected", () => {
  const [x] = batchOf(4, 1);
  rejects(
    "NOT_TRACEABLE",
    () => device.compile((a: Tensor) => new nn.Linear(6, 6).to(device).forward(a))(x),
    /Create modules before the call/,
  );
  rejects(
    "NOT_TRACEABLE",
    () => device.compile((a: Tensor) => ({ a, rows: 4 as unknown as Tensor }))(x),
    /"rows", a number/,
  );
  rejects("BAD_ARGUMENT", () => device.compile((a: Tensor) => a)(4 as unknown as Tensor), /takes tensors/);
});

test("a rejected trace leaves no memory and changes nothing: the step then runs eagerly as usual", () => {
  const training = prepare(device);
  const [x, y] = batchOf(4, 1);
  const before = {
    state: training.read(),
    used: device.runtime.budget.used,
    ...device.runtime.arena.figures,
  };
  const compiled = device.compile((a: Tensor, b: Tensor) => {
    const result = training.step(a, b);
    result.loss.item();
    return result;
  });
  rejects("NOT_TRACEABLE", () => compiled(x, y));
  const { live, pins } = device.runtime.arena.figures;
  assert.deepEqual(
    { live, pins, used: device.runtime.budget.used },
    { live: before.live, pins: before.pins, used: before.used },
  );
  for (const [index, actual] of training.read().entries())
    sameBytes(actual, before.state[index]!, `state ${index}`);
});

test("gradients accumulate over calls as in eager code, for any order of zeroGrad", () => {
  const w = tensor([2, 3], { device, requiresGrad: true });
  const accumulate = device.compile((x: Tensor) => void w.mul(x).sum().backward());
  accumulate(tensor([1, 10], { device }));
  assert.deepEqual(w.grad?.tolist(), [1, 10]);
  accumulate(tensor([2, 20], { device }));
  accumulate(tensor([4, 40], { device }));
  assert.deepEqual(w.grad?.tolist(), [7, 70]);
  assert.equal(accumulate.plans, 2);
});

test("host constants, in-place writes and views of results behave as in eager code", () => {
  const state = zeros([3], { device });
  const body = (x: Tensor): { readonly a: Tensor; readonly b: Tensor; readonly c: Tensor } => {
    const table = tensor([10, 20, 30], { device });
    table.add_(x);
    noGrad(() => state.add_(table));
    const b = table.reshape([3, 1]).expand([3, 2]).t();
    return { a: table.mul(2), b, c: x };
  };
  const compiled = device.compile(body);
  for (const value of [1, 2, 3]) {
    const x = tensor([value, value, value], { device });
    const { a, b, c } = compiled(x);
    assert.deepEqual(a.tolist(), [20 + 2 * value, 40 + 2 * value, 60 + 2 * value]);
    assert.deepEqual(b.tolist(), [
      [10 + value, 20 + value, 30 + value],
      [10 + value, 20 + value, 30 + value],
    ]);
    assert.deepEqual(c.tolist(), [value, value, value]);
  }
  assert.deepEqual(state.tolist(), [36, 66, 96]);
});

test("more plans than allowed are rejected with the shapes of the existing ones", () => {
  const double = device.compile((x: Tensor) => x.mul(2), { maxPlans: 2 });
  double(zeros([1], { device }));
  double(zeros([2], { device }));
  rejects("BAD_ARGUMENT", () => double(zeros([3], { device })), /f32 \[1\].*f32 \[2\]/);
});

test("closing a compiled step frees its memory", () => {
  const [x] = batchOf(4, 1);
  const before = { used: device.runtime.budget.used, live: device.runtime.arena.figures.live };
  const double = device.compile((a: Tensor) => a.mul(2).sum());
  double(x);
  double.close();
  assert.deepEqual({ used: device.runtime.budget.used, live: device.runtime.arena.figures.live }, before);
});

test("scalars of all calls arrive at the host, in order", () => {
  const { history } = bufferSizes;
  bufferSizes.history = 600;
  const count = zeros([], { device });
  const step = device.compile((x: Tensor) => {
    noGrad(() => count.add_(x));
    return { count, twice: count.mul(2) };
  });
  const input = tensor(1, { device });
  for (let call = 0; call < 700; call++) step(input);
  assert.ok(step.history["count"]!.length > 500);
  step.flush();
  // The latest ones.
  const expected = Array.from({ length: 600 }, (_, call) => call + 101);
  assert.deepEqual(step.history["count"], expected);
  assert.deepEqual(
    step.history["twice"],
    expected.map((value) => 2 * value),
  );
  step.close();
  bufferSizes.history = history;
});

test("the history has scalars of every dtype", () => {
  for (const dtype of ["f32", "f64", "bf16", "f16", "i32", "u8", "bool"] as const) {
    const step = device.compile((x: Tensor) => ({ x }));
    for (const value of [1, 0, 1]) step(tensor(value, { device, dtype }));
    step.flush();
    assert.deepEqual(step.history["x"], [1, 0, 1], dtype);
    step.close();
  }
});

test("a scalar that only some plans return is in the history only for their calls", () => {
  const step = device.compile((x: Tensor): Record<string, Tensor> => {
    const total = x.sum();
    return x.numel === 2 ? { total, doubled: total.mul(2) } : { total };
  });
  for (const length of [2, 3, 3, 2, 3]) step(zeros([length], { device }).add(length));
  step.flush();
  assert.deepEqual(step.history, { total: [4, 9, 9, 4, 9], doubled: [8, 8] });
  step.close();
});

test("a step with non-finite gradients is skipped on the device and counted; the next one counts again", () => {
  const model = new nn.Linear(3, 2).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr: 0.1 });
  const step = device.compile((x: Tensor) => {
    const loss = model.forward(x).square().sum();
    loss.backward();
    optim.clipGradNorm(model.parameters(), 1);
    optimizer.step();
    optimizer.zeroGrad();
    return { loss };
  });
  const read = (): Uint8Array[] =>
    [...model.parameters(), ...Object.values(optimizer.stateDict())].flatMap(({ array }) =>
      array.storage ? [device.runtime.read(array.storage)] : [],
    );
  const good = tensor([[1, 2, 3]], { device });
  step(good);
  const before = read();
  for (const bad of [Number.NaN, Infinity, 1e38])
    assert.equal(Number.isFinite(step(tensor([[1, bad, 3]], { device })).loss.item()), false);
  for (const [index, actual] of read().entries()) sameBytes(actual, before[index]!, `state ${index}`);
  assert.equal(step.skipped, 3);
  step(good);
  assert.equal(step.skipped, 3);
  assert.ok(read().some((actual, index) => actual.some((byte, at) => byte !== before[index]![at])));
  // The history has every call in order, also the skipped ones.
  step.flush();
  assert.deepEqual(step.history["loss"]?.map(Number.isFinite), [true, false, false, false, true]);
});
