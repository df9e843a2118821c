/**
 * Weight copies: a compiled step keeps the bf16 copies of its weights from call to call, and the kernel that updates the weights stores
 * them. Every result has the bits of a step that converts its weights in each call, whoever writes the weights in between.
 */

import assert from "node:assert/strict";
import { afterEach, describe, test } from "node:test";
import {
  type CompiledStep,
  type Device,
  manualSeed,
  nn,
  noGrad,
  optim,
  randn,
  type Tensor,
  tensor,
  zeros,
} from "holdfast";
import { Guards } from "../src/autograd/index.js";
import { WeightCopies } from "../src/compile/execute/weight-copies.js";
import { type PassSettings, planStep, traceStep } from "../src/compile/index.js";
import { HoldfastError } from "../src/errors/index.js";
import { Budget, PersistentMemory } from "../src/runtime/index.js";
import { captureStep } from "../src/tensor/compiled/captured-step.js";
import { latestPlanOf } from "../src/tensor/compiled/compiled-step.js";
import { runtimeOf } from "../src/tensor/runtime-of.js";
import { Gpt } from "./support/common-models/models.js";
import { openDevice } from "./support/devices.js";
import { effort } from "./support/effort.js";
import { emulatorMissing, openEmulator } from "./support/emulator.js";
import { openEmulatorGpu } from "./support/emulator-gpu.js";
import { issuedBy } from "./support/issued-work.js";
import { withNullGpu } from "./support/null-gpu.js";
import { withMethods } from "./support/replaced-methods.js";
import { widthWorkloads } from "./support/width-workloads.js";

const skip = emulatorMissing;
const [rows, features, width, classes] = [8, 32, 64, 16] as const;

type Step = CompiledStep<[Tensor, Tensor], { loss: Tensor }>;
type MakeOptimizer = (parameters: readonly Tensor[]) => optim.Optimizer;

interface Training {
  readonly device: Device;
  readonly model: nn.Module & { forward(x: Tensor): Tensor };
  readonly optimizer: optim.Optimizer;
  readonly train: Step;
  /** Adds gradients and updates nothing. */
  readonly accumulate: Step;
  readonly evaluate: CompiledStep<[Tensor], Tensor>;
  /** Trains the same weights with another optimizer, and converts them in each call. */
  readonly retrain: Step;
  readonly eager: (x: Tensor, y: Tensor) => void;
}

const adamW: MakeOptimizer = (parameters) => new optim.AdamW(parameters, { lr: 0.02 });

function prepare(device: Device, passes: PassSettings, makeOptimizer: MakeOptimizer = adamW): Training {
  manualSeed(5);
  const model = new nn.Sequential(
    new nn.Linear(features, width),
    new nn.GELU(),
    new nn.Linear(width, width),
    new nn.GELU(),
    new nn.Linear(width, classes),
  ).to(device);
  const optimizer = makeOptimizer(model.parameters());
  const other = new optim.SGD(model.parameters(), { lr: 0.3 });
  const addGradients = (x: Tensor, y: Tensor) => {
    const loss = nn.functional.crossEntropy(model.forward(x), y);
    loss.backward();
    return { loss };
  };
  const trainWith =
    (used: optim.Optimizer) =>
    (x: Tensor, y: Tensor): { loss: Tensor } => {
      const { loss } = addGradients(x, y);
      optim.clipGradNorm(model.parameters(), 0.5);
      used.step();
      used.zeroGrad();
      return { loss };
    };
  const settings = { passes: { autotune: false, ...passes } };
  return {
    ...{ device, model, optimizer },
    train: device.compile(trainWith(optimizer), settings),
    accumulate: device.compile(addGradients, settings),
    evaluate: device.compile((x: Tensor) => noGrad(() => model.forward(x)), settings),
    retrain: device.compile(trainWith(other), { passes: { autotune: false, weightCopies: false } }),
    eager: (x, y) => device.step(() => void trainWith(other)(x, y)),
  };
}

/** A batch that is the same in every training. */
function batchOf(device: Device, seed: number, size: number = rows): [Tensor, Tensor] {
  manualSeed(seed);
  const labels = Int32Array.from({ length: size }, (_, row) => (row * 7 + seed) % classes);
  return [randn([size, features], { device }), tensor(labels, { device })];
}

