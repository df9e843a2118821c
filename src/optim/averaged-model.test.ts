/** Averages of weights: their values, exact resume, compiled steps, and models that have them for a while. Groups that are added later. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { rejects } from "../../test/support/rejects.js";
import { sameBytes } from "../../test/support/same-bytes.js";
import { noGrad } from "../autograd/index.js";
import * as nn from "../nn/index.js";
import { type Tensor, tensor } from "../tensor/index.js";
import * as optim from "./index.js";

const cpu = openStrictDevice();
const { AveragedModel, getEmaMultiAvgFn, getSwaMultiAvgFn } = optim.swaUtils;

const makeModel = (dtype: "f32" | "f64" | "bf16" = "f64") =>
  new nn.Sequential(new nn.Linear(3, 5), new nn.Tanh(), new nn.Linear(5, 2)).to(cpu, dtype);

type Model = ReturnType<typeof makeModel>;

const weightsOf = (model: Model): number[] => model.parameters().flatMap((one) => [...one.dataSync()]);

function set(model: Model, value: number): void {
  noGrad(() => {
    for (const parameter of model.parameters()) parameter.fill_(value);
  });
}

/** A training step that also averages. */
function makeStep(model: Model, averaged: optim.swaUtils.AveragedModel, isCompiled: boolean): () => void {
  const sgd = new optim.SGD(model.parameters(), { lr: 0.3 });
  const x = tensor([[1, -2, 0.5]], { device: cpu, dtype: model.parameters()[0]!.dtype });
  const body = (): void => {
    sgd.zeroGrad();
    model.forward(x).square().sum().backward();
    sgd.step();
    averaged.updateParameters();
  };
  return isCompiled ? cpu.compile(body, { passes: { autotune: false } }) : () => cpu.step(body);
}

const kinds = {
  "the mean of all weights": { multiAvgFn: getSwaMultiAvgFn(), share: (count: number) => 1 / count },
  "an exponential average": {
    multiAvgFn: getEmaMultiAvgFn(0.8),
    share: (count: number) => (count === 1 ? 1 : 0.2),
  },
} as const;

for (const [what, { multiAvgFn, share }] of Object.entries(kinds)) {
  for (const isCompiled of [false, true]) {
    test(`${what}, ${isCompiled ? "compiled" : "eager"}: five updates give the formula's values in f64`, () => {
      const model = makeModel();
      const averaged = new AveragedModel(model, { multiAvgFn });
      const step = makeStep(model, averaged, isCompiled);
      const expected = weightsOf(model).map(() => 0);
      for (const count of [1, 2, 3, 4, 5]) {
        step();
        for (const [index, weight] of weightsOf(model).entries())
          expected[index]! += (weight - expected[index]!) * share(count);
      }
      const trained = weightsOf(model);
      averaged.use(() => {
        for (const [index, weight] of weightsOf(model).entries())
          assert.ok(Math.abs(weight - expected[index]!) <= 1e-14, `${index}: ${weight}, ${expected[index]}`);
      });
      assert.deepEqual(weightsOf(model), trained, "restored");
      assert.equal(averaged.nAveraged, 5);
    });
  }
}

test("averages of bf16 weights are f32: changes below a bf16 ULP add up", () => {
  const model = makeModel("bf16");
  const averaged = new AveragedModel(model, { multiAvgFn: getEmaMultiAvgFn(0.999) });
  set(model, 1);
  averaged.updateParameters();
  set(model, 2);
  averaged.updateParameters();
  const { "0.average": average } = averaged.stateDict();
  assert.ok(Math.abs(average!.dataSync()[0]! - 1.001) < 1e-6);
});

test("a saved and loaded state continues with the same bits, also on top of frozen weights", () => {
  const [first, second] = [makeModel("f32"), makeModel("f32")];
  second.loadStateDict(first.stateDict());
  first.parameters()[0]!.requiresGrad = false;
  const averaged = [first, second].map((model) => new AveragedModel(model));
  const [one, two] = averaged as [optim.swaUtils.AveragedModel, optim.swaUtils.AveragedModel];
  one.updateParameters();
  two.loadStateDict(one.stateDict());
  for (const model of [first, second]) set(model, 3);
  for (const each of averaged) each.updateParameters();
  const [before, after] = averaged.map((each) => Object.entries(each.stateDict()));
  for (const [index, [name, value]] of before!.entries())
    sameBytes((after![index] as [string, Tensor])[1].dataSync(), value.dataSync(), name);
});

