/** A convolutional network on the emulated GPU: a compiled step has convolution calls, and trains like eager code. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { autograd, cat, type Device, manualSeed, nn, optim, randn, type Tensor } from "holdfast";
import type { PassSettings } from "../src/compile/index.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { emulatorMissing } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { planAllSchedules, withNullGpu } from "./support/null-gpu.js";

const [batch, width, classes, image] = [2, 24, 3, 32] as const;

/** Strided, depthwise and 1 × 1 convolutions, with and without a bias. */
function prepare(device: Device) {
  manualSeed(3);
  const model = new nn.Sequential(
    new nn.Conv2d(2, width, 3, { padding: 1, stride: 2 }),
    new nn.ReLU(),
    new nn.Conv2d(width, width, 3, { padding: 1, stride: 4, groups: width, bias: false }),
    new nn.Conv2d(width, classes, 1),
    new nn.Flatten(2),
  ).to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
  const x = device.step(() => randn([batch, 2, image, image], { device }).keep());
  const step = (input: Tensor) => {
    optimizer.zeroGrad();
    const loss = model.forward(input).mean(-1).square().mean();
    loss.backward();
    optimizer.step();
    return { loss };
  };
  const weights = (): number[][] =>
    [...model.parameters()].map((parameter) => [...(parameter.dataSync() as Float32Array)]);
  return { x, step, weights };
}

describe("on the emulated GPU", { skip: emulatorMissing }, () => {
  test("a compiled step with convolutions has the bits of eager code", () => {
    // Few multiprocessors: small convolutions are worth tiles.
    const device = openEmulatorGpu({ multiprocessors: 8, seesSnapshots: false });
    const eager = prepare(device);
    const losses = [0, 1].map(() => device.step(() => eager.step(eager.x).loss.item()));
    const traced = prepare(device);
    const compiled = device.compile(traced.step);
    assert.deepEqual(
      [0, 1].map(() => compiled(traced.x).loss.item()),
      losses,
    );
    assert.deepEqual(traced.weights(), eager.weights());
    const { calls } = compiled.report()[0]!;
    const kernels = calls.filter(({ kind }) => kind === "convolution").map(({ kernel }) => kernel);
    // The first layer's input needs no gradient.
    assert.deepEqual(kernels.filter((kernel) => kernel.includes("forward")).length, 3);
    assert.deepEqual(kernels.filter((kernel) => kernel.includes("input-gradient")).length, 2);
    assert.deepEqual(kernels.filter((kernel) => kernel.includes("weight-gradient")).length, 3);
    assert.deepEqual(calls.filter(({ op }) => op === "convolution + relu").length, 1);
    const firstWeights = 4 * width * 2 * 9;
    const isSplit = calls.some(
      ({ kernel, writtenBytes }) => kernel.includes("weight-gradient") && writtenBytes > firstWeights,
    );
    assert.ok(isSplit, "a weight gradient has partial sums in scratch memory");
    assert.deepEqual(
      calls.filter(({ op }) => /windows|fold|pad|matmul/.test(op)),
      [],
    );
  });

  test("images are channels-last from layer to layer, and gradients are those of the CPU", () => {
    const expected = lossesOf(openDevice());
    const tolerances = { bf16: 2e-2, tf32: 5e-3, f32: 1e-6 };
    for (const precision of effort({ quick: ["bf16", "f32"], thorough: ["bf16", "tf32", "f32"] } as const)) {
      // Few multiprocessors: small convolutions are worth tiles.
      const device = openEmulatorGpu({ precision, multiprocessors: 4, seesSnapshots: false });
      const { losses, calls } = lossesOf(device, true);
      const tolerance = tolerances[precision];
      if (precision === "f32") assert.deepEqual(losses, lossesOf(device).losses, "eager code has other bits");
      for (const [index, loss] of expected.losses.entries())
        assert.ok(
          Math.abs(losses[index]! - loss) <= tolerance * loss,
          `${precision}: ${losses} and ${expected.losses}`,
        );
      const counts = ["convolution + relu", "maxPoolGradient + reluGradient"].map(
        (name) => calls.filter(({ op }) => op.startsWith(name)).length,
      );
      assert.deepEqual(counts, [2, 1], calls.map(({ op }) => op).join("\n"));
      const results = calls.filter(({ kernel }) => /^convolution (forward|input)/.test(kernel));
      for (const { kernel } of results) assert.match(kernel, precision === "bf16" ? / bf16/ : / f32/);
    }
  });

  test("in TF32 a compiled step has the bits of eager code if convolutions round their operands, and its losses if kernels store them rounded", () => {
    const device = openEmulatorGpu({ precision: "tf32", seesSnapshots: false });
    const eager = lossesOf(device).losses;
    assert.deepEqual(lossesOf(device, true, { autotune: false }).losses, eager);
    // Measured algorithms add in another order, and so do column sums in other kernels.
    const untimed = { gemmAlgorithms: false, columnReductions: false };
    assert.deepEqual(lossesOf(device, true, { ...untimed, tf32Operands: false }).losses, eager);
    // Only the gradients of biases sum rounded gradients.
    const [first, ...later] = lossesOf(device, true, untimed).losses;
    assert.equal(first, eager[0]);
    for (const [index, loss] of later.entries()) {
      const expected = eager[index + 1]!;
      assert.ok(
        Math.abs(loss - expected) <= 2e-5 * Math.abs(expected),
        `loss ${index + 1}: ${loss}, ${expected}`,
      );
    }
  });
});

