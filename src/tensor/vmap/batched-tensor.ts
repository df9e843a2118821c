/** A tensor inside vmap: it looks like one member, and has the memory of all. */

import type { Value } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import type { Shape } from "../../ops/index.js";
import type { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import { isOpen, type Level } from "./level.js";

/** `batch` has the members along its first axis. In nested calls of vmap it may be a tensor of an outer one. */
export class BatchedTensor extends Tensor {
  readonly batch: Tensor;
  readonly level: Level;

  constructor(batch: Tensor, level: Level) {
    super(undefined, batch.name);
    this.batch = batch;
    this.level = level;
  }

  override get device(): Device {
    return this.batch.device;
  }

  override get shape(): Shape {
    return this.batch.shape.slice(1);
  }

  override get dtype(): Dtype {
    return this.batch.dtype;
  }

  override get isContiguous(): boolean {
    return this.batch.isContiguous;
  }

  override get requiresGrad(): boolean {
    return this.batch.requiresGrad;
  }

  override set requiresGrad(isRequired: boolean) {
    this.batch.requiresGrad = isRequired;
  }

  override get isLeaf(): boolean {
    return this.batch.isLeaf;
  }

  override detach(): Tensor {
    return new BatchedTensor(this.batch.detach(), this.level);
  }

  /** All that needs elements or memory reads this: one member has neither of its own. */
  override get value(): Value {
    throw isOpen(this.level)
      ? new HoldfastError(
          "UNSUPPORTED",
          `vmap: "${this.name}" stands for ${this.level.size} members at once, so its elements cannot be read or written, and backward() cannot start from ` +
            "it. Return it from the function and read it after vmap; for gradients call autograd.grad; or loop over x.unbind().",
        )
      : new HoldfastError(
          "DEAD_TENSOR",
          `"${this.name}" belongs to a call of vmap that has ended. Return it from the function, and use what vmap returns.`,
        );
  }

  override toString(): string {
    return `a member of ${this.batch}`;
  }
}
