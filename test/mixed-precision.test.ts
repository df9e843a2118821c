/** autocast and GradScaler: dtypes of op families, and bits of eager and compiled steps, on the CPU and the emulated GPU. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  autocast,
  captureCheckpoint,
  cat,
  checkpoint,
  type Device,
  isAutocastEnabled,
  type NestedList,
  nn,
  optim,
  randn,
  restoreCheckpoint,
  type Tensor,
  tensor,
} from "holdfast";
import { unknownAutocastNames } from "../src/tensor/autocast.js";
import { openDevice } from "./support/devices.js";
import { emulatorGpuMissing, openEmulatorGpu } from "./support/emulator-gpu.js";
import { rejects } from "./support/rejects.js";
import { readRepositoryFile } from "./support/repository.js";
import { testDevice } from "./support/test-device.js";

const cpu = openDevice({ threads: 1 });
const data = (device: Device) =>
  tensor(
    [
      [1, 2],
      [3, -4],
      [0.5, 0.25],
    ],
    { device },
  );

describe("autocast", () => {
  test("casts matrix products to the region's dtype, and sums, norms and losses to f32", () => {
    const x = data(cpu);
    const half = x.to("bf16");
    const attend = (q: Tensor): Tensor =>
      nn.functional.scaledDotProductAttention(
        q.reshape([1, 3, 2]),
        q.reshape([1, 3, 2]),
        q.reshape([1, 3, 2]),
      );
    const dtypes = (): string[] =>
      [
        ...[x.matmul(x.t()), nn.functional.linear(x, x), attend(x), x.relu(), half.relu(), half.add(x)],
        ...[half.exp(), half.sum(), half.softmax(-1), half.norm(), half.mean(), half.pow(2)],
        ...[nn.functional.mseLoss(half, x), nn.functional.layerNorm(half, [2])],
        ...[cat([half, x]), x.to("f64").matmul(x.to("f64").t())],
      ].map(({ dtype }) => dtype);
    assert.equal(
      autocast(cpu, { dtype: "f16" }, dtypes).join(" "),
      "f16 f16 f16 f32 bf16 f32 f32 f32 f32 f32 f32 f32 f32 f32 f32 f64",
    );
    const inside = autocast(cpu, {}, () => autocast(cpu, { enabled: false }, () => x.matmul(x.t()).dtype));
    assert.deepEqual([inside, isAutocastEnabled(cpu)], ["f32", false]);
    assert.deepEqual(unknownAutocastNames(), []);
    rejects("BAD_DTYPE", () => autocast(cpu, { dtype: "f32" as never }, () => 0), /not a half float/);
    rejects("BAD_ARGUMENT", () => autocast(cpu, {}, async () => 0), /async function/);
  });

  test("runs layers of each kind forward and backward, with f32 gradients", () => {
    const layers: readonly [nn.Module & { forward(x: Tensor): unknown }, readonly number[]][] = [
      [new nn.Sequential(new nn.Conv2d(2, 4, 3), new nn.BatchNorm2d(4), new nn.MaxPool2d(2)), [2, 2, 6, 6]],
      [new nn.TransformerEncoderLayer(8, 2), [2, 3, 8]],
      [new nn.LSTM(3, 4), [2, 3, 3]],
    ];
    for (const [layer, shape] of layers) {
      layer.to(cpu);
      for (const dtype of ["bf16", "f16"] as const) {
        cpu.step(() => {
          const y = autocast(cpu, { dtype }, () => layer.forward(randn(shape, { device: cpu }))) as
            | Tensor
            | [Tensor];
          (Array.isArray(y) ? y[0] : y).sum().backward();
          const gradients = [...layer.parameters()].map(({ grad }) => grad?.dtype);
          assert.deepEqual(new Set(gradients), new Set(["f32"]), layer.constructor.name);
        });
      }
    }
  });

  test("gives weights f32 gradients, with the same bits in compiled and checkpointed code, and guards the region", () => {
    const model = new nn.Sequential(
      new nn.Linear(2, 8),
      new nn.GELU(),
      new nn.LayerNorm(8),
      new nn.Linear(8, 1),
    ).to(cpu);
    const forward = (x: Tensor): Tensor => model.forward(x).square().mean();
    const train = (loss: (x: Tensor) => Tensor) => (x: Tensor) => {
      model.zeroGrad();
      const result = autocast(cpu, { dtype: "bf16" }, () => loss(x));
      result.backward();
      return [result];
    };
    const read = (results: readonly Tensor[]): unknown => [
      results.map((result) => result.item()),
      [...model.parameters()].map(({ grad }) => [grad?.dtype, grad?.tolist()]),
    ];
    const eager = cpu.step(() => read(train(forward)(data(cpu))));
    assert.ok(JSON.stringify(eager).includes('"f32"') && !JSON.stringify(eager).includes('"bf16"'));
    const compiled = cpu.compile(train(forward));
    assert.deepEqual(read(compiled(data(cpu))), eager);
    assert.deepEqual(
      cpu.step(() => read(train((x) => checkpoint(forward, x))(data(cpu)))),
      eager,
    );
    const product = cpu.compile((x: Tensor) => [x.matmul(x.t())]);
    const dtypeOf = () => product(data(cpu))[0]!.dtype;
    assert.deepEqual([dtypeOf(), autocast(cpu, {}, dtypeOf), dtypeOf()], ["f32", "bf16", "f32"]);
  });
});

interface OracleRun {
  readonly losses: readonly number[];
  readonly gradients: Readonly<Record<string, NestedList>>;
}
interface Oracle extends Readonly<Record<"bf16" | "f32", OracleRun>> {
  readonly x: NestedList;
  readonly y: NestedList;
  readonly weights: Readonly<Record<string, NestedList>>;
}

describe("autocast, compared with PyTorch's", () => {
  const oracle = JSON.parse(readRepositoryFile("test/oracle/autocast.json")) as Oracle;
  // The forward pass has the same roundings. In backward, PyTorch's kernels round sums at other places.
  for (const [dtype, tolerance] of [
    ["bf16", 4e-3],
    ["f32", 1e-6],
  ] as const) {
    test(`three steps in ${dtype} have its losses and gradients`, () => {
      const model = new nn.Sequential(new nn.Linear(6, 16), new nn.ReLU(), new nn.Linear(16, 2)).to(cpu);
      model.loadStateDict(
        Object.fromEntries(
          Object.entries(oracle.weights).map(([name, values]) => [name, tensor(values, { device: cpu })]),
        ),
      );
      const optimizer = new optim.SGD(model.parameters(), { lr: 0.05 });
      const [x, y] = [tensor(oracle.x, { device: cpu }), tensor(oracle.y, { device: cpu })];
      const losses = [1, 2, 3].map(() => {
        optimizer.zeroGrad();
        const loss = autocast(cpu, { enabled: dtype === "bf16" }, () =>
          nn.functional.mseLoss(model.forward(x), y),
        );
        loss.backward();
        optimizer.step();
        return loss.item();
      });
      const expected = oracle[dtype];
      requireNear(losses.slice(0, 1), expected.losses.slice(0, 1), 1e-6);
      requireNear(losses, expected.losses, tolerance);
      for (const [name, parameter] of model.namedParameters())
        requireNear([...parameter.grad!.dataSync()], flatten(expected.gradients[name]!), 10 * tolerance);
    });
  }
});

const flatten = (list: NestedList): number[] =>
  Array.isArray(list) ? list.flatMap(flatten) : [Number(list)];

function requireNear(actual: readonly number[], expected: readonly number[], tolerance: number): void {
  assert.equal(actual.length, expected.length);
  const scale = Math.max(...expected.map(Math.abs));
  const worst = Math.max(...expected.map((value, index) => Math.abs(actual[index]! - value))) / scale;
  assert.ok(worst <= tolerance, `an error of ${worst}; at most ${tolerance} is expected`);
}

interface Training {
  readonly weights: readonly Tensor[];
  readonly scaler: optim.GradScaler;
  readonly optimizers: readonly optim.Optimizer[];
  readonly step: (factor: Tensor) => readonly [Tensor];
  read(): unknown;
}

/** Two optimizers. The factor of the second loss is infinite now and then. */
function prepare(device: Device, clips: boolean): Training {
  const weights = [0, 1].map(() => tensor([1, -2], { device, requiresGrad: true }));
  const optimizers = weights.map((weight) => new optim.AdamW([weight], { lr: 0.1 }));
  const scaler = new optim.GradScaler({ initScale: 1024, growthInterval: 2, device });
  const step = (factor: Tensor): readonly [Tensor] => {
    for (const optimizer of optimizers) optimizer.zeroGrad();
    const [first, second] = weights.map((weight) => weight.to("f16").square().sum());
    scaler.scale(first!).backward();
    scaler.scale(second!.mul(factor)).backward();
    for (const optimizer of optimizers) scaler.unscale_(optimizer);
    if (clips) optim.clipGradNorm(weights, 0.5, { errorIfNonfinite: device.runtime.isTracing });
    for (const optimizer of optimizers) scaler.step(optimizer);
    scaler.update();
    return [first!];
  };
  const read = (): unknown => [
    scaler.getScale(),
    weights.map((weight) => weight.tolist()),
    optimizers.map((optimizer) => optimizer.stateDict()["0.step"]?.item()),
    scaler.stateDict()["growthTracker"]?.item(),
  ];
  return { weights, scaler, optimizers, step, read };
}

