/** Functions of several tensors: concatenation, selection, one-hot rows. */

import { HoldfastError } from "../errors/index.js";
import { cat as catOp, comparisons, oneHot as oneHotOp, stack as stackOp } from "../ops/index.js";
import type { Device } from "./device.js";
import type { Tensor } from "./tensor.js";

/**
 * Concatenates tensors along an axis; their other axes are equal.
 *
 * @example
 * ```ts
 * import { cat, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(cat([tensor([[1], [2]]), tensor([[3, 4], [5, 6]])], 1).tolist()); // → [ [ 1, 3, 4 ], [ 2, 5, 6 ] ]
 * cpu.close();
 * ```
 */
export function cat(tensors: readonly Tensor[], axis = 0): Tensor {
  return deviceOf("cat", tensors).apply(catOp, tensors, { axis });
}

/**
 * Stacks tensors of one shape along a new axis.
 *
 * @example
 * ```ts
 * import { device, stack, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(stack([tensor([1, 2]), tensor([3, 4])], 1).tolist()); // → [ [ 1, 3 ], [ 2, 4 ] ]
 * cpu.close();
 * ```
 */
export function stack(tensors: readonly Tensor[], axis = 0): Tensor {
  return deviceOf("stack", tensors).apply(stackOp, tensors, { axis });
}

/**
 * Elements of `a` where the condition is true, and of `b` elsewhere. All three broadcast; `a` and `b` may be numbers. With the condition
 * alone, the indices where it is true: one i32 vector for each axis. That reads the condition back, so a compiled step rejects it.
 *
 * @example
 * ```ts
 * import { device, tensor, where } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([-1, 2, -3]);
 * console.log(where(x.gt(0), x, 0).tolist()); // → [ 0, 2, 0 ]
 * const [rows, columns] = where(tensor([[0, 1], [2, 3]]));
 * console.log(rows?.tolist(), columns?.tolist()); // → [ 0, 1, 1 ] [ 1, 0, 1 ]
 * cpu.close();
 * ```
 */
export function where(condition: Tensor): Tensor[];
export function where(condition: Tensor, a: Tensor | number, b: Tensor | number): Tensor;
export function where(condition: Tensor, a?: Tensor | number, b?: Tensor | number): Tensor | Tensor[] {
  if (a !== undefined && b !== undefined) return condition.device.apply(comparisons.where, [condition, a, b]);
  if (a === undefined && b === undefined)
    return (condition.ndim === 0 ? condition.reshape([1]) : condition).nonzero().unbind(1);
  throw new HoldfastError(
    "BAD_ARGUMENT",
    "where takes a condition and two values, or the condition alone. Pass the other value too, or none.",
  );
}

/**
 * One i32 row for each label: 1 at the index of the label and 0 elsewhere. Default number of classes: one more than the largest label, which
 * is read back.
 *
 * @example
 * ```ts
 * import { device, oneHot, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(oneHot(tensor([2, 0], { dtype: "i32" }), 3).tolist()); // → [ [ 0, 0, 1 ], [ 1, 0, 0 ] ]
 * cpu.close();
 * ```
 */
export function oneHot(labels: Tensor, classes?: number): Tensor {
  const count = classes ?? (labels.numel === 0 ? 0 : labels.amax().item() + 1);
  return labels.device.apply(oneHotOp, [labels], { classes: count });
}

function deviceOf(op: string, tensors: readonly Tensor[]): Device {
  const [first] = tensors;
  if (first) return first.device;
  throw new HoldfastError("BAD_ARGUMENT", `${op} takes one tensor or more, but got none.`);
}
