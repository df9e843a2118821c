/** Schedules against PyTorch's values, with an initial learning rate of 0.1. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openDevice } from "../../../test/support/devices.js";
import { rejects } from "../../../test/support/rejects.js";
import { readRepositoryFile } from "../../../test/support/repository.js";
import { tensor, zeros } from "../../tensor/index.js";
import * as optim from "../index.js";

const cpu = openDevice();

function makeOptimizer(): optim.SGD {
  return new optim.SGD([zeros([1], { requiresGrad: true, device: cpu })], { lr: 0.1 });
}

type MakeSchedule = (optimizer: optim.Optimizer) => optim.Schedule;

/** PyTorch 1.13's learning rates, initially and after each step. */
const tables: Readonly<Record<string, readonly [make: MakeSchedule, lrs: readonly number[]]>> = {
  "ConstantLR, factor 0.25 for 3 steps": [
    (optimizer) => new optim.ConstantSchedule(optimizer, { factor: 0.25, totalIters: 3 }),
    [0.025, 0.025, 0.025, 0.1, 0.1, 0.1],
  ],
  "StepLR, 0.3 every 2 steps": [
    (optimizer) => new optim.StepSchedule(optimizer, { stepSize: 2, gamma: 0.3 }),
    [0.1, 0.1, 0.03, 0.03, 0.009, 0.009, 0.0026999999999999997],
  ],
  "MultiStepLR, 0.5 at 2, 3 and 5": [
    (optimizer) => new optim.MultiStepSchedule(optimizer, { milestones: [2, 3, 5], gamma: 0.5 }),
    [0.1, 0.1, 0.05, 0.025, 0.025, 0.0125, 0.0125],
  ],
  "CosineAnnealingLR, to 0.01 in 5 steps and up again": [
    (optimizer) => new optim.CosineSchedule(optimizer, { tMax: 5, etaMin: 0.01 }),
    [
      0.1, 0.09140576474687263, 0.06890576474687263, 0.04109423525312736, 0.018594235253127367, 0.01,
      0.018594235253127367, 0.04109423525312739, 0.06890576474687267,
    ],
  ],
  "LambdaLR, 1 / (steps + 4)": [
    (optimizer) => new optim.LambdaSchedule(optimizer, { lrLambda: (steps) => 1 / (steps + 4) }),
    [0.025, 0.02, 0.016666666666666666, 0.014285714285714287],
  ],
  "LinearLR, from 0.2 in 4 steps": [
    (optimizer) => new optim.WarmupSchedule(optimizer, { steps: 4, startFactor: 0.2 }),
    [0.02, 0.04, 0.06, 0.08, 0.1, 0.1, 0.1],
  ],
  "SequentialLR of LinearLR, 3 steps, and CosineAnnealingLR, 4 steps": [
    (optimizer) => {
      const after = new optim.CosineSchedule(optimizer, { tMax: 4, etaMin: 0.01 });
      return new optim.WarmupSchedule(optimizer, { steps: 3, startFactor: 0.2, after });
    },
    [
      0.02, 0.04666666666666667, 0.07333333333333333, 0.1, 0.08681980515339464, 0.055, 0.023180194846605363,
      0.01,
    ],
  ],
  "OneCycleLR, up to 0.5 in 10 steps": [
    (optimizer) => new optim.OneCycleSchedule(optimizer, { maxLr: 0.5, totalSteps: 10 }),
    [
      0.02, 0.26, 0.5, 0.47524231600673683, 0.40587282697488153, 0.30563101096814466, 0.19437098903185537,
      0.09412917302511849, 0.024759683993263143, 2e-6, 0.024759683993263115,
    ],
  ],
  "OneCycleLR, three straight phases": [
    (optimizer) =>
      new optim.OneCycleSchedule(optimizer, {
        ...{ maxLr: 0.5, totalSteps: 10, threePhase: true, annealStrategy: "linear" },
        ...{ pctStart: 0.4, divFactor: 10, finalDivFactor: 100 },
      }),
    [0.05, 0.2, 0.35, 0.5, 0.35, 0.2, 0.05, 0.0335, 0.017, 0.0005],
  ],
};

const { lrScheduler } = optim;