const factors = [1, 1, Number.POSITIVE_INFINITY, 1, Number.NaN, 1, 1];

function checkScaler(device: Device): void {
  const run = (training: Training, step: Training["step"], values = factors): unknown[] =>
    values.map((value) => {
      step(tensor(value, { device }));
      return training.read();
    });
  const [eager, compiled] = [prepare(device, false), prepare(device, false)];
  const inStep = (factor: Tensor): readonly [Tensor] => device.step(() => eager.step(factor));
  const expected = run(eager, inStep);
  assert.deepEqual(
    expected.map((state) => (state as unknown[])[0]),
    [1024, 2048, 1024, 1024, 512, 512, 1024],
  );
  // The first optimizer steps every time, the second one only with finite gradients.
  assert.deepEqual((expected.at(-1) as unknown[])[2], [7, 5]);
  const step = device.compile(compiled.step);
  assert.deepEqual(run(compiled, step as Training["step"]), expected);
  assert.equal(step.skipped, 2);
}

describe("GradScaler", () => {
  test(`skips updates, shrinks and grows with the bits of eager code on ${testDevice}`, () =>
    checkScaler(cpu));
  test("does so on the emulated GPU", { skip: emulatorGpuMissing }, () => checkScaler(openEmulatorGpu()));

  test("shrinks its scale also if clipping skips the whole step", () => {
    const training = prepare(cpu, true);
    const step = cpu.compile(training.step);
    for (const factor of [1, Number.POSITIVE_INFINITY]) step(tensor(factor, { device: cpu }));
    assert.equal(training.scaler.getScale(), 512);
    assert.deepEqual((training.read() as unknown[])[2], [1, 1]);
  });

  test("resumes exactly, and rejects a second step without update()", () => {
    const [whole, first, second] = [prepare(cpu, false), prepare(cpu, false), prepare(cpu, false)];
    const run = ({ step }: Training, value: number) => cpu.step(() => step(tensor(value, { device: cpu })));
    for (const factor of factors) run(whole, factor);
    for (const factor of factors.slice(0, 4)) run(first, factor);
    const partsOf = ({ optimizers: [a, b], scaler }: Training) => ({ optimizer: { a: a!, b: b! }, scaler });
    restoreCheckpoint(captureCheckpoint(partsOf(first)), partsOf(second));
    for (const [index, weight] of second.weights.entries())
      cpu.write(weight, first.weights[index]!.dataSync());
    for (const factor of factors.slice(4)) run(second, factor);
    assert.deepEqual(second.read(), whole.read());
    rejects("BAD_STATE", () => second.scaler.loadStateDict({}), /"scale" is missing/);
    const [optimizer] = second.optimizers;
    second.scaler.step(optimizer!);
    rejects("BAD_ARGUMENT", () => second.scaler.step(optimizer!), /since the last update/);
    const off = new optim.GradScaler({ enabled: false });
    const loss = tensor(2, { device: cpu });
    assert.deepEqual([off.scale(loss), off.getScale(), off.stateDict()], [loss, 1, {}]);
  });
});
