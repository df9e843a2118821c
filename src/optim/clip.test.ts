/** Clipping: the total norm of all gradients, in one pass over memory, and norms that are not finite. */

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

function placeGradients(gradients: readonly (readonly number[])[], dtype: Dtype = "f32") {
  const shapes = gradients.map(({ length }) => [length]);
  const parameters = placeParameters(
    cpu,
    dtype,
    shapes,
    gradients.map((gradient) => gradient.map(() => 0)),
  );
  for (const [index, parameter] of parameters.entries()) setGradient(cpu, parameter, gradients[index]!);
  return parameters;
}

const normOf = (values: readonly number[], p: number): number =>
  p === Infinity
    ? Math.max(...values.map(Math.abs))
    : values.reduce((sum, value) => sum + Math.abs(value) ** p, 0) ** (1 / p);

for (const normType of [2, 1, Infinity, 3]) {
  test(`the ${normType}-norm is over all gradients, and each is scaled by the same factor`, () => {
    const element = fc.float({ min: -8, max: 8, noNaN: true });
    const gradient = fc.array(element, { minLength: 1, maxLength: 70 });
    fc.assert(
      fc.property(
        fc.array(gradient, { minLength: 1, maxLength: 5 }),
        fc.constantFrom(0.5, 1e6),
        (gradients, maxNorm) => {
          const parameters = placeGradients(gradients);
          const expected = normOf(gradients.flat(), normType);
          const norm = optim.clipGradNorm(parameters, maxNorm, { normType });
          assert.ok(
            Math.abs(norm.item() - expected) <= 1e-9 * (1 + expected),
            `${norm.item()}, expected ${expected}`,
          );
          norm.release();
          const factor = Math.min(1, maxNorm / (expected + 1e-6));
          for (const [index, parameter] of parameters.entries()) {
            for (const [element, value] of Array.from(parameter.grad!.dataSync()).entries()) {
              const clipped = gradients[index]![element]! * factor;
              assert.ok(
                Math.abs(value - clipped) <= 1e-6 * (1 + Math.abs(clipped)),
                `${value}, expected ${clipped}`,
              );
            }
          }
        },
      ),
      { numRuns: 20 },
    );
  });
}

test("the norm of long gradients is reduced in chunks, up to the last element", () => {
  for (const length of [4095, 4096, 4097, 3 * 4096 + 5]) {
    const values = Array.from({ length }, (_, index) => (index % 7) - 3);
    const expected = Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
    const [parameter] = placeGradients([values]);
    assert.ok(Math.abs(optim.clipGradNorm([parameter!], 1).item() - expected) < 1e-9 * expected);
  }
});

test("gradients of f64 and of half floats are clipped in place", () => {
  for (const dtype of ["f64", "bf16", "f16"] as const) {
    const parameters = placeGradients(
      [
        [3, 0],
        [0, 4],
      ],
      dtype,
    );
    const before = parameters.map(({ grad }) => grad!.array.storage!.span.address);
    assert.equal(optim.clipGradNorm(parameters, 2.5).item(), 5);
    const clipped = parameters.map(({ grad }) => Array.from(grad!.dataSync()));
    assert.ok(Math.abs(clipped[0]![0]! - 1.5) < 0.01 && Math.abs(clipped[1]![1]! - 2) < 0.01, dtype);
    assert.deepEqual(
      parameters.map(({ grad }) => grad!.array.storage!.span.address),
      before,
    );
  }
});

test("clipGradNorm takes three launches for any number of small adjacent gradients, and copies nothing", () => {
  const count = (parameters: number): readonly string[] => {
    const gradients = placeGradients(Array.from({ length: parameters }, () => [1, 2, 3]));
    const start = log.calls.length;
    optim.clipGradNorm(gradients, 1, { errorIfNonfinite: false });
    return log.namesFrom(start).filter((call) => call === "launch" || call.startsWith("copy"));
  };
  count(2);
  assert.deepEqual(count(40), ["launch", "launch", "launch"]);
});