const weightsOf = ({ model }: Training): string[] =>
  model.parameters().map((weights) => [...weights.dataSync()].join());

/** The losses of some steps with work between them, and the weights at the end. */
function trained(training: Training, between: (training: Training, step: number) => void = () => {}) {
  const losses = [0, 1, 2, 3].map((step) => {
    const { loss } = training.train(...batchOf(training.device, step));
    const number = loss.item();
    between(training, step);
    return number;
  });
  return [...losses, ...weightsOf(training)];
}

const callsOf = (step: object): readonly string[] =>
  latestPlanOf(step)?.planned.schedule.calls.map(({ call }) => call.op) ?? [];

/** How many refreshes a function issues: conversions outside of graphs, whose target is a weight copy. */
function refreshesOf(device: Device, body: () => void): number {
  return issuedBy(runtimeOf(device), body).filter((command) => {
    if (command.kind !== "launch") return false;
    const { op, arguments: values } = command.request;
    const labels = values.map((value) => (typeof value === "number" ? "" : value.label));
    return op === "f32 to bf16" && labels.some((label) => label.startsWith("bf16 copy of "));
  }).length;
}

const open = (capture: "on" | "off" | "auto" = "on"): Device =>
  openEmulatorGpu({ precision: "bf16", capture, seesSnapshots: false });

afterEach(() => {
  if (!skip) openEmulator().reset();
});

/** Work that writes weights between the calls of a step. Each changes what the next call computes. */
const writers: Readonly<Record<string, (training: Training, step: number) => void>> = {
  "an in-place op": ({ model }) => noGrad(() => model.parameters()[0]?.mul_(1.5)),
  "an in-place op on a view": ({ model }) => noGrad(() => model.parameters()[2]?.slice([1, 5]).add_(0.25)),
  "a fill": ({ model }) => noGrad(() => model.parameters()[0]?.zero_()),
  "a copy": ({ model, device }) =>
    noGrad(() =>
      model
        .parameters()[2]
        ?.copy_(tensor(new Float32Array(width * width).fill(0.02), { device }).reshape([width, width])),
    ),
  "new initial values": ({ model }) => {
    for (const weights of model.parameters().slice(0, 1))
      (weights as nn.Parameter).initialize(nn.init.constant(0.05));
  },
  loadStateDict: ({ model }) => {
    const state = Object.entries(model.stateDict()).map(([name, { shape, dtype }]) => {
      const values = Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, index) =>
        Math.sin(index),
      );
      return [name, { dtype, shape, bytes: new Uint8Array(values.buffer) }] as const;
    });
    model.loadStateDict(Object.fromEntries(state));
  },
  "an eager update": ({ eager, device }, step) => eager(...batchOf(device, 100 + step)),
  "an eager update in a captured graph": ({ model, device }) => {
    const captured = captureStep(device, "decay", 1024 * 1024, () =>
      noGrad(() => model.parameters()[0]?.mul_(0.5)),
    );
    captured.replay();
    captured.close();
  },
  "a compiled step without the copies": ({ retrain, device }, step) =>
    retrain(...batchOf(device, 100 + step)),
};

/** Every third case, from the first; all of them in the long tests. */
const sampled = <Case>(cases: readonly Case[]): readonly Case[] =>
  effort({ quick: cases.filter((_, index) => index % 3 === 0), thorough: cases });

