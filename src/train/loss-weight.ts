/** The weight of a batch's loss when a step accumulates the gradients of several batches. */

import { dtypes } from "../ir/index.js";
import type { Region } from "../runtime/index.js";
import type { Device, Tensor } from "../tensor/index.js";

/**
 * The share of a batch in its step. Backward starts from it instead of 1, so that the gradients of all batches add up to those of
 * one large batch. It is in persistent memory, so that one plan serves every share.
 */
export class LossWeight {
  readonly #device: Device;
  readonly #region: Region;
  readonly #cell: Tensor; // f32 []
  #value = 0;

  constructor(device: Device) {
    this.#device = device;
    const placement = { name: "share of the batch", size: dtypes.f32.bytes };
    this.#region = device.runtime.persistent.place("scalars", "accumulation", [placement]);
    this.#cell = device.fromStorage(this.#region.storages[0], [], "f32", placement.name);
  }

  set(value: number): void {
    if (value === this.#value) return;
    this.#device.write(this.#cell, [value]);
    this.#value = value;
  }

  /** With the dtype and shape of the loss, for backward. */
  like({ dtype, shape }: Tensor): Tensor {
    const weight = shape.length === 0 ? this.#cell : this.#cell.reshape(shape);
    return dtype === "f32" ? weight : weight.to(dtype);
  }

  close(): void {
    const { persistent } = this.#device.runtime;
    if (this.#device.isOpen && persistent.regions.includes(this.#region)) persistent.release(this.#region);
  }
}