test("on a GPU the norm of gradients of any length and in any regions takes two launches", () => {
  const names = (parameters: readonly Tensor[]): readonly string[] => {
    const start = log.calls.length;
    optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false });
    return log.namesFrom(start).filter((call) => call === "launch");
  };
  const [long] = placeGradients([Array.from({ length: 3 * 4096 + 5 }, (_, index) => index % 3)]);
  const isGpu = cpu.runtime.device.kind === "cuda";
  assert.equal(names([long!]).length, isGpu ? 3 : 4);
  // Each in a separate region: one launch for all chunks, one for the partials, and one for each gradient to scale.
  const separate = [1, 2, 3].flatMap((value) => placeGradients([[value, value]]));
  assert.equal(names(separate).length, isGpu ? 5 : 7);
});

test("the norm has the same bits for any order of placement", () => {
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
      for (const tensor of [norm, ...parameters]) tensor.release();
    }
  };
  const order = [...values.keys()];
  const expected = normAfter(order);
  for (const other of [order.toReversed(), order.toSorted((a, b) => (a % 5) - (b % 5))])
    assert.equal(normAfter(other), expected);
});

test("gradients of several dtypes have one norm", () => {
  const parameters = [
    ...placeGradients([[3, 0]]),
    ...placeGradients([[0, 4]], "f64"),
    ...placeGradients([[12]], "bf16"),
    ...placeGradients([[84]]),
  ];
  assert.equal(optim.clipGradNorm(parameters, 1e6).item(), 85);
});

test("a norm that is not finite is rejected with the first parameter that is not finite, and nothing is changed", () => {
  for (const bad of [Number.NaN, Infinity, -Infinity]) {
    const parameters = placeGradients([[1, 2], [3, bad, 5], [bad]]);
    rejects(
      "NOT_FINITE",
      () => optim.clipGradNorm(parameters, 1, { normType: 1 }),
      /3 gradients is .*"list.1" is the first/,
    );
    assert.deepEqual(Array.from(parameters[0]!.grad!.dataSync()), [1, 2]);
  }
  const huge = placeGradients([[1e200], [2]], "f64");
  rejects("NOT_FINITE", () => optim.clipGradNorm(huge, 1), /overflows f64/);
});

test("with errorIfNonfinite: false, gradients with a norm that is not finite are not changed", () => {
  const parameters = placeGradients([[1, 2], [Infinity]]);
  assert.equal(optim.clipGradNorm(parameters, 1, { errorIfNonfinite: false }).item(), Infinity);
  assert.deepEqual(Array.from(parameters[0]!.grad!.dataSync()), [1, 2]);
});

test("parameters without gradients and frozen parameters are ignored; without any gradient the norm is 0", () => {
  const [a, b] = placeGradients([[3], [4]]);
  b!.zeroGrad();
  assert.equal(optim.clipGradNorm([a!, b!], 10).item(), 3);
  a!.requiresGrad = false;
  assert.equal(optim.clipGradNorm([a!, b!], 10).item(), 0);
  assert.equal(optim.clipGradNorm([], 10).item(), 0);
});

test("clipGradValue clamps each element to the limit", () => {
  const parameters = placeGradients([
    [-3, 0.25],
    [0.5, 7],
  ]);
  optim.clipGradValue(parameters, 0.5);
  assert.deepEqual(
    parameters.map(({ grad }) => Array.from(grad!.dataSync())),
    [
      [-0.5, 0.25],
      [0.5, 0.5],
    ],
  );
});

test("invalid limits are rejected", () => {
  const w = tensor([1], { requiresGrad: true, device: cpu });
  rejects("BAD_ARGUMENT", () => optim.clipGradNorm([w], -1), /maxNorm is -1/);
  rejects("BAD_ARGUMENT", () => optim.clipGradNorm([w], 1, { normType: 0 }), /above 0/);
  rejects("BAD_ARGUMENT", () => optim.clipGradValue([w], Number.NaN), /limit is NaN/);
});