/** The schedules of test/oracle/schedules.json. */
const makers: Readonly<Record<string, MakeSchedule>> = {
  ExponentialLR: (optimizer) => new lrScheduler.ExponentialLR(optimizer, { gamma: 0.7 }),
  PolynomialLR: (optimizer) => new lrScheduler.PolynomialLR(optimizer, { totalIters: 4, power: 2 }),
  "PolynomialLR, defaults": (optimizer) => new lrScheduler.PolynomialLR(optimizer),
  MultiplicativeLR: (optimizer) =>
    new lrScheduler.MultiplicativeLR(optimizer, { lrLambda: (steps) => 1 - 0.1 * steps }),
  LinearLR: (optimizer) =>
    new lrScheduler.LinearLR(optimizer, { startFactor: 0.25, endFactor: 0.75, totalIters: 4 }),
  "LinearLR, defaults": (optimizer) => new lrScheduler.LinearLR(optimizer),
  "CyclicLR, triangular": (optimizer) =>
    new lrScheduler.CyclicLR(optimizer, { baseLr: 0.01, maxLr: 0.2, stepSizeUp: 3, stepSizeDown: 2 }),
  "CyclicLR, triangular2": (optimizer) =>
    new lrScheduler.CyclicLR(optimizer, { baseLr: 0.01, maxLr: 0.2, stepSizeUp: 2, mode: "triangular2" }),
  "CyclicLR, exp_range": (optimizer) =>
    new lrScheduler.CyclicLR(optimizer, {
      ...{ baseLr: 0.01, maxLr: 0.2, stepSizeUp: 2, mode: "exp_range", gamma: 0.9 },
    }),
  "CyclicLR, a function of the iteration": (optimizer) =>
    new lrScheduler.CyclicLR(optimizer, {
      ...{ baseLr: 0.01, maxLr: 0.2, stepSizeUp: 2, scaleMode: "iterations", scaleFn: (x) => 1 / (x + 1) },
    }),
  CosineAnnealingWarmRestarts: (optimizer) =>
    new lrScheduler.CosineAnnealingWarmRestarts(optimizer, { t0: 3 }),
  "CosineAnnealingWarmRestarts, longer each time": (optimizer) =>
    new lrScheduler.CosineAnnealingWarmRestarts(optimizer, { t0: 2, tMult: 2, etaMin: 0.01 }),
  SequentialLR: (optimizer) => {
    const schedulers = [
      new lrScheduler.ConstantLR(optimizer, { factor: 0.1, totalIters: 2 }),
      new lrScheduler.ExponentialLR(optimizer, { gamma: 0.9 }),
      new lrScheduler.StepLR(optimizer, { stepSize: 2, gamma: 0.5 }),
    ];
    return new lrScheduler.SequentialLR(optimizer, { schedulers, milestones: [3, 6] });
  },
  ChainedScheduler: (optimizer) => {
    const schedulers = [
      new lrScheduler.LinearLR(optimizer, { startFactor: 0.1, totalIters: 4 }),
      new lrScheduler.ExponentialLR(optimizer, { gamma: 0.9 }),
    ];
    return new lrScheduler.ChainedScheduler(optimizer, { schedulers });
  },
  "SWALR, cos": (optimizer) => new optim.swaUtils.SWALR(optimizer, { swaLr: 0.05, annealEpochs: 4 }),
  "SWALR, linear": (optimizer) =>
    new optim.swaUtils.SWALR(optimizer, { swaLr: 0.5, annealEpochs: 3, annealStrategy: "linear" }),
  "SWALR at once": (optimizer) => new optim.swaUtils.SWALR(optimizer, { swaLr: 0.05, annealEpochs: 0 }),
};
const oracle = JSON.parse(readRepositoryFile("test/oracle/schedules.json")) as {
  cases: Readonly<Record<string, readonly number[]>>;
};

test("every schedule of the oracle is tested", () => {
  assert.deepEqual(Object.keys(makers).sort(), Object.keys(oracle.cases).sort());
});

const allTables: typeof tables = {
  ...tables,
  ...Object.fromEntries(
    Object.entries(makers).map(([name, make]) => [name, [make, oracle.cases[name] ?? []] as const]),
  ),
};

for (const [name, [make, lrs]] of Object.entries(allTables)) {
  test(`the learning rates are PyTorch's: ${name}`, () => {
    const optimizer = makeOptimizer();
    const schedule = make(optimizer);
    for (const [step, expected] of lrs.entries()) {
      if (step > 0) schedule.step();
      assert.ok(
        Math.abs(optimizer.lr - expected) <= 1e-12,
        `step ${step}: ${optimizer.lr}, expected ${expected}`,
      );
    }
  });

  test(`a schedule continues from its saved state with the same bits: ${name}`, () => {
    const [uninterrupted, resumed] = [makeOptimizer(), makeOptimizer()];
    const first = make(uninterrupted);
    first.step();
    first.step();
    const saved = JSON.parse(JSON.stringify(first.stateDict())) as optim.ScheduleState;
    const second = make(resumed);
    second.loadStateDict(saved);
    first.step();
    second.step();
    assert.equal(resumed.lr, uninterrupted.lr);
  });
}