test("in TF32 no call is added to round operands, and the gradient that a bias sums is stored rounded too", () => {
  withNullGpu("tf32", (device) => {
    const { step } = twoLayers(device);
    const [planned] = planAllSchedules(device, step);
    const callsAfter = (phase: string) => planned?.stages.find(({ name }) => name === phase)?.calls ?? [];
    assert.equal(callsAfter("tf32Operands").length, callsAfter("columnReductions").length);
    const rounded = callsAfter("tf32Operands").flatMap(({ work }) =>
      work.kind === "convolution" && work.shape.direction !== "weight-gradient"
        ? [[work.shape.direction, work.shape.channelsLast?.rounded]]
        : [],
    );
    assert.deepEqual(rounded, [
      // The step's input is copied to channels-last memory; a pool computes the second one.
      ["forward", ["x", "weight"]],
      ["forward", ["x", "weight"]],
      ["input-gradient", ["weight", "y"]],
    ]);
  });
});

test("sequences are channels-last from layer to layer in every precision, and those without a batch are not", () => {
  const callsIn = (precision: "f32" | "tf32" | "bf16", input: readonly number[]) =>
    withNullGpu(precision, (device) => {
      const x = device.step(() => randn(input, { device }).keep());
      const first = new nn.Conv1d(16, 32, 3, { padding: 1, bias: false }).to(device);
      const second = new nn.Conv1d(32, 32, 3, { padding: 4, dilation: 4, bias: false }).to(device);
      const [planned] = planAllSchedules(device, () => {
        const hidden = first.forward(x);
        hidden.add(second.forward(hidden).relu()).square().mean().backward();
      });
      return planned!.stages.at(-1)!.calls;
    });
  for (const precision of ["f32", "tf32", "bf16"] as const) {
    const calls = callsIn(precision, [8, 16, 512]);
    const convolutions = calls.flatMap(({ work }) => (work.kind === "convolution" ? [work.shape] : []));
    assert.equal(convolutions.length, 5);
    for (const { direction, channelsLast } of convolutions)
      assert.ok(channelsLast, `${precision} ${direction}`);
    assert.ok(
      convolutions.some(({ epilogue }) => epilogue),
      `${precision}: no epilogue`,
    );
    // The input is copied to channels-last memory; nothing else changes its layout.
    const strides = calls.flatMap(({ work }) =>
      work.kind === "row" ? [work.iteration.row, ...work.iteration.outer].map((axis) => axis.strides) : [],
    );
    const images = strides.filter((list) => list.includes(512));
    assert.ok(images.length <= 1, `${precision}: ${JSON.stringify(strides)}`);
  }
  const unbatched = callsIn("bf16", [16, 512]);
  assert.ok(unbatched.every(({ work }) => work.kind !== "convolution" || !work.shape.channelsLast));
});