test("an asynchronous function has the averages until it ends; inside, neither updates nor another use are allowed", async () => {
  const model = makeModel();
  const averaged = new AveragedModel(model);
  averaged.updateParameters();
  const [parameter] = model.parameters();
  set(model, 7);
  const before = cpu.runtime.budget.used;
  const promise = averaged.use(async () => {
    rejects("BAD_STATE", () => averaged.updateParameters(), /inside use/);
    rejects("BAD_STATE", () => averaged.use(() => 0), /inside use/);
    await Promise.resolve();
    return parameter!.dataSync()[0];
  });
  assert.notEqual(await promise, 7);
  assert.equal(parameter!.dataSync()[0], 7);
  assert.throws(
    () =>
      averaged.use(() => {
        throw new Error("of the body");
      }),
    /of the body/,
  );
  assert.equal(parameter!.dataSync()[0], 7);
  assert.equal(cpu.runtime.budget.used, before);
});

test("averages are copied only into models of the same structure, and not inside a compiled step", () => {
  const averaged = new AveragedModel(makeModel());
  rejects("BAD_STATE", () => averaged.copyTo(new nn.Linear(3, 5).to(cpu)), /no "0.weight"/);
  const step = cpu.compile(() => averaged.copyTo());
  assert.throws(step, /outside the compiled step/);
});

test("a group that is added later trains on, also in a compiled step, and keeps the counts of the others", () => {
  for (const isCompiled of [false, true]) {
    const [a, b] = [1, 2].map(() => tensor([1, 2], { device: cpu, requiresGrad: true })) as [Tensor, Tensor];
    const adam = new optim.Adam([a], { lr: 0.1 });
    const body = (): void => {
      adam.zeroGrad();
      a.square().sum().add(b.square().sum()).backward();
      adam.step();
    };
    const step = isCompiled ? cpu.compile(body) : () => cpu.step(body);
    step();
    const schedule = new optim.lrScheduler.ExponentialLR(adam, { gamma: 0.5 });
    adam.addParamGroup({ params: [b], lr: 0.3 });
    rejects("BAD_ARGUMENT", () => adam.addParamGroup({ params: [a] }), /is a duplicate/);
    b.grad?.zero_();
    step();
    schedule.step();
    assert.deepEqual(
      adam.groups.map(({ lr }) => lr),
      [0.05, 0.3],
    );
    const { "0.step": first, "1.step": second, "1.firstMoment": moment } = adam.stateDict();
    assert.deepEqual([first!.item(), second!.item(), moment!.shape], [2, 1, [2]]);
    assert.ok(Math.abs(b.dataSync()[0]! - 0.7) < 1e-6, `${b.dataSync()[0]}`);
    assert.deepEqual(
      adam.parameters.map((parameter) => parameter === a || parameter === b),
      [true, true],
    );
  }
});

test("updateBn gives batch norms the statistics of PyTorch's update_bn, and keeps momentum and mode", () => {
  const norms = [new nn.BatchNorm1d(2, { momentum: 0.3 }), new nn.BatchNorm1d(2)] as const;
  const linear = new nn.Linear(2, 2, { bias: false });
  const model = new nn.Sequential(norms[0], linear, norms[1]).to(cpu, "f64").eval();
  linear.weight.initialize(() => [1, 2, -1, 0.5]);
  model.train().forward(
    tensor(
      [
        [9, 9],
        [8, 1],
      ],
      { dtype: "f64" },
    ),
  );
  model.eval();
  const batches = [
    [
      tensor(
        [
          [1, 2],
          [3, 5],
          [4, 4],
        ],
        { dtype: "f64" },
      ),
      tensor([0]),
    ],
    [
      tensor(
        [
          [0, 1],
          [2, -1],
        ],
        { dtype: "f64" },
      ),
      tensor([0]),
    ],
  ];
  optim.swaUtils.updateBn(batches, model);
  const expected = [
    [11 / 6, 11 / 6],
    [13 / 6, 13 / 6],
    [0, 0],
    [7.107093597291161, 2.5981895474332655],
  ];
  const found = norms.flatMap(({ runningMean, runningVar }) => [runningMean!, runningVar!]);
  for (const [index, buffer] of found.entries()) {
    for (const [at, value] of [...buffer.dataSync()].entries())
      assert.ok(Math.abs(value - expected[index]![at]!) < 1e-6, `buffer ${index}: ${value}`);
  }
  assert.deepEqual(
    [norms[0].numBatchesTracked?.item(), norms[0].momentum, model.isTraining],
    [2, 0.3, false],
  );
});