describe("a compiled step in bf16 that keeps its weight copies", { skip }, () => {
  const optimizers: Readonly<Record<string, MakeOptimizer>> = {
    AdamW: adamW,
    Adam: (parameters) => new optim.Adam(parameters, { lr: 0.02, weightDecay: 0.1 }),
    SGD: (parameters) => new optim.SGD(parameters, { lr: 0.1 }),
    "SGD with momentum": (parameters) => new optim.SGD(parameters, { lr: 0.1, momentum: 0.9 }),
    "Lion, which changes the weights before its moment": (parameters) =>
      new optim.Lion(parameters, { lr: 0.01 }),
    "AdamW with two groups": (parameters) => {
      const isMatrix = ({ shape }: Tensor): boolean => shape.length > 1;
      const biases = { params: parameters.filter((parameter) => !isMatrix(parameter)), weightDecay: 0 };
      return new optim.AdamW([{ params: parameters.filter(isMatrix) }, biases], { lr: 0.02 });
    },
  };
  for (const [name, makeOptimizer] of sampled(Object.entries(optimizers))) {
    test(`has the bits of one that converts them: ${name}`, () => {
      const device = open();
      const [kept, converting] = [{}, { weightCopies: false }].map((passes) =>
        prepare(device, passes, makeOptimizer),
      ) as [Training, Training];
      const refreshes = refreshesOf(device, () => assert.deepEqual(trained(kept), trained(converting)));
      assert.equal(refreshes, 2, "before the capture, which writes the weights, and after it");
      assert.ok(callsOf(converting.train).some((op) => op.includes("linear of 3")));
      assert.ok(!callsOf(kept.train).some((op) => op.includes("linear of 3")));
      assert.ok(callsOf(kept.train).some((op) => op.includes("bf16 copy")));
    });
  }

  for (const capture of ["off", "auto"] as const) {
    test(`has these bits with capture ${capture}`, () => {
      const device = open(capture);
      const write = writers["an in-place op"];
      const [kept, converting] = [{}, { weightCopies: false }].map((passes) =>
        trained(prepare(device, passes), write),
      );
      assert.deepEqual(kept, converting);
    });
  }

  test("has these bits with measured algorithms, whose biases are bf16 too", () => {
    const device = open();
    const [kept, converting] = [{}, { weightCopies: false }].map((passes) => {
      const training = prepare(device, { autotune: true, ...passes });
      return { numbers: trained(training, writers["an in-place op"]), calls: callsOf(training.train) };
    });
    assert.deepEqual(kept?.numbers, converting?.numbers);
    assert.ok((kept?.calls.length ?? 0) <= (converting?.calls.length ?? 0));
  });

  for (const [name, write] of sampled(Object.entries(writers))) {
    test(`refreshes them after ${name}; without the refresh, the result would differ`, () => {
      const device = open();
      const expected = trained(prepare(device, { weightCopies: false }), write);
      assert.deepEqual(trained(prepare(device, {}), write), expected);
      const stale = withMethods(WeightCopies.prototype, { keepCurrent: (replayable) => replayable }, () =>
        trained(prepare(device, {}), write),
      );
      assert.notDeepEqual(stale, expected, "the test does not see stale copies");
    });
  }

  test("shares them with all steps of these weights: a refresh is due only after other work has written them", () => {
    const device = open();
    const bytesOf = (): number => device.diagnostics().budget.usedByLabel["weight copies"];
    const training = prepare(device, {});
    const { train, accumulate, evaluate, model } = training;
    const batch = batchOf(device, 1);
    const small = batchOf(device, 2, 4);
    trained(training);
    for (const first of [() => accumulate(...batch), () => evaluate(batch[0]), () => train(...small)])
      first();
    const bytes = bytesOf();
    assert.ok(bytes > 0);
    const steps = (): void => {
      train(...batch);
      accumulate(...batch);
      evaluate(batch[0]);
      train(...small);
      accumulate(...batch);
      train(...batch);
    };
    steps();
    assert.equal(refreshesOf(device, steps), 0);
    assert.equal(bytesOf(), bytes, "one copy for all");
    noGrad(() => model.parameters()[0]?.mul_(2));
    assert.equal(
      refreshesOf(device, () => evaluate(batch[0])),
      1,
    );
    assert.equal(refreshesOf(device, steps), 0);
    train.close();
    assert.equal(bytesOf(), bytes, "other steps hold it");
    assert.equal(
      refreshesOf(device, () => evaluate(batch[0])),
      0,
    );
    accumulate.close();
    evaluate.close();
    assert.equal(bytesOf(), 0);
  });

  test("has the bits of steps that convert, in turns with steps for other shapes, steps without an update, and evaluation", () => {
    const device = open();
    const [kept, converting] = [{}, { weightCopies: false }].map((passes) => {
      const training = prepare(device, passes);
      const results = trained(training, ({ train, accumulate, evaluate, retrain }, step) => {
        const [batch, small] = [batchOf(device, 50 + step), batchOf(device, 60 + step, 4)];
        accumulate(...batch);
        train(...small);
        retrain(...small);
        evaluate(batch[0]);
      });
      return [...results, [...training.evaluate(batchOf(device, 7)[0]).dataSync()].join()];
    });
    assert.deepEqual(kept, converting);
  });

  test("keeps them current when an update is skipped because the norm is not finite", () => {
    const device = open();
    const [kept, converting] = [{}, { weightCopies: false }].map((passes) => {
      const training = prepare(device, passes);
      const results = trained(training, ({ train }, step) => {
        const [x, y] = batchOf(device, 80 + step);
        if (step === 1) train(x.mul(Number.NaN), y);
      });
      assert.equal(training.train.skipped, 1);
      return results;
    });
    assert.deepEqual(kept, converting);
  });

  test("keeps its bits when its calls are timed", () => {
    const device = open();
    const time = ({ train }: Training, step: number): void => {
      if (step === 1) train.report({ times: true });
    };
    const [kept, converting] = [{}, { weightCopies: false }].map((passes) =>
      trained(prepare(device, passes), time),
    );
    assert.deepEqual(kept, converting);
  });

  test("shows the copies and their memory", () => {
    const device = open();
    const { train } = prepare(device, {});
    train(...batchOf(device, 1));
    const text = train.explain();
    assert.match(text, /^ +\d+ → +\d+ {2}weightCopies, converted weights are kept from call to call/m);
    assert.match(text, /^ +[\d.]+ KiB {2}bf16 copy of Sequential$/m);
    assert.match(text, /mul \+ AdamW \+ bf16 copy/);
    assert.ok(device.diagnostics().budget.usedByLabel["weight copies"] > 0);
  });

  test("keeps the copies of tied weights, whose embedding reads them as f32", () => {
    const device = open();
    const [kept, converting] = [{}, { weightCopies: false }].map((passes) => trainGpt(device, passes));
    assert.deepEqual(kept?.numbers, converting?.numbers);
    assert.ok(
      kept?.calls.some((op) => op.includes("bf16 copy")),
      kept?.calls.join(),
    );
  });
});

