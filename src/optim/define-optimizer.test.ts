/** Optimizers defined by formulas: their values, the order of assignments, kernels, padding, and definitions that are rejected. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { openStrictDevice } from "../../test/support/devices.js";
import { placeParameters, setGradient } from "../../test/support/parameter-module.js";
import { rejects } from "../../test/support/rejects.js";
import type { PersistentStorage } from "../runtime/index.js";
import type { Tensor } from "../tensor/index.js";
import * as optim from "./index.js";

const cpu = openStrictDevice();
const shapes = [[3, 5], [7], [1]];
const waves = (seed: number): number[][] =>
  shapes.map((shape, index) =>
    Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, element) =>
      Math.sin(seed * 7.3 + index * 31 + element * 1.7),
    ),
  );

/** AdamW by formulas. */
const FormulaAdamW = optim.defineOptimizer({
  name: "FormulaAdamW",
  state: ["m", "v"],
  defaults: { lr: 1e-3, weightDecay: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8 },
  update({ parameter, gradient, m, v, lr, weightDecay, step, beta1, beta2, eps }) {
    const first = m.mul(beta1).add(gradient.mul(beta1.neg().add(1)));
    const second = v.mul(beta2).add(gradient.square().mul(beta2.neg().add(1)));
    const size = lr.div(beta1.pow(step).neg().add(1));
    const root = beta2.pow(step).neg().add(1).sqrt();
    const decayed = parameter.mul(lr.mul(weightDecay).neg().add(1));
    const divisor = second.sqrt().div(root).add(eps);
    return { m: first, v: second, parameter: decayed.sub(size.mul(first).div(divisor)) };
  },
});

/** Lion by formulas: the parameter needs the old m. */
const FormulaLion = optim.defineOptimizer({
  name: "FormulaLion",
  state: ["m"],
  defaults: { lr: 1e-4 },
  update: ({ parameter, gradient, m, lr }) => ({
    m: m.mul(0.99).add(gradient.mul(0.01)),
    parameter: parameter.sub(m.mul(0.9).add(gradient.mul(0.1)).sign().mul(lr)),
  }),
});

function train(
  dtype: "f32" | "f64" | "bf16",
  make: (parameters: Tensor[]) => optim.Optimizer,
  isCompiled: boolean,
): { parameters: readonly Tensor[]; optimizer: optim.Optimizer } {
  const parameters = placeParameters(cpu, dtype, shapes, waves(0));
  const optimizer = make(parameters);
  const body = (): void => {
    optimizer.zeroGrad();
    for (const parameter of parameters) parameter.square().sum().backward();
    optimizer.step();
  };
  const step = isCompiled ? cpu.compile(body, { passes: { autotune: false } }) : () => cpu.step(body);
  for (let times = 0; times < 5; times++) {
    if (times === 3) optimizer.lr /= 2;
    step();
  }
  return { parameters, optimizer };
}

const pairs: Readonly<
  Record<string, readonly [(list: Tensor[]) => optim.Optimizer, (list: Tensor[]) => optim.Optimizer]>
> = {
  AdamW: [
    (list) => new FormulaAdamW(list, { lr: 0.05, beta1: 0.8 }),
    (list) => new optim.AdamW(list, { lr: 0.05, betas: [0.8, 0.999] }),
  ],
  Lion: [(list) => new FormulaLion(list, { lr: 0.02 }), (list) => new optim.Lion(list, { lr: 0.02 })],
};

for (const [name, [defined, builtIn]] of Object.entries(pairs)) {
  for (const [dtype, tolerance] of [
    ["f64", 1e-14],
    ["f32", 1e-6],
    ["bf16", 0.02],
  ] as const) {
    test(`${name} by formulas trains like the built-in one in ${dtype}, and compiled to the same bits`, () => {
      const [expected, eager, compiled] = [
        train(dtype, builtIn, false),
        train(dtype, defined, false),
        train(dtype, defined, true),
      ];
      for (const [index, parameter] of eager.parameters.entries()) {
        const values = expected.parameters[index]!.dataSync();
        for (const [element, value] of parameter.dataSync().entries())
          assert.ok(Math.abs(value - values[element]!) <= tolerance, `${value}, ${values[element]}`);
        assert.deepEqual(compiled.parameters[index]!.dataSync(), parameter.dataSync());
      }
      assert.equal(eager.optimizer.stateDict()["0.step"]!.item(), 5);
    });
  }
}

