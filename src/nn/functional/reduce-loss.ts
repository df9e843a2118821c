/** The reduction of a loss: its mean, its sum, or each element. */

import { HoldfastError } from "../../errors/index.js";
import { formatShape, isSameShape, type LossReduction } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";

export function reduceLoss(losses: Tensor, reduction: LossReduction = "mean"): Tensor {
  if (reduction === "none") return losses;
  return reduction === "sum" ? losses.sum() : losses.mean();
}

/** Broadcasting is usually a mistake in a loss. */
export function requireSameShapes(name: string, tensors: Readonly<Record<string, Tensor>>): void {
  const [first, ...others] = Object.entries(tensors);
  const odd = others.find(([, { shape }]) => first && !isSameShape(shape, first[1].shape));
  if (!first || !odd) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${name}: ${first[0]} ${formatShape(first[1].shape)} and ${odd[0]} ${formatShape(odd[1].shape)} differ. Reshape one to the other's ` +
      "shape, or expand() it where it is meant to repeat.",
    { numbers: { op: name } },
  );
}
