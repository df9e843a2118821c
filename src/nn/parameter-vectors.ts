/** Parameters as one vector, and back: `nn.utils`. */

import { noGrad } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { contiguous, formatShape } from "../ops/index.js";
import { cat, type Tensor } from "../tensor/index.js";

/**
 * The elements of all tensors, one after the other. The gradient flows to them.
 *
 * @example
 * ```ts
 * import { device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(2, 3).to(cpu);
 * console.log(nn.utils.parametersToVector(model.parameters()).shape); // → [ 9 ]
 * cpu.close();
 * ```
 */
export function parametersToVector(parameters: Iterable<Tensor>): Tensor {
  return cat([...parameters].map((parameter) => parameter.flatten()));
}

/**
 * Writes consecutive elements of a vector to the parameters.
 *
 * @example
 * ```ts
 * import { arange, device, nn } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Linear(2, 1).to(cpu);
 * nn.utils.vectorToParameters(arange(3).to("f32"), model.parameters());
 * console.log(model.weight.tolist(), model.bias?.tolist()); // → [ [ 0, 1 ] ] [ 2 ]
 * cpu.close();
 * ```
 */
export function vectorToParameters(vector: Tensor, parameters: Iterable<Tensor>): void {
  const targets = [...parameters];
  const total = targets.reduce((sum, { numel }) => sum + numel, 0);
  if (vector.ndim !== 1 || vector.numel !== total) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `vectorToParameters: the vector is ${formatShape(vector.shape)}, and the parameters have ${total} elements. Pass [${total}].`,
      { numbers: { elements: vector.numel, total } },
    );
  }
  noGrad(() => {
    let first = 0;
    for (const target of targets) {
      const { numel, shape, dtype, device } = target;
      const values = vector.narrow(0, first, numel).reshape(shape).to(dtype);
      if (numel > 0) device.applyInPlace(contiguous, target, [values]);
      first += numel;
    }
  });
}
