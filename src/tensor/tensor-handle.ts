/** The view that a device has of a tensor: its name, its value in the graph and its gradient. */

import type { GradientHooks, Leaf, RecordedOperand, Value } from "../autograd/index.js";
import type { DeviceArray } from "../ops/index.js";

/** The gradient of a leaf. */
export interface GradientHolder extends Leaf {
  /** Undefined if no gradient has arrived since it was cleared. */
  readonly gradient: DeviceArray | undefined;
  /** Where the gradient comes from, if backward recorded it. */
  readonly source: RecordedOperand["source"];
  readonly hooks: GradientHooks;
  clear(): void;
  /** Frees the gradient together with the tensor that it belongs to. */
  release(): void;
}

export interface TensorHandle {
  readonly name: string;
  readonly value: Value;
  readonly gradientHolder: GradientHolder | undefined;
}