test("conditions of the step and of elements select values; the state is saved by its names", () => {
  const Clipped = optim.defineOptimizer({
    name: "Clipped",
    state: ["first", "count"],
    defaults: { lr: 1 },
    update: ({ parameter, gradient, first, count, step, lr }) => ({
      first: step.eq(1).where(gradient, first),
      count: gradient.gt(0).where(count.add(1), count),
      parameter: parameter.sub(gradient.clamp(-1, 1).mul(lr)),
    }),
  });
  const parameters = placeParameters(cpu, "f32", [[2]], [[10, 20]]);
  const optimizer = new Clipped(parameters, { lr: 2 });
  for (const gradient of [
    [3, -0.5],
    [-9, 0.25],
  ]) {
    setGradient(cpu, parameters[0]!, gradient);
    optimizer.step();
  }
  const { "0.first": first, "0.count": count } = optimizer.stateDict();
  assert.deepEqual(
    [parameters[0]!, first!, count!].map((one) => [...one.dataSync()]),
    [
      [10, 20.5],
      [3, -0.5],
      [1, 1],
    ],
  );
  assert.equal(optimizer.constructor.name, "Clipped");
});

test("definitions with the same name have their own kernels, and groups their own options", () => {
  const make = (factor: number) =>
    optim.defineOptimizer({
      name: "Scaled",
      defaults: { lr: 1, scale: 1 },
      update: ({ parameter, gradient, scale }) => ({
        parameter: parameter.sub(gradient.mul(scale).mul(factor)),
      }),
    });
  const results = [2, 3].map((factor) => {
    const parameters = placeParameters(cpu, "f32", [[1], [1]], [[0], [0]]);
    const [a, b] = parameters as readonly Tensor[] as [Tensor, Tensor];
    const optimizer = new (make(factor))([{ params: [a] }, { params: [b], scale: 10 }]);
    for (const parameter of parameters) setGradient(cpu, parameter, [1]);
    optimizer.step();
    return [a.item(), b.item()];
  });
  assert.deepEqual(results, [
    [-2, -20],
    [-3, -30],
  ]);
});

test("the padding between parameters stays zero, even if the update changes zeros", () => {
  const Drifting = optim.defineOptimizer({
    name: "Drifting",
    defaults: { lr: 1 },
    update: ({ parameter, gradient, lr }) => ({ parameter: parameter.add(lr).sub(gradient) }),
  });
  const parameters = placeParameters(cpu, "f32", shapes, waves(1));
  const expected = parameters.map((parameter) => Array.from(parameter.dataSync(), (value) => value + 1));
  for (const parameter of parameters) setGradient(cpu, parameter, Array(parameter.numel).fill(0));
  new Drifting(parameters).step();
  for (const [index, parameter] of parameters.entries())
    assert.deepEqual([...parameter.dataSync()], expected[index]!.map(Math.fround));
  const { home } = parameters[0]!.array.storage! as PersistentStorage;
  const padding = new Float32Array(cpu.runtime.read(home.whole).buffer).subarray(15, 64);
  assert.ok(padding.every((value) => value === 0));
});

test("definitions that cannot work are rejected when they are made", () => {
  const define = (update: (inputs: never) => unknown, state: string[] = ["a", "b"]): void =>
    void optim.defineOptimizer({
      ...{ name: "Mine", state, defaults: { lr: 1 } },
      update: update as never,
    });
  type Inputs = Record<string, optim.Formula>;
  const rejected = (update: (inputs: Inputs) => unknown, message: RegExp, state?: string[]): void =>
    rejects("BAD_ARGUMENT", () => define(update as never, state), message);
  rejected(({ a, b, parameter }) => ({ a: b!.add(1), b: a!.add(2), parameter }), /in a circle/);
  rejected(({ parameter }) => ({ parameter }), /new values for a, b, parameter/);
  rejected(({ a, b, parameter }) => ({ a, b, parameter, c: a }), /update returns a, b, parameter, c/);
  rejected(({ a, b }) => ({ a, b, parameter: 3n }), /"parameter" is no formula/);
  rejected(({ a, b, parameter }) => ({ a, b, parameter: parameter!.add("x" as never) }), /operand .* is x/);
  rejected(({ parameter }) => ({ parameter }), /"step" is the name of two/, ["step"]);
  const parameters = placeParameters(cpu, "f32", [[1]], [[1]]);
  rejects("BAD_ARGUMENT", () => new FormulaAdamW(parameters, { eps: Number.NaN }), /eps is NaN/);
});
