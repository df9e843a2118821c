/** Clipping: the norm of all gradients together, in one pass over memory, and what happens where it is not finite. */

import assert from "node:assert/strict";
import { after, test } from "node:test";
import fc from "fast-check";
import { CallLog } from "../../test/support/call-log.js";
import { openDevice } from "../../test/support/devices.js";
import { randomFrom } from "../../test/support/op-cases/arbitraries.js";
import { placeParameters, setGradient } from "../../test/support/parameter-module.js";
import { rejects } from "../../test/support/rejects.js";
import { openTestDriver } from "../../test/support/test-device.js";
import { strict } from "../driver/index.js";
import type { Dtype } from "../ir/index.js";
import { type Tensor, tensor } from "../tensor/index.js";
import * as optim from "./index.js";

const driver = openTestDriver({ threads: 2 });
const log = new CallLog();
const cpu = openDevice({ driver: log.wrap(strict(driver)), poison: true });
after(() => driver.close());

function place(gradients: readonly (readonly number[])[], dtype: Dtype = "f32") {
  const shapes = gradients.map(({ length }) => [length]);
  const parameters = placeParameters(
    cpu,
    dtype,
    shapes,
    gradients.map((one) => one.map(() => 0)),
  );
  for (const [index, parameter] of parameters.entries()) setGradient(cpu, parameter, gradients[index]!);
  return parameters;
}

const normOf = (values: readonly number[], p: number): number =>
  p === Infinity
    ? Math.max(...values.map(Math.abs))
    : values.reduce((sum, value) => sum + Math.abs(value) ** p, 0) ** (1 / p);

for (const normType of [2, 1, Infinity, 3]) {
  test(`the ${normType}-norm is that of all gradients together, and each is scaled by the same factor`, () => {
    const element = fc.float({ min: -8, max: 8, noNaN: true });
    const gradient = fc.array(element, { minLength: 1, maxLength: 70 });
    fc.assert(
      fc.property(
        fc.array(gradient, { minLength: 1, maxLength: 5 }),
        fc.constantFrom(0.5, 1e6),
        (gradients, maxNorm) => {
          const parameters = place(gradients);
          const expected = normOf(gradients.flat(), normType);
          const norm = optim.clipGradNorm(parameters, maxNorm, { normType });
          assert.ok(
            Math.abs(norm.item() - expected) <= 1e-9 * (1 + expected),
            `${norm.item()} for ${expected}`,
          );
          norm.release();
          const factor = Math.min(1, maxNorm / (expected + 1e-6));
          for (const [index, parameter] of parameters.entries()) {
            for (const [at, found] of Array.from(parameter.grad!.dataSync()).entries()) {
              const wanted = gradients[index]![at]! * factor;
              assert.ok(Math.abs(found - wanted) <= 1e-6 * (1 + Math.abs(wanted)), `${found} for ${wanted}`);
            }
          }
        },
      ),
      { numRuns: 20 },
    );
  });
}

test("long gradients are measured part by part, to the last element", () => {
  for (const length of [4095, 4096, 4097, 3 * 4096 + 5]) {
    const values = Array.from({ length }, (_, index) => (index % 7) - 3);
    const expected = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
    const [parameter] = place([values]);
    assert.ok(Math.abs(optim.clipGradNorm([parameter!], 1).item() - expected) < 1e-9 * expected);
  }
});

test("gradients in f64 and in half floats are clipped in their own memory", () => {
  for (const dtype of ["f64", "bf16", "f16"] as const) {
    const parameters = place(
      [
        [3, 0],
        [0, 4],
      ],
      dtype,
    );
    const before = parameters.map((one) => one.grad!.array.storage!.span.address);
    assert.equal(optim.clipGradNorm(parameters, 2.5).item(), 5);
    const found = parameters.map((one) => Array.from(one.grad!.dataSync()));
    assert.ok(Math.abs(found[0]![0]! - 1.5) < 0.01 && Math.abs(found[1]![1]! - 2) < 0.01, dtype);
    assert.deepEqual(
      parameters.map((one) => one.grad!.array.storage!.span.address),
      before,
    );
  }
});

test("a clip by norm takes three launches for any number of small neighbours, and copies nothing on the device", () => {
  const count = (parameters: number): readonly string[] => {
    const placed = place(Array.from({ length: parameters }, () => [1, 2, 3]));
    const start = log.calls.length;
    optim.clipGradNorm(placed, 1, { errorIfNonfinite: false });
    return log.namesFrom(start).filter((call) => call === "launch" || call.startsWith("copy"));
  };
  count(2);
  assert.deepEqual(count(40), ["launch", "launch", "launch"]);
});