test("the gradient that a global pool spreads is channels-last after the first activation", () => {
  const calls = withNullGpu("bf16", (device) => {
    const [first, second] = [16, 32].map((channels) =>
      new nn.Conv2d(channels, 32, 3, { padding: 1 }).to(device),
    );
    const x = device.step(() => randn([8, 16, 8, 8], { device }).keep());
    const [planned] = planAllSchedules(device, () => {
      const hidden = first!.forward(x).relu();
      const image = hidden.add(second!.forward(hidden)).relu();
      nn.functional.adaptiveAvgPool2d(image, 1).square().mean().backward();
    });
    return planned!.stages.at(-1)!.calls;
  });
  // True if all operands have one layout.
  const isFlat = calls.flatMap(({ op, work }) =>
    work.kind === "row" && op.includes("reluGradient") ? [work.iteration.outer.length === 0] : [],
  );
  assert.deepEqual(isFlat, [false, true]);
});

/** Two resolutions of an image: the first is pooled, and the second is enlarged and joined to it. */
function twoResolutions(device: Device, [batch, height, width]: readonly [number, number, number]) {
  manualSeed(11);
  const [first, middle, last] = [
    new nn.Conv2d(16, 24, 3, { padding: 1 }),
    new nn.Conv2d(24, 24, 3, { padding: 1 }),
    new nn.Conv2d(48, 16, 3, { padding: 1 }),
  ].map((layer) => layer.to(device));
  const x = device.step(() => randn([batch, 16, height, width], { device }).keep());
  return () => {
    const wide = first!.forward(x).relu();
    const small = middle!.forward(nn.functional.avgPool2d(wide, 2)).relu();
    const joined = cat([nn.functional.interpolate(small, { scaleFactor: 2 }), wide], 1);
    const loss = last!.forward(joined).square().mean();
    for (const layer of [first, middle, last]) layer!.zeroGrad();
    loss.backward();
    return { loss, gradient: first!.weight.grad! };
  };
}

test("images that are pooled, enlarged and joined stay channels-last, and each change of size is one kernel", () => {
  const calls = withNullGpu("bf16", (device) => {
    const [planned] = planAllSchedules(device, twoResolutions(device, [4, 32, 20]));
    return planned!.stages.at(-1)!.calls;
  });
  assert.deepEqual(
    calls.filter(({ work }) => work.kind === "scatter"),
    [],
  );
  for (const op of ["mean", "fold", "upsampleNearest", "upsampleNearestGradient"])
    assert.equal(calls.filter((call) => call.op.split(" + ").includes(op)).length, 1, op);
  // The strides of channels-first images: only the input is copied from them.
  const isChannelsFirst = ({ work }: (typeof calls)[number]): boolean =>
    work.kind === "row" &&
    [work.iteration.row, ...work.iteration.outer].some(({ strides }) =>
      strides.some((stride) => stride === 32 * 20 || stride === 16 * 10),
    );
  assert.ok(calls.filter(isChannelsFirst).length <= 1, calls.map(({ op }) => op).join("\n"));
});

describe("images in two resolutions on the emulated GPU", { skip: emulatorMissing }, () => {
  test("have the loss and gradient of eager code in float32, to the bit, and those of the CPU", () => {
    const sizes = [2, 8, 6] as const;
    const eagerOn = (device: Device): number[] => {
      const step = twoResolutions(device, sizes);
      return device.step(() => numbersOf(step()));
    };
    const device = openEmulatorGpu({ multiprocessors: 4, seesSnapshots: false });
    const eager = eagerOn(device);
    assert.deepEqual(numbersOf(device.compile(twoResolutions(device, sizes))()), eager);
    for (const [index, expected] of eagerOn(openDevice()).entries())
      assert.ok(Math.abs(eager[index]! - expected) <= 1e-5, `${eager[index]} and ${expected}`);
  });
});

/** An image is made smaller and enlarged again, by transposed convolutions: strided, grouped, and with few channels at the end. */
function enlargingStep(device: Device, [batch, size]: readonly [number, number]) {
  manualSeed(13);
  const layers = [
    new nn.Conv2d(3, 16, 4, { stride: 2, padding: 1 }),
    new nn.ConvTranspose2d(16, 24, 4, { stride: 2, padding: 1 }),
    new nn.ConvTranspose2d(24, 24, 3, { padding: 1, groups: 24, bias: false }),
    new nn.ConvTranspose2d(24, 3, 3, { stride: 2, padding: 1, outputPadding: 1 }),
  ].map((layer) => layer.to(device));
  const x = device.step(() => randn([batch, 3, size, size], { device }).keep());
  return () => {
    for (const layer of layers) layer.zeroGrad();
    const enlarged = layers.reduce(
      (image, layer, at) => (at === layers.length - 1 ? layer.forward(image) : layer.forward(image).relu()),
      x as Tensor,
    );
    const loss = enlarged.square().mean();
    loss.backward();
    return { loss, gradient: layers[0]!.weight.grad! };
  };
}