const plateaus: readonly {
  readonly options: optim.PlateauOptions;
  readonly metrics: readonly number[];
  readonly lrs: readonly number[];
}[] = [
  {
    options: { factor: 0.5, patience: 1, threshold: 1e-4, cooldown: 2, minLr: 0.02 },
    metrics: [1.0, 0.9, 0.95, 0.89995, 0.91, 0.92, 0.93, 0.94, 0.5, 0.6, 0.6, 0.6, 0.6],
    lrs: [0.1, 0.1, 0.1, 0.05, 0.05, 0.05, 0.05, 0.025, 0.025, 0.025, 0.025, 0.02, 0.02],
  },
  {
    options: { mode: "max", factor: 0.5, patience: 0, threshold: 0.05, thresholdMode: "abs" },
    metrics: [0.1, 0.2, 0.24, 0.3, 0.3, 0.1],
    lrs: [0.1, 0.1, 0.05, 0.05, 0.025, 0.0125],
  },
];

for (const { options, metrics, lrs } of plateaus) {
  test(`a plateau lowers the learning rate when PyTorch does, also from a saved state: ${JSON.stringify(options)}`, () => {
    const optimizer = makeOptimizer();
    let plateau = new optim.ReduceOnPlateau(optimizer, options);
    for (const [step, metric] of metrics.entries()) {
      plateau.step(metric);
      assert.ok(
        Math.abs(optimizer.lr - lrs[step]!) <= 1e-12,
        `step ${step + 1}: ${optimizer.lr}, expected ${lrs[step]}`,
      );
      const saved = JSON.parse(JSON.stringify(plateau.stateDict())) as optim.PlateauState;
      plateau = new optim.ReduceOnPlateau(optimizer, options);
      plateau.loadStateDict(saved);
    }
  });
}

test("a schedule scales the initial rate of each group", () => {
  const [a, b] = [
    zeros([1], { requiresGrad: true, device: cpu }),
    zeros([1], { requiresGrad: true, device: cpu }),
  ];
  const optimizer = new optim.SGD([{ params: [a] }, { params: [b], lr: 1 }], { lr: 0.5 });
  new optim.StepSchedule(optimizer, { stepSize: 1, gamma: 0.5 }).step();
  assert.deepEqual(
    optimizer.groups.map(({ lr }) => lr),
    [0.25, 0.5],
  );
});

test("schedules of one optimizer share the initial rate, until it is set by hand", () => {
  const optimizer = makeOptimizer();
  new lrScheduler.ConstantLR(optimizer, { factor: 0.5 });
  assert.equal(new lrScheduler.ExponentialLR(optimizer, { gamma: 1 }).lrAfter(0), 0.1);
  optimizer.lr = 0.3;
  assert.equal(new lrScheduler.ExponentialLR(optimizer, { gamma: 1 }).lrAfter(0), 0.3);
});

test("combined schedules reject parts that do not fit: their number, their milestones, their states", () => {
  const optimizer = makeOptimizer();
  const schedulers = [1, 2].map(() => new lrScheduler.ExponentialLR(optimizer, { gamma: 0.5 }));
  const { SequentialLR, ChainedScheduler } = lrScheduler;
  for (const milestones of [[], [1, 2]])
    rejects(
      "BAD_ARGUMENT",
      () => new SequentialLR(optimizer, { schedulers, milestones }),
      /Pass 1 milestones/,
    );
  const three = [...schedulers, ...schedulers.slice(1)];
  rejects("BAD_ARGUMENT", () => new SequentialLR(optimizer, { schedulers: three, milestones: [3, 2] }));
  rejects("BAD_ARGUMENT", () => new ChainedScheduler(optimizer, { schedulers: [] }), /no schedules/);
  const chained = new ChainedScheduler(optimizer, { schedulers });
  rejects("BAD_STATE", () => chained.loadStateDict({ steps: 1, baseLrs: [1] }), /0 parts/);
});

