/**
 * Row N4: the norm of large gradients is computed in f64, so they are clipped and never silently scaled to
 * zero.
 */

import assert from "node:assert/strict";
import { optim, type Tensor } from "holdfast";
import { withDevice } from "../support/devices.js";
import { placeParameters, setGradient } from "../support/parameter-module.js";
import { regressionRow } from "../support/regressions.js";

type Clip = (parameters: readonly Tensor[], maxNorm: number) => void;

const clip: Clip = (parameters, maxNorm) => optim.clipGradNorm(parameters, maxNorm).release();

/** The old way: squares, their sum and the factor in f32; an overflowed norm makes the factor zero. */
const clipInF32: Clip = (parameters, maxNorm) => {
  const gradients = parameters.map(({ grad }) => grad!);
  const squares = gradients.map((gradient) => gradient.square().sum());
  const norm = squares
    .reduce((sum, square) => sum.add(square))
    .sqrt()
    .item();
  for (const gradient of gradients) gradient.mul_(Math.min(1, maxNorm / (norm + 1e-6)));
};

const gradients = [
  [1e20, -2e20, 0],
  [2e20, 3e19, -5e18, 1e20],
];

regressionRow<Clip>({
  row: "N4",
  rule: "gradients of 1e20 in f32 are clipped to a norm of 1 in their own direction, and 3e38 to the largest step as well",
  sound: clip,
  faults: { "squares are summed in f32": clipInF32 },
  check(subject) {
    withDevice({ memory: "64MiB", poison: true }, (cpu) => {
      for (const scale of [1, 1.4e18, 1e-20]) {
        const scaled = gradients.map((gradient) => gradient.map((value) => Math.fround(value * scale)));
        const parameters = placeParameters(cpu, "f32", [[3], [4]], scaled);
        for (const [index, parameter] of parameters.entries()) setGradient(cpu, parameter, scaled[index]!);
        subject(parameters, 1);
        const norm = Math.hypot(...scaled.flat());
        for (const [index, parameter] of parameters.entries()) {
          for (const [at, actual] of Array.from(parameter.grad!.dataSync()).entries()) {
            const expected = scaled[index]![at]! * Math.min(1, 1 / (norm + 1e-6));
            assert.ok(
              Math.abs(actual - expected) <= 1e-6,
              `${actual} instead of ${expected}, gradients of ${scale * 1e20}`,
            );
          }
        }
      }
    });
  },
});
