/**
 * Values that a GPU computes again because that loads no more than the values themselves: the input of the activation after a batch norm, and the
 * gradient of the activation, which a column reduction and a row kernel read. The step keeps its bits.
 */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Device, manualSeed, nn, optim, randn } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import { accessesOf, type Call } from "../src/compile/program/program.js";
import { launchBytes } from "../src/kernels/index.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { type Precision, withNullGpu } from "./support/null-gpu.js";
import { sameBytes } from "./support/same-bytes.js";

/** With one multiprocessor, a value of 2 × 32 × 24 × 24 floats is large. */
const sizes = { images: 2, channels: 32, side: 24 } as const;
const imageBytes = 4 * sizes.images * sizes.channels * sizes.side ** 2;

type Activation = () => nn.ReLU6 | nn.SiLU;
const relu6: Activation = () => new nn.ReLU6();

function makeModel(activation: Activation): nn.Sequential {
  const { channels } = sizes;
  return new nn.Sequential(
    new nn.Conv2d(8, channels, 1, { bias: false }),
    new nn.BatchNorm2d(channels),
    activation(),
    new nn.Conv2d(channels, channels, 1, { bias: false }),
    new nn.BatchNorm2d(channels),
    activation(),
    new nn.Conv2d(channels, 8, 1, { bias: false }),
  );
}

interface Options {
  readonly passes?: PassSettings;
  readonly activation?: Activation;
}

function trained(device: Device, { passes = {}, activation = relu6 }: Options) {
  manualSeed(3);
  const model = makeModel(activation).to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  const x = device.keep(randn([sizes.images, 8, sizes.side, sizes.side], { device }));
  const step = device.compile(
    () => {
      const loss = model.forward(x).square().mean();
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return loss;
    },
    { passes },
  );
  const losses = [step().item(), step().item()];
  const calls = latestPlanOf(step)!.planned.schedule.calls.map(({ call }) => call);
  const weights = model.parameters().map((parameter) => parameter.dataSync() as Float32Array);
  step.close();
  return { losses, weights, calls };
}

const stored = { recomputeCheapValues: false } as const;

/** How many large buffers of floats the calls write. */
function countLarge(calls: readonly Call[]): number {
  const large = calls.flatMap((call) =>
    accessesOf(call)
      .filter(({ slice, writes }) => writes && slice.buffer.bytes === imageBytes)
      .map(({ slice }) => slice.buffer),
  );
  return new Set(large).size;
}

/** The ops of the reductions that sum the gradients of a norm's channels. */
const summed = (calls: readonly Call[]): readonly string[] =>
  calls.flatMap(({ op, work }) =>
    work.kind === "column" && work.kernel.name === "channel gradient sums" ? op : [],
  );

describe("a compiled step on a GPU", { skip: emulatorMissing }, () => {
  test("computes norms, and gradients of activations, again instead of storing them, to the same bits", () => {
    const device = openEmulatorGpu({ multiprocessors: 1, capture: "off" });
    const [before, after] = [trained(device, { passes: stored }), trained(device, {})];
    assert.ok(countLarge(after.calls) < countLarge(before.calls));
    assert.deepEqual(after.losses, before.losses);
    for (const [index, values] of before.weights.entries())
      sameBytes(after.weights[index]!, values, `weight ${index}`);
  });

  test("keeps the bits of approximate exponentials in bf16", () => {
    const device = openEmulatorGpu({ precision: "bf16", multiprocessors: 1, capture: "off" });
    // The sums of columns have another order in the kernels of rows.
    const passes = { columnReductions: false, autotune: false } as const;
    const activation: Activation = () => new nn.SiLU();
    const [before, after] = [{ ...passes, ...stored }, passes].map((settings) =>
      trained(device, { passes: settings, activation }),
    );
    assert.ok(countLarge(after!.calls) < countLarge(before!.calls));
    assert.deepEqual(after!.losses, before!.losses);
    for (const [index, values] of before!.weights.entries())
      sameBytes(after!.weights[index]!, values, `weight ${index}`);
  });
});

describe("a plan for a GPU", () => {
  const planned = (precision: Precision, options: Options = {}, multiprocessors = 1) =>
    withNullGpu(precision, (device) => trained(device, options), { multiprocessors }).calls;

  test("has column reductions that compute the gradient of the activation", () => {
    const [before, after] = [planned("bf16", { passes: stored }), planned("bf16")].map(summed);
    assert.deepEqual(before, ["channelGradientSums", "channelGradientSums"]);
    assert.ok(after!.length === 2 && after!.every((op) => op.includes("hardtanhGradient")), `${after}`);
  });

  test("has fewer large values in bf16 and in float32", () => {
    for (const precision of ["bf16", "f32"] as const)
      assert.ok(
        countLarge(planned(precision)) < countLarge(planned(precision, { passes: stored })),
        precision,
      );
  });

  test("has fewer values that take as long to store as a launch", () => {
    const launches = imageBytes / launchBytes;
    assert.ok(launches > 2 && launches < 3);
    const [before, after] = [planned("bf16", { passes: stored }, 2), planned("bf16", {}, 2)].map(countLarge);
    assert.ok(after! < before!, `${before} and ${after} values`);
    assert.equal(countLarge(planned("bf16", {}, 3)), before);
  });

  test("stores the gradient of an activation with an exponential in float32, where that is slow, and computes it again in bf16", () => {
    const activation: Activation = () => new nn.SiLU();
    const [exact, fast] = (["f32", "bf16"] as const).map((precision) =>
      summed(planned(precision, { activation })),
    );
    const isComputed = (op: string): boolean => op.includes("siluGradient");
    assert.ok(exact!.length === 2 && !exact!.some(isComputed), `${exact}`);
    assert.ok(fast!.length === 2 && fast!.every(isComputed), `${fast}`);
  });
});
