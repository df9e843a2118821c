/** Hooks of a tensor's gradient: functions of tensors, as functions of values of the graph. */

import { asValue, type RecordedOperand } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { formatShape, isSameShape } from "../ops/index.js";
import { Tensor } from "./tensor.js";

/** Sees a gradient. A returned tensor replaces it. */
export type GradientHook = (gradient: Tensor) => unknown;

/** Removes a hook. */
export interface HookHandle {
  remove(): void;
}

export function hookOfTensor(
  { device, name }: Tensor,
  hook: GradientHook,
): (gradient: RecordedOperand) => RecordedOperand | undefined {
  return (gradient) => {
    const result = hook(new Tensor({ device, value: asValue(gradient) }, `${name}.grad`));
    if (!(result instanceof Tensor)) return undefined;
    const { shape, dtype } = gradient.array;
    if (isSameShape(result.shape, shape) && result.dtype === dtype) return result.value;
    throw new HoldfastError(
      "BAD_SHAPE",
      `A hook of "${name}" returned ${result.dtype} ${formatShape(result.shape)} for a gradient of ${dtype} ${formatShape(shape)}. ` +
        "Return a tensor of that type, or nothing.",
    );
  };
}

export function requireGradient(call: string, { name }: Tensor): HoldfastError {
  return new HoldfastError(
    "NO_GRADIENT",
    `${call}() of "${name}", which has no gradient. Set requiresGrad on it or on the tensors that it is computed from.`,
  );
}
