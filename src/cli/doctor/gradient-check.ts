/**
 * Checks the gradients against the loss by central differences along them. Memory that is overwritten between forward and
 * backward leaves a correct loss and wrong gradients, so their mere existence proves nothing.
 */

import { noGrad } from "../../autograd/index.js";
import { check } from "./phase-log.js";
import type { TrialTraining } from "./trial-training.js";

/** The target change of the loss along the gradients, as a share of the loss. */
const shareOfLoss = 0.01;

export interface GradientFigures {
  readonly gradients: number;
  /** The L2 norm of all gradients. */
  readonly norm: number;
  /** The measured slope divided by the slope that the gradients predict; ideally 1. */
  readonly slope: number;
}

/** Throws if a gradient is missing, not finite or all zero, or if the slope differs from 1 by more than the tolerance. */
export function checkGradients(trial: TrialTraining, loss: number, tolerance: number): GradientFigures {
  const parameters = trial.model.parameters();
  const squares = parameters.reduce((sum, parameter) => {
    const { name, grad } = parameter;
    const elements = grad?.dataSync();
    check(elements !== undefined, () => `backward() left no gradient for "${name}".`);
    const square = elements ? sumOfSquares(elements) : 0;
    check(Number.isFinite(square), () => `The gradient of "${name}" is not finite.`);
    check(square > 0, () => `Every element of the gradient of "${name}" is 0, and the loss is ${loss}.`);
    return sum + square;
  }, 0);
  const slope = measureSlope(trial, loss, squares);
  check(Math.abs(slope - 1) <= tolerance, () => {
    const norm = Math.sqrt(squares);
    return (
      `The gradients are wrong: along them the loss of ${loss} has a measured slope of ${(slope * norm).toPrecision(4)}, ` +
      `and the gradients predict ${norm.toPrecision(4)}.`
    );
  });
  return { gradients: parameters.length, norm: Math.sqrt(squares), slope };
}

function sumOfSquares(elements: ArrayLike<number>): number {
  let sum = 0;
  for (let index = 0; index < elements.length; index++) sum += (elements[index] ?? 0) ** 2;
  return sum;
}

/** Central differences of the loss along the gradients. */
function measureSlope(trial: TrialTraining, loss: number, squares: number): number {
  const { device, model } = trial;
  const before = trial.save();
  const distance = (shareOfLoss * loss) / squares;
  const lossAt = (offset: number): number =>
    device.step(() =>
      noGrad(() => {
        for (const parameter of model.parameters()) {
          if (parameter.grad) parameter.add_(parameter.grad.mul(offset));
        }
        return trial.forward().item();
      }),
    );
  const above = lossAt(distance);
  trial.restore(before);
  const below = lossAt(-distance);
  trial.restore(before);
  return (above - below) / (2 * distance * squares);
}