test("schedules reject invalid settings, and a one-cycle schedule rejects a step after its last", () => {
  const optimizer = makeOptimizer();
  rejects("BAD_ARGUMENT", () => new optim.StepSchedule(optimizer, { stepSize: 0 }), /stepSize is 0/);
  rejects("BAD_ARGUMENT", () => new optim.CosineSchedule(optimizer, { tMax: 2.5 }), /whole number/);
  rejects("BAD_ARGUMENT", () => new optim.ReduceOnPlateau(optimizer, { factor: 1 }), /below 1/);
  const cycle = new optim.OneCycleSchedule(optimizer, { maxLr: 1, totalSteps: 2 });
  cycle.step();
  cycle.step();
  rejects("BAD_ARGUMENT", () => cycle.step(), /created for 2 steps/);
});

/** A user's schedule, whose formula needs a field. */
class Shrinking extends optim.Schedule {
  readonly #from: number;

  constructor(optimizer: optim.Optimizer, from: number) {
    super(optimizer);
    this.#from = from;
  }

  protected override lrFrom(baseLr: number, steps: number): number {
    if (steps > 2) throw new Error("no more");
    return baseLr / (this.#from + steps);
  }
}

test("a user's schedule has set its rate of step 0 before any reader reads it", () => {
  const readers: Readonly<Record<string, (optimizer: optim.SGD) => number>> = {
    "the optimizer": ({ lr }) => lr,
    "a group": ({ groups }) => groups[0]!.lr,
    "its state": (optimizer) => optimizer.stateDict()["groups.0.lr"]!.item(),
    "another schedule": (optimizer) => {
      new optim.swaUtils.SWALR(optimizer, { swaLr: 1 });
      return optimizer.lr;
    },
  };
  for (const [reader, read] of Object.entries(readers)) {
    const optimizer = makeOptimizer();
    new Shrinking(optimizer, 4);
    assert.equal(read(optimizer), 0.025, reader);
  }
});

for (const compiled of [false, true]) {
  test(`the first step uses the rate of a user's schedule, ${compiled ? "compiled" : "eager"}, also of a later schedule`, () => {
    const w = tensor([0], { requiresGrad: true, device: cpu });
    const sgd = new optim.SGD([w], { lr: 1 });
    const body = () => {
      w.sum().backward();
      sgd.step();
      sgd.zeroGrad();
    };
    const run = compiled ? cpu.compile(body) : () => cpu.step(body);
    const first = new Shrinking(sgd, 2);
    run();
    first.step();
    run();
    const afterTwoSteps = -(1 / 2 + 1 / 3);
    assert.ok(Math.abs(w.item() - afterTwoSteps) < 1e-6, `${w.item()}`);
    sgd.lr = 1;
    new Shrinking(sgd, 8);
    run();
    assert.ok(Math.abs(w.item() - (afterTwoSteps - 1 / 8)) < 1e-6, `${w.item()}`);
  });
}

test("a rate that is set after a schedule was created is kept, and so is a loaded state", () => {
  const [set, loaded] = [makeOptimizer(), makeOptimizer()];
  new Shrinking(set, 4);
  set.lr = 0.5;
  assert.equal(set.lr, 0.5);
  new Shrinking(loaded, 4).loadStateDict({ steps: 1, baseLrs: [0.1] });
  assert.equal(loaded.lr, 0.1);
});

test("a schedule whose constructor fails does not change the optimizer, and step() throws the error of a failed formula", () => {
  const optimizer = makeOptimizer();
  rejects("BAD_ARGUMENT", () => new optim.StepSchedule(optimizer, { stepSize: 0 }));
  assert.equal(optimizer.lr, 0.1);
  const schedule = new Shrinking(optimizer, 0);
  // 0.1 / 0 is not a valid learning rate.
  assert.equal(optimizer.lr, 0.1);
  rejects("BAD_ARGUMENT", () => schedule.step(), /lr is Infinity/);
});

test("a lambda schedule has one function for all groups, or one function for each", () => {
  const params = [1, 2].map(() => zeros([1], { requiresGrad: true, device: cpu }));
  const optimizer = new optim.SGD(
    params.map((parameter) => ({ params: [parameter] })),
    { lr: 1 },
  );
  new optim.LambdaSchedule(optimizer, { lrLambda: [() => 0.5, () => 0.25] });
  assert.deepEqual(
    optimizer.groups.map(({ lr }) => lr),
    [0.5, 0.25],
  );
  rejects(
    "BAD_ARGUMENT",
    () => new optim.LambdaSchedule(optimizer, { lrLambda: [() => 1] }),
    /1 functions for 2 groups/,
  );
});