test("transposed convolutions between channels-last images are convolution kernels, with their biases and activations", () => {
  const calls = withNullGpu("bf16", (device) => {
    const [planned] = planAllSchedules(device, enlargingStep(device, [16, 32]));
    return planned!.stages.at(-1)!.calls;
  });
  const isForward = ({ op }: (typeof calls)[number]): boolean => op.startsWith("transposedConvolution");
  const results = calls.flatMap((call) =>
    call.work.kind === "convolution" && isForward(call) ? [call.work] : [],
  );
  assert.deepEqual(
    results.map(({ shape: { direction, dtype, channelsLast, depthwise, epilogue }, operands }) => [
      ...[direction, dtype, Boolean(channelsLast ?? depthwise?.isChannelsLast)],
      ...[epilogue !== undefined, operands.bias !== undefined],
    ]),
    [
      ["input-gradient", "bf16", true, true, true],
      ["input-gradient", "bf16", true, true, false],
      ["input-gradient", "f32", true, false, true],
    ],
  );
  assert.deepEqual(
    calls.filter(({ work, op }) => work.kind === "gemm" || /windows|fold|pad/.test(op)),
    [],
  );
  // Images of 24 channels are read and written as they are.
  const elements = 16 * 24 * 32 * 32;
  const copies = calls.filter(
    ({ op, work }) => work.kind === "row" && work.iteration.elements === elements && !op.includes("relu"),
  );
  assert.deepEqual(
    copies.map(({ op }) => op),
    [],
  );
});

describe("transposed convolutions on the emulated GPU", { skip: emulatorMissing }, () => {
  test("have the loss and gradient of eager code in float32, to the bit, and those of the CPU", () => {
    const sizes = [2, 8] as const;
    const eagerOn = (device: Device): number[] => {
      const step = enlargingStep(device, sizes);
      return device.step(() => numbersOf(step()));
    };
    // Few multiprocessors: small convolutions are worth tiles.
    const device = openEmulatorGpu({ multiprocessors: 4, seesSnapshots: false });
    const eager = eagerOn(device);
    assert.deepEqual(numbersOf(device.compile(enlargingStep(device, sizes))()), eager);
    for (const [index, expected] of eagerOn(openDevice()).entries())
      assert.ok(Math.abs(eager[index]! - expected) <= 1e-5, `${eager[index]} and ${expected}`);
  });

  test("have the second gradients of the CPU, and the results of sizes for which they are a GEMM", () => {
    const numbersOn = (device: Device): number[] =>
      device.step(() => {
        manualSeed(17);
        const [x, weight, bias] = [[2, 4, 5], [4, 3, 3], [3]].map((shape) =>
          randn(shape, { device, requiresGrad: true }),
        ) as [Tensor, Tensor, Tensor];
        const y = nn.functional.convTranspose1d(x, weight, bias, { stride: 2, padding: 1, outputPadding: 1 });
        const [gradient] = autograd.grad(y.square().sum(), [x], { createGraph: true });
        gradient!.square().sum().backward();
        // The output padding is as large as the stride.
        const widened = nn.functional.convTranspose1d(x, weight, bias, { dilation: 2, outputPadding: 1 });
        return [y, x.grad!, weight.grad!, bias.grad!, widened].flatMap(
          (value) => value.flatten().tolist() as number[],
        );
      });
    const device = openEmulatorGpu({ seesSnapshots: false });
    const expected = numbersOn(openDevice());
    for (const [index, value] of numbersOn(device).entries())
      assert.ok(
        Math.abs(value - expected[index]!) <= 1e-4 * Math.max(1, Math.abs(expected[index]!)),
        `${index}: ${value} and ${expected[index]}`,
      );
  });
});