/** A GPT whose head is its embedding; its weights are changed from outside after the second step. */
function trainGpt(device: Device, passes: PassSettings) {
  manualSeed(3);
  const sizes = { vocabulary: 24, context: 8, width: 32, layers: 1, heads: 2, dropout: 0 };
  const model = new Gpt({ ...sizes, bias: true, gelu: "tanh" }).to(device);
  const optimizer = adamW(model.parameters());
  const step = device.compile(
    (text: Tensor, next: Tensor) => {
      const logits = model.forward(text).reshape([-1, sizes.vocabulary]);
      const loss = nn.functional.crossEntropy(logits, next);
      loss.backward();
      optimizer.step();
      optimizer.zeroGrad();
      return { loss };
    },
    { passes: { autotune: false, ...passes } },
  );
  const letters = (seed: number, shape: readonly number[]): Tensor =>
    tensor(
      Int32Array.from({ length: 16 }, (_, index) => (index * 5 + seed) % sizes.vocabulary),
      { device },
    ).reshape(shape);
  const losses = [0, 1, 2, 3].map((index) => {
    const loss = step(letters(index, [2, 8]), letters(index + 1, [16])).loss.item();
    if (index === 1) noGrad(() => model.parameters()[0]?.mul_(1.25));
    return loss;
  });
  const weights = model.parameters().map((parameter) => [...parameter.dataSync()].join());
  return { numbers: [...losses, ...weights], calls: callsOf(step) };
}

