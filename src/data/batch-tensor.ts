/** A tensor of a batch: it knows when the loader has drawn the next one over it. */

import type { Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { Tensor, type TensorPlace } from "../tensor/index.js";

export interface BatchNumber {
  readonly epoch: number;
  readonly batch: number;
}

export interface BatchPlace extends BatchNumber {
  readonly column: number;
  /** Does the batch still stand in the loader's buffers? */
  readonly isCurrent: () => boolean;
}

/** Its memory never dies, so without this a late use would quietly read the rows of another batch. */
export class BatchTensor extends Tensor {
  readonly #place: BatchPlace;

  constructor(place: TensorPlace, batch: BatchPlace) {
    super(place, `column ${batch.column} of batch ${batch.batch} in epoch ${batch.epoch}`);
    this.#place = batch;
  }

  override get value(): Value {
    if (this.#place.isCurrent()) return super.value;
    const { epoch, batch, column } = this.#place;
    throw new HoldfastError(
      "DEAD_TENSOR",
      `"${this.name}" was used after its loader had gone on: a batch stands in buffers that the next one overwrites. ` +
        "Use it before the next batch is drawn, or clone() it.",
      { numbers: { epoch, batch, column } },
    );
  }
}