/** Convolutions with group norms between them. The values have a mean that is large beside their spread. */
function groupNormStep(device: Device, [batch, channels, size]: readonly [number, number, number]) {
  manualSeed(19);
  const layers = [
    new nn.Conv2d(3, channels, 3, { padding: 1 }),
    new nn.GroupNorm(channels / 4, channels),
    new nn.SiLU(),
    new nn.Conv2d(channels, channels, 3, { padding: 1 }),
    new nn.GroupNorm(channels, channels),
    new nn.SiLU(),
    new nn.Conv2d(channels, 16, 3, { padding: 1 }),
  ].map((layer) => layer.to(device));
  const x = device.step(() => randn([batch, 3, size, size], { device }).keep());
  return () => {
    for (const layer of layers) layer.zeroGrad();
    const last = layers.reduce(
      (image, layer, at) => layer.forward(at === 1 ? image.add(30) : image),
      x as Tensor,
    );
    const loss = last.square().mean();
    loss.backward();
    return { loss, gradient: (layers[0] as nn.Conv2d).weight.grad! };
  };
}

test("group norms of channels-last images reduce them as they are, and copy none", () => {
  const [batch, channels, size] = [16, 32, 32] as const;
  const calls = withNullGpu("bf16", (device) => {
    const [planned] = planAllSchedules(device, groupNormStep(device, [batch, channels, size]));
    return planned!.stages.at(-1)!.calls;
  });
  const reductions = calls.flatMap(({ op, work }) =>
    work.kind === "column" && work.runs ? [[op, work.rows, work.columns, work.runs.length]] : [],
  );
  const shape = [size * size, batch * channels, channels];
  assert.deepEqual(reductions, [
    ...[1, 2].map(() => ["groupNorm", ...shape]),
    ...[1, 2].map(() => ["groupGradientSums", ...shape]),
  ]);
  const copies = calls.filter(
    ({ op, work }) =>
      work.kind === "row" &&
      work.iteration.elements === batch * channels * size ** 2 &&
      /^copy|^groupNorm$/.test(op),
  );
  assert.deepEqual(
    copies.map(({ op }) => op),
    [],
  );
});

describe("group norms of channels-last images on the emulated GPU", { skip: emulatorMissing }, () => {
  test("have the loss and gradient of eager code in float32, to the bit, and those of the CPU", () => {
    const sizes = [2, 16, 6] as const;
    const eagerOn = (device: Device): number[] => {
      const step = groupNormStep(device, sizes);
      return device.step(() => numbersOf(step()));
    };
    const device = openEmulatorGpu({ multiprocessors: 4, seesSnapshots: false });
    const eager = eagerOn(device);
    const compiled = device.compile(groupNormStep(device, sizes));
    assert.deepEqual(numbersOf(compiled()), eager);
    const { calls } = compiled.report()[0]!;
    assert.equal(calls.filter(({ kernel }) => kernel === "group statistics").length, 2);
    for (const [index, expected] of eagerOn(openDevice()).entries())
      assert.ok(Math.abs(eager[index]! - expected) <= 1e-5, `${eager[index]} and ${expected}`);
  });
});

function numbersOf({ loss, gradient }: { readonly loss: Tensor; readonly gradient: Tensor }): number[] {
  return [loss.item(), ...(gradient.flatten().tolist() as number[])];
}

/** 1 × 1 convolutions with a depthwise one between them, and a residual. */
function depthwiseStep(device: Device, width: number) {
  manualSeed(7);
  const [first, middle, last] = [
    new nn.Conv2d(3, width, 1),
    new nn.Conv2d(width, width, 3, { padding: 1, groups: width }),
    new nn.Conv2d(width, width, 1),
  ].map((layer) => layer.to(device));
  const x = device.step(() => randn([2, 3, 6, 6], { device }).keep());
  return () => {
    const hidden = first!.forward(x);
    const loss = hidden
      .add(last!.forward(middle!.forward(hidden).relu()))
      .square()
      .mean();
    loss.backward();
    return loss;
  };
}

/** The convolutions and copies of a step in bf16, after all passes. */
function depthwiseCalls(width: number) {
  return withNullGpu("bf16", (device) => {
    const [planned] = planAllSchedules(device, depthwiseStep(device, width));
    return planned!.stages.at(-1)!.calls;
  });
}