test("on a GPU that is so for gradients of any length, and for any number of them that lie apart", () => {
  const names = (parameters: readonly Tensor[]): readonly string[] => {
    const start = log.calls.length;
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    return log.namesFrom(start).filter((call) => call === "launch");
  };
  const [long] = place([Array.from({ length: 3 * 4096 + 5 }, (_, index) => index % 3)]);
  const isGpu = cpu.runtime.device.kind === "cuda";
  assert.equal(names([long!]).length, isGpu ? 3 : 4);
  // Each in a region of its own: one launch for all of their parts, one for the end, and one each to scale it.
  const apart = [1, 2, 3].flatMap((value) => place([[value, value]]));
  assert.equal(names(apart).length, isGpu ? 5 : 7);
});

test("the norm has the same bits whichever gradient was placed first", () => {
  const random = randomFrom(7);
  const values = Array.from({ length: 13 }, () => [random() * 10 ** (6 * random()), random()]);
  const normAfter = (order: readonly number[]): number => {
    const parameters = values.map(({ length }) =>
      cpu.fromHost(new Float64Array(length), [length], "f64", "p"),
    );
    for (const parameter of parameters) parameter.requiresGrad = true;
    for (const index of order) setGradient(cpu, parameters[index]!, values[index]!);
    const norm = optim.clipGradNorm(parameters, 1, { normType: 1 });
    try {
      return norm.item();
    } finally {
      for (const one of [norm, ...parameters]) one.release();
    }
  };
  const order = [...values.keys()];
  const expected = normAfter(order);
  for (const other of [order.toReversed(), order.toSorted((a, b) => (a % 5) - (b % 5))])
    assert.equal(normAfter(other), expected);
});

test("gradients of several dtypes have one norm", () => {
  const parameters = [
    ...place([[3, 0]]),
    ...place([[0, 4]], "f64"),
    ...place([[12]], "bf16"),
    ...place([[84]]),
  ];
  assert.equal(optim.clipGradNorm(parameters, 1e6).item(), 85);
});

test("a norm that is not finite is rejected with the first parameter to blame, and nothing is changed", () => {
  for (const bad of [Number.NaN, Infinity, -Infinity]) {
    const parameters = place([[1, 2], [3, bad, 5], [bad]]);
    rejects(
      "NOT_FINITE",
      () => optim.clipGradNorm(parameters, 1, { normType: 1 }),
      /3 gradients is .*"list.1" is the first/,
    );
    assert.deepEqual(Array.from(parameters[0]!.grad!.dataSync()), [1, 2]);
  }
  const huge = place([[1e200], [2]], "f64");
  rejects("NOT_FINITE", () => optim.clipGradNorm(huge, 1), /overflows f64/);
});

test("where it is not to reject, gradients with a norm that is not finite stay as they are", () => {
  const parameters = place([[1, 2], [Infinity]]);
  assert.equal(optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false }).item(), Infinity);
  assert.deepEqual(Array.from(parameters[0]!.grad!.dataSync()), [1, 2]);
});

test("parameters without gradients, and frozen ones, do not count; with none at all the norm is 0", () => {
  const [a, b] = place([[3], [4]]);
  b!.zeroGrad();
  assert.equal(optim.clipGradNorm([a!, b!], 10).item(), 3);
  a!.requiresGrad = false;
  assert.equal(optim.clipGradNorm([a!, b!], 10).item(), 0);
  assert.equal(optim.clipGradNorm([], 10).item(), 0);
});

test("clipGradValue brings each element inside the limit", () => {
  const parameters = place([
    [-3, 0.25],
    [0.5, 7],
  ]);
  optim.clipGradValue(parameters, 0.5);
  assert.deepEqual(
    parameters.map((one) => Array.from(one.grad!.dataSync())),
    [
      [-0.5, 0.25],
      [0.5, 0.5],
    ],
  );
});

test("limits that make no sense are rejected", () => {
  const w = tensor([1], { requiresGrad: true, device: cpu });
  rejects("BAD_ARGUMENT", () => optim.clipGradNorm([w], -1), /maxNorm is -1/);
  rejects("BAD_ARGUMENT", () => optim.clipGradNorm([w], 1, { normType: 0 }), /above 0/);
  rejects("BAD_ARGUMENT", () => optim.clipGradValue([w], Number.NaN), /limit is NaN/);
});
