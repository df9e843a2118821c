/**
 * Row N5: moments are kept in f32 or better, so that they keep small gradients and half-float parameters
 * change.
 */

import assert from "node:assert/strict";
import { type Device, type Dtype, optim, type Tensor } from "holdfast";
import { narrowToBf16, widenBf16 } from "../../src/ir/index.js";
import { withDevice } from "../support/devices.js";
import { placeParameters, setGradient } from "../support/parameter-module.js";
import { regressionRow } from "../support/regressions.js";

const settings = { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0.01 } as const;

interface Trainer {
  step(): void;
}

type MakeTrainer = (cpu: Device, parameters: readonly Tensor[]) => Trainer;

const adamW: MakeTrainer = (_, parameters) => new optim.AdamW(parameters, settings);

/** The moments of an optimizer, of one kind or of both. */
function momentsOf(optimizer: optim.Optimizer, kind: RegExp): Tensor[] {
  return Object.entries(optimizer.stateDict()).flatMap(([name, moment]) => (kind.test(name) ? [moment] : []));
}

/** The old way: moments are rounded to bf16 when they are stored. */
const momentsInBf16: MakeTrainer = (cpu, parameters) => {
  const optimizer = new optim.AdamW(parameters, settings);
  return {
    step() {
      optimizer.step();
      for (const moment of momentsOf(optimizer, /Moment$/)) {
        cpu.write(moment, widenBf16(narrowToBf16(Float32Array.from(moment.dataSync()))));
      }
    },
  };
};

/** The old way: β₂ = 0.999 is 1 in bf16, and the second moment never decays. */
const roundedBeta: MakeTrainer = (cpu, parameters) => {
  const optimizer = new optim.AdamW(parameters, settings);
  return {
    step() {
      const before = momentsOf(optimizer, /secondMoment$/).map((moment) => moment.item());
      optimizer.step();
      for (const [index, moment] of momentsOf(optimizer, /secondMoment$/).entries()) {
        cpu.write(moment, [moment.item() + (1 - settings.betas[1]) * before[index]!]);
      }
    },
  };
};

/** AdamW in f64, element by element. */
function reference(first: number, gradientOf: (step: number) => number, steps: number): number {
  const { lr, betas, eps, weightDecay } = settings;
  let [p, m, v] = [first, 0, 0];
  for (let t = 1; t <= steps; t++) {
    const g = gradientOf(t);
    p *= 1 - lr * weightDecay;
    m = betas[0] * m + (1 - betas[0]) * g;
    v = betas[1] * v + (1 - betas[1]) * g * g;
    p -= (lr / (1 - betas[0] ** t)) * (m / (Math.sqrt(v) / Math.sqrt(1 - betas[1] ** t) + eps));
  }
  return p;
}

const magnitudes = [1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1, 30, 1e3];
const steps = 20;
/** Signs that do not cancel and sizes that vary, exact in f32. */
const gradientAt = (magnitude: number, t: number): number =>
  Math.fround(magnitude * (t % 3 === 0 ? -0.75 : 1 + (t % 5) / 4));

function train(make: MakeTrainer, dtype: Dtype, first: number): number[] {
  return withDevice({ memory: "64MiB", poison: true }, (cpu) => {
    const parameters = placeParameters(
      cpu,
      dtype,
      magnitudes.map(() => [1]),
      magnitudes.map(() => [first]),
    );
    const trainer = make(cpu, parameters);
    for (let t = 1; t <= steps; t++) {
      for (const [index, parameter] of parameters.entries()) {
        setGradient(cpu, parameter, [gradientAt(magnitudes[index]!, t)]);
      }
      trainer.step();
    }
    return parameters.map((parameter) => parameter.item());
  });
}

regressionRow<MakeTrainer>({
  row: "N5",
  rule: "AdamW in f32 follows AdamW in f64 for gradients from 1e-10 to 1e3, and changes bf16 parameters",
  sound: adamW,
  faults: { "moments are kept in bf16": momentsInBf16, "β₂ is rounded to bf16": roundedBeta },
  check(make) {
    const first = 0.125;
    const actual = train(make, "f32", first);
    for (const [index, magnitude] of magnitudes.entries()) {
      const expected = reference(first, (t) => gradientAt(magnitude, t), steps);
      const distance = Math.abs(expected - first);
      assert.ok(
        Math.abs(actual[index]! - expected) <= 1e-4 * distance + 1e-7,
        `gradients of ${magnitude}: ${actual[index]} instead of ${expected}`,
      );
    }
    // One step of 1e-3 is half of bf16's resolution at 0.125; twenty steps are not.
    const halves = train(make, "bf16", first);
    for (const [index, magnitude] of magnitudes.entries()) {
      if (magnitude < 1e-6) continue;
      assert.ok(
        halves[index]! < first,
        `gradients of ${magnitude} leave a bf16 parameter at ${halves[index]}`,
      );
    }
  },
});