test("between channels-last convolutions a depthwise one is channels-last too, and reads and stores bf16 itself", () => {
  const calls = depthwiseCalls(24);
  const shapes = calls.flatMap(({ work }) =>
    work.kind === "convolution" && work.shape.depthwise ? [work.shape] : [],
  );
  const found = shapes.map(({ direction, dtype, depthwise, epilogue }) => [
    ...[direction, dtype, depthwise?.isChannelsLast, epilogue !== undefined],
    depthwise?.dtypes?.[direction === "input-gradient" ? "y" : "x"],
  ]);
  assert.deepEqual(found, [
    ["forward", "bf16", true, true, "bf16"],
    // The gradient of the relu is elementwise work, which stays f32.
    ["input-gradient", "bf16", true, false, "f32"],
    ["weight-gradient", "f32", true, false, "bf16"],
  ]);
  // Only the first input and weights are copied or converted.
  const pixels = 2 * 6 * 6;
  const copied = calls.filter(
    ({ op, work }) =>
      work.kind === "row" && /^(convolution\w*)$/.test(op) && work.iteration.elements >= 24 * pixels,
  );
  assert.deepEqual(copied, []);
});

test("a depthwise convolution reads bf16 from a kernel that also stores floats for the activation's gradient", () => {
  const calls = withNullGpu("bf16", (device) => {
    const layers = [
      new nn.Conv2d(8, 32, 1, { bias: false }),
      new nn.BatchNorm2d(32),
      new nn.ReLU6(),
      new nn.Conv2d(32, 32, 3, { padding: 1, groups: 32, bias: false }),
    ].map((layer) => layer.to(device));
    const x = device.step(() => randn([2, 8, 12, 12], { device }).keep());
    const [planned] = planAllSchedules(device, () => {
      layers
        .reduce((image, layer) => layer.forward(image), x as Tensor)
        .square()
        .mean()
        .backward();
    });
    return planned!.stages.at(-1)!.calls;
  });
  const read = calls.flatMap(({ work }) =>
    work.kind === "convolution" && work.shape.depthwise && work.shape.direction !== "input-gradient"
      ? [[work.shape.direction, work.shape.depthwise.dtypes?.x]]
      : [],
  );
  assert.deepEqual(read, [
    ["forward", "bf16"],
    ["weight-gradient", "bf16"],
  ]);
  const stored = calls.flatMap(({ op, work }) =>
    work.kind === "row" && op === "batchNorm + hardtanh"
      ? [work.kernel.outputs.map((output) => (typeof output === "object" ? output.dtype : output))]
      : [],
  );
  assert.deepEqual(stored, [["f32", "bf16"]]);
});

describe("a depthwise convolution in a step on the emulated GPU", { skip: emulatorMissing }, () => {
  test("has the loss of the CPU in every run of a compiled step in bf16", () => {
    const expected = openDevice().step(() => depthwiseStep(openDevice(), 16)().item());
    const device = openEmulatorGpu({ precision: "bf16", multiprocessors: 4, seesSnapshots: false });
    const step = depthwiseStep(device, 16);
    const compiled = device.compile(() => ({ loss: step() }), { passes: { autotune: false } });
    const losses = [0, 1].map(() => compiled().loss.item());
    assert.equal(losses[0], losses[1]);
    assert.ok(Math.abs(losses[0]! - expected) <= 1e-2 * expected, `${losses} and ${expected}`);
  });
});

/** Two layers with a pool between them. */
function twoLayers(device: Device) {
  manualSeed(5);
  const model = new nn.Sequential(
    new nn.Conv2d(3, 16, 3, { padding: 1 }),
    new nn.ReLU(),
    new nn.MaxPool2d(2),
    new nn.Conv2d(16, 16, 3, { padding: 1 }),
    new nn.ReLU(),
  ).to(device);
  const optimizer = new optim.SGD(model.parameters(), { lr: 0.5 });
  const x = device.step(() => randn([2, 3, 8, 8], { device }).keep());
  const step = () => {
    optimizer.zeroGrad();
    const loss = model.forward(x).mean([2, 3]).square().mean();
    loss.backward();
    optimizer.step();
    return { loss };
  };
  return { step };
}

function lossesOf(device: Device, isCompiled = false, passes: PassSettings = {}) {
  const { step } = twoLayers(device);
  const compiled = isCompiled ? device.compile(step, { passes }) : undefined;
  const losses = [0, 1, 2].map(() =>
    compiled ? compiled().loss.item() : device.step(() => step().loss.item()),
  );
  return { losses, calls: compiled?.report()[0]?.calls ?? [] };
}
