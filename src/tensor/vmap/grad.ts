/** autograd.grad inside vmap: the gradients of each member. */

import { noGrad } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import { expand, formatShape, functions, isSameShape, sizeOf } from "../../ops/index.js";
import type { Device } from "../device.js";
import type { Tensor } from "../tensor.js";
import { BatchedTensor } from "./batched-tensor.js";
import { levelOf } from "./dispatch.js";
import type { Level } from "./level.js";

interface PassOptions {
  readonly retainGraph?: boolean;
  readonly createGraph?: boolean;
}

/**
 * The members do not depend on each other, so the gradients of the sum over members are those of each. Undefined outside vmap. An input that is
 * the same for all members would get their sum, and is rejected.
 */
export function gradOfMembers(
  device: Device,
  roots: readonly Tensor[],
  gradients: readonly (Tensor | null | undefined)[],
  inputs: readonly Tensor[],
  options: PassOptions,
): readonly (Tensor | null)[] | undefined {
  const level = levelOf([...roots, ...inputs]);
  if (!level) return undefined;
  const shared = inputs.findIndex((input) => !isAt(input, level));
  if (shared >= 0) {
    throw new HoldfastError(
      "UNSUPPORTED",
      `grad inside vmap: input ${shared}, "${inputs[shared]?.name}", is the same for all members, so their gradients would be summed. For a gradient of ` +
        `each member, pass it to vmap as an argument: w.expand([${level.size}, ...w.shape]) with inDims 0.`,
      { numbers: { input: shared } },
    );
  }
  const [wholes, seeds]: [Tensor[], Tensor[]] = [[], []];
  for (const [index, root] of roots.entries()) {
    // A root that is the same for all members does not depend on inputs that differ.
    if (!isAt(root, level)) continue;
    wholes.push(root.batch);
    seeds.push(seedOf(device, root, gradients[index]));
  }
  if (wholes.length === 0) return inputs.map(() => null);
  const results = device.grad(
    wholes,
    seeds,
    inputs.map((input) => (isAt(input, level) ? input.batch : input)),
    options,
  );
  return results.map((result) => result && new BatchedTensor(result, level));
}

function isAt(tensor: Tensor, level: Level): tensor is BatchedTensor {
  return tensor instanceof BatchedTensor && tensor.level === level;
}

function seedOf(device: Device, root: BatchedTensor, gradient: Tensor | null | undefined): Tensor {
  const { shape, dtype } = root;
  if (!gradient) {
    if (sizeOf(shape) === 1)
      return noGrad(() => device.apply(functions.fill, [root.batch.detach()], { value: 1 }));
    throw new HoldfastError(
      "BAD_SHAPE",
      `grad of members of shape ${formatShape(shape)}: without a gradient it starts from a single number. Reduce it first, with sum() or mean(), ` +
        "or pass gradOutputs.",
    );
  }
  if (!isSameShape(gradient.shape, shape) || gradient.dtype !== dtype) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `grad of ${dtype} ${formatShape(shape)} got a gradient of ${gradient.dtype} ${formatShape(gradient.shape)}; pass a gradient with the shape and ` +
        "dtype of the tensor.",
    );
  }
  if (isAt(gradient, root.level)) return gradient.batch;
  return device.apply(expand, [gradient], { shape: [root.level.size, ...shape] });
}