describe("a compiled step that converts weights by itself", () => {
  /** Computes in f32 with weights that are kept as bf16. */
  function runConverted(device: Device, passes: PassSettings) {
    manualSeed(9);
    const model = new nn.Linear(features, width).to(device, "bf16");
    const optimizer = adamW(model.parameters());
    const step = device.compile(
      (x: Tensor) => {
        const y = x.matmul(model.weight.to("f32").t()); // [B, W]
        const loss = y.square().mean();
        loss.backward();
        optimizer.step();
        optimizer.zeroGrad();
        return { loss };
      },
      { passes },
    );
    const losses = [0, 1, 2, 3].map((index) => {
      const loss = step(batchOf(device, index)[0]).loss.item();
      if (index === 1) noGrad(() => model.weight.mul_(0.5));
      return loss;
    });
    return { losses, weights: [...model.weight.dataSync()].join(), calls: callsOf(step) };
  }

  test("keeps the copies too, with the same bits", () => {
    const device = openDevice();
    const [kept, converting] = [runConverted(device, {}), runConverted(device, { weightCopies: false })];
    assert.ok(
      kept.calls.some((op) => op.includes("f32 copy")),
      kept.calls.join(),
    );
    assert.ok(kept.calls.length < converting.calls.length);
    assert.deepEqual(kept.losses, converting.losses);
    assert.equal(kept.weights, converting.weights);
    const stale = withMethods(WeightCopies.prototype, { keepCurrent: (replayable) => replayable }, () =>
      runConverted(device, {}),
    );
    assert.notDeepEqual(stale.losses, converting.losses, "the test does not see stale copies");
  });
});

describe("planning for a GPU", () => {
  /** A step with one layer, whose weights are read at its start. Later values take more memory than the weights if there are many rows. */
  function keepsCopy(rows: number): boolean {
    return withNullGpu("bf16", (device) => {
      const { runtime } = device;
      const layer = new nn.Linear(1024, 64, { bias: false });
      layer.weight.initialize(nn.init.zeros());
      layer.to(device);
      const [x, y] = [zeros([rows, 1024], { device }), zeros([rows, 64], { device })];
      for (const input of [x, y]) device.keep(input);
      const step = (): void => {
        const h = layer.forward(x); // [R, 64]
        y.copy_(h.matmul(h.t()).softmax(-1).matmul(h));
      };
      const trace = traceStep(runtime, () => device.inTracedStep(() => noGrad(step)));
      const { schedule, copies } = planStep(runtime, trace);
      const buffers = copies.addedBy(schedule.calls.map(({ call }) => call));
      copies.close();
      return buffers.length > 0;
    });
  }

  test("keeps no copy that would not be live at the memory peak", () => {
    assert.ok(keepsCopy(16));
    assert.ok(!keepsCopy(2048));
  });

  test("keeps no copy if memory is short", () => {
    const isShort: Partial<Budget> = { fitsWithoutPressure: () => false };
    assert.ok(!withMethods(Budget.prototype, isShort, () => keepsCopy(16)));
    const { place } = PersistentMemory.prototype;
    const isFragmented: Partial<PersistentMemory> = {
      place(this: PersistentMemory, label, ...rest) {
        if (label === "weight copies") throw new HoldfastError("OUT_OF_MEMORY", "no gap is large enough");
        return place.call(this, label, ...rest);
      },
    };
    assert.ok(!withMethods(PersistentMemory.prototype, isFragmented, () => keepsCopy(16)));
  });

  for (const [name, size, batch] of [
    ["gpt", 64, 4],
    ["characters", 48, 8],
    ["crossAsset", 64, 16],
  ] as const) {
    test(`needs neither more launches nor more memory with weight copies: ${name}`, () => {
      withNullGpu("bf16", (device) => {
        const { runtime } = device;
        const { step } = widthWorkloads[name](device, { width: size, batch, isPlannedOnly: true });
        const guards = new Guards();
        const trace = traceStep(runtime, () =>
          device.inTracedStep(() => guards.watch(device, () => void step())),
        );
        guards.undo();
        const [kept, converting] = [{}, { weightCopies: false }].map((passes) => {
          const { memory, schedule, copies } = planStep(runtime, trace, passes);
          const copied = memory.persistent.filter(({ label }) => label.startsWith("bf16 copy"));
          const bytes = copied.reduce((sum, region) => sum + region.bytes, 0);
          copies.close();
          return { bytes, lowerBound: memory.lowerBound, calls: schedule.calls.length };
        }) as [Planned, Planned];
        assert.ok(kept.bytes > 0);
        assert.equal(converting.bytes, 0);
        assert.ok(kept.calls <= converting.calls);
        const more = kept.lowerBound + kept.bytes - converting.lowerBound;
        assert.ok(more <= runtime.device.granularity, `${more} bytes more`);
      });
    });
  }
});

interface Planned {
  readonly bytes: number;
  readonly lowerBound: number;
  readonly calls: number;
}
