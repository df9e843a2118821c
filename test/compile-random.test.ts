/** Random numbers inside compiled steps: new ones in every call, with the bits of eager code, and repeated from a random state. */

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  bernoulli,
  checkpoint,
  getRngState,
  manualSeed,
  multinomial,
  nn,
  normal,
  optim,
  rand,
  randint,
  randintLike,
  randLike,
  randn,
  randnLike,
  randperm,
  setRngState,
  type Tensor,
  tensor,
  zeros,
} from "holdfast";
import { openStrictDevice } from "./support/devices.js";
import { rejects } from "./support/rejects.js";

const device = openStrictDevice();
const like = tensor([[0.2, 0.5, 0.9, 0.4, 0.3]], { device }).expand([7, 5]);

const draws: Readonly<Record<string, () => Tensor>> = {
  rand: () => rand([9], { device }),
  randn: () => randn([3, 5], { device, dtype: "bf16" }),
  randint: () => randint(-4, 9, [30], { device }),
  randLike: () => randLike(like),
  randnLike: () => randnLike(like),
  randintLike: () => randintLike(like, 0, 100),
  normal: () => normal(like, like.square()),
  bernoulli: () => bernoulli(like),
  "multinomial with replacement": () => multinomial(like, 6, { replacement: true }),
  "multinomial without replacement": () => multinomial(like, 3),
  "multinomial of all": () => multinomial(like, 5),
  randperm: () => randperm(40, { device }),
  "randperm of floats": () => randperm(9, { device, dtype: "bf16" }),
  uniform_: () => zeros([9], { device }).uniform_(2, 3),
  "normal_ of columns": () => {
    const x = zeros([6, 4], { device });
    x.narrow(1, 1, 2).normal_();
    return x;
  },
  logNormal_: () => zeros([9], { device }).logNormal_(),
  exponential_: () => zeros([9], { device }).exponential_(3),
  cauchy_: () => zeros([9], { device }).cauchy_(),
  geometric_: () => zeros([40], { device, dtype: "i32" }).geometric_(0.2),
  bernoulli_: () => zeros([40], { device, dtype: "u8" }).bernoulli_(),
  random_: () => zeros([9], { device }).random_(),
};

test("every kind of draw differs from call to call of a compiled step, with the bits of eager code", () => {
  const all = (): Tensor[] => Object.values(draws).map((make) => make());
  manualSeed(5);
  const eager = [0, 1, 2].map(() => device.step(() => all().map((drawn) => drawn.tolist())));
  manualSeed(5);
  const step = device.compile(all);
  const compiled = eager.map(() => step().map((drawn) => drawn.tolist()));
  for (const [index, name] of Object.keys(draws).entries()) {
    const of = (runs: readonly unknown[][]): unknown[] => runs.map((run) => run[index]);
    assert.deepEqual(of(compiled), of(eager), name);
    assert.notDeepEqual(compiled[0]?.[index], compiled[1]?.[index], name);
  }
  step.close();
});

test("a random state repeats the draws of a compiled step", () => {
  const step = device.compile(() => randn([4], { device }));
  step();
  const state = getRngState(device);
  const next = [step().tolist(), step().tolist()];
  setRngState(state, device);
  assert.deepEqual([step().tolist(), step().tolist()], next);
  step.close();
});

test("a compiled training step with noise has the weights of eager steps", () => {
  const train = (compiled: boolean): unknown => {
    manualSeed(11);
    const model = new nn.Linear(3, 2).to(device);
    const optimizer = new optim.SGD(model.parameters(), { lr: 0.1 });
    const x = tensor([[1, 2, 3]], { device });
    const body = (input: Tensor): Tensor => {
      optimizer.zeroGrad();
      const noisy = checkpoint(
        (clean: Tensor) => model.forward(clean.add(clean.clone().normal_())).relu(),
        input,
      );
      const loss = noisy.add(randnLike(noisy)).square().mean();
      loss.backward();
      optimizer.step();
      return loss;
    };
    const step = compiled ? device.compile(body) : (input: Tensor) => device.step(() => body(input).item());
    for (let count = 0; count < 3; count++) step(x);
    if ("close" in step) step.close();
    return model.weight.tolist();
  };
  assert.deepEqual(train(true), train(false));
});

test("multinomial without replacement has each index once, and draws no weight of 0", () => {
  const drawn = device.step(() =>
    multinomial(tensor([[0, 1, 5, 0, 2]], { device }).expand([50, 5]), 3).tolist(),
  ) as number[][];
  for (const row of drawn) assert.deepEqual(row.toSorted(), [1, 2, 4]);
});

test("draws have the probabilities that they were asked for", () => {
  manualSeed(1);
  const count = 4000;
  const meanOf = (make: () => Tensor): number => device.step(() => make().to("f32").mean().item());
  const many = (value: number): Tensor => tensor([value], { device }).expand([count]);
  const expected: readonly [string, () => Tensor, number, number][] = [
    ["bernoulli", () => bernoulli(many(0.3)), 0.3, 0.46],
    ["bernoulli_", () => zeros([count], { device }).bernoulli_(0.8), 0.8, 0.4],
    ["exponential_", () => zeros([count], { device }).exponential_(4), 0.25, 0.25],
    ["geometric_", () => zeros([count], { device }).geometric_(0.5), 2, 1.42],
    [
      "multinomial",
      () => multinomial(tensor([1, 0, 3], { device }), count, { replacement: true }),
      1.5,
      0.87,
    ],
    ["random_", () => zeros([count], { device }).random_(10, 13), 11, 0.82],
    ["normal", () => normal(many(3), 2), 3, 2],
  ];
  for (const [name, make, mean, deviation] of expected) {
    const error = Math.abs(meanOf(make) - mean);
    assert.ok(error < (5 * deviation) / Math.sqrt(count), `${name}: ${error} from ${mean}`);
  }
});

test("wrong numbers are rejected", () => {
  const x = zeros([2], { device });
  rejects("BAD_ARGUMENT", () => x.uniform_(1, 0), /1 to 0/);
  rejects("BAD_ARGUMENT", () => x.normal_(0, -1), /-1/);
  rejects("BAD_ARGUMENT", () => x.exponential_(0), /rate is 0/);
  rejects("BAD_ARGUMENT", () => x.bernoulli_(2), /p is 2/);
  rejects("BAD_ARGUMENT", () => x.geometric_(0), /p is 0/);
  rejects("BAD_ARGUMENT", () => x.multinomial(3), /multinomial of 3/);
  rejects("BAD_ARGUMENT", () => x.to("i32").normal_(), /random_/);
  rejects("BAD_ARGUMENT", () => x.to("i32").bernoulli(), /float dtype/);
  rejects("BAD_ARGUMENT", () => normal(0, 1), /shape/);
  rejects("BAD_ARGUMENT", () => randint(0, 2 ** 33, [1], { device }), /i32/);
});
