/**
 * Are the gradients those of the loss? Memory that was overwritten between forward and backward leaves a correct loss and
 * gradients of nothing, so it is not enough that they are there: the loss is measured a small way up and down along them.
 */

import { noGrad } from "../../autograd/index.js";
import { check } from "./phase-log.js";
import type { TimingCapture } from "./rehearsal.js";

/** How much of the loss a small way along the gradients should change. */
const shareOfLoss = 0.01;

export interface GradientFigures {
  readonly gradients: number;
  /** The length of all gradients as one vector. */
  readonly norm: number;
  /** The slope that was measured, as a share of the one that the gradients tell: 1 where all is well. */
  readonly slope: number;
}

/** Rejects gradients that are missing, not finite, all zero, or not those of the loss to within the tolerance. */
export function checkGradients(
  timingCapture: TimingCapture,
  loss: number,
  tolerance: number,
): GradientFigures {
  const parameters = timingCapture.model.parameters();
  const squares = parameters.reduce((sum, parameter) => {
    const { name, grad } = parameter;
    const elements = grad?.dataSync();
    check(elements !== undefined, () => `backward() has left no gradient at "${name}".`);
    const own = elements ? sumOfSquares(elements) : 0;
    check(Number.isFinite(own), () => `The gradient of "${name}" is not finite.`);
    check(own > 0, () => `Every element of the gradient of "${name}" is 0, and the loss is ${loss}.`);
    return sum + own;
  }, 0);
  const slope = measureSlope(timingCapture, loss, squares);
  check(Math.abs(slope - 1) <= tolerance, () => {
    const told = Math.sqrt(squares);
    return (
      `Along its gradients the loss of ${loss} rises by ${(slope * told).toPrecision(4)} for each unit of way, and they say ` +
      `${told.toPrecision(4)}: they are not the gradients of this loss.`
    );
  });
  return { gradients: parameters.length, norm: Math.sqrt(squares), slope };
}

function sumOfSquares(elements: ArrayLike<number>): number {
  let sum = 0;
  for (let index = 0; index < elements.length; index++) sum += (elements[index] ?? 0) ** 2;
  return sum;
}

/** Central differences: what the loss does on the way from one side of the weights to the other. */
function measureSlope(timingCapture: TimingCapture, loss: number, squares: number): number {
  const { device, model } = timingCapture;
  const before = timingCapture.save();
  const reach = (shareOfLoss * loss) / squares;
  const lossAt = (distance: number): number =>
    device.step(() =>
      noGrad(() => {
        for (const parameter of model.parameters()) {
          if (parameter.grad) parameter.add_(parameter.grad.mul(distance));
        }
        return timingCapture.forward().item();
      }),
    );
  const above = lossAt(reach);
  timingCapture.restore(before);
  const below = lossAt(-reach);
  timingCapture.restore(before);
  return (above - below) / (2 * reach * squares);
}
