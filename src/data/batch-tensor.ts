/** A tensor of a batch, which is invalid once the loader has drawn the next batch. */

import type { Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { type DeviceValue, Tensor } from "../tensor/index.js";

export interface BatchNumber {
  readonly epoch: number;
  readonly batch: number;
}

export interface BatchBuffers extends BatchNumber {
  readonly column: number;
  /** True while the batch is in the loader's buffers. */
  readonly isCurrent: () => boolean;
}

/** The buffers never die, so without this check a late use would read the rows of another batch. */
export class BatchTensor extends Tensor {
  readonly #batch: BatchBuffers;

  constructor(place: DeviceValue, batch: BatchBuffers) {
    super(place, `column ${batch.column} of batch ${batch.batch} in epoch ${batch.epoch}`);
    this.#batch = batch;
  }

  override get value(): Value {
    if (this.#batch.isCurrent()) return super.value;
    const { epoch, batch, column } = this.#batch;
    throw new HoldfastError(
      "DEAD_TENSOR",
      `"${this.name}" was used after its loader drew the next batch, which overwrites the same buffers. ` +
        "Use it before the next batch is drawn, or clone() it.",
      { numbers: { epoch, batch, column } },
    );
  }
}
