/** Several tensors as one contiguous vector, for exchanges. */

import { type Dtype, dtypes } from "../ir/index.js";
import { sizeOf } from "../ops/index.js";
import { cat, type Device, type Tensor, zeros } from "../tensor/index.js";

export interface Slot {
  readonly shape: readonly number[];
  readonly dtype: Dtype;
}

/** How tensors of these shapes are packed: as float32 or float64, because sums of 16-bit gradients would lose digits. */
export class PackedLayout {
  readonly slots: readonly Slot[];
  readonly dtype: "f32" | "f64";
  readonly length: number;

  constructor(slots: readonly Slot[]) {
    this.slots = slots;
    this.dtype = slots.some(({ dtype }) => dtype === "f64") ? "f64" : "f32";
    this.length = slots.reduce((sum, { shape }) => sum + sizeOf(shape), 0);
  }

  get bytes(): number {
    return this.length * dtypes[this.dtype].bytes;
  }

  /** True for the same dtype and the same shapes in the same order. */
  equals({ dtype, slots }: PackedLayout): boolean {
    const shapes = (list: readonly Slot[]): string => list.map(({ shape }) => shape.join("x")).join();
    return dtype === this.dtype && shapes(slots) === shapes(this.slots);
  }

  /** Zeros for those that are missing. */
  pack(tensors: readonly (Tensor | null | undefined)[], device: Device): Tensor {
    const { dtype } = this;
    return cat(
      this.slots.map(({ shape }, index) => {
        const flat = [sizeOf(shape)];
        return tensors[index]?.to(dtype).reshape(flat) ?? zeros(flat, { dtype, device });
      }),
    );
  }

  unpack(packed: Tensor): Tensor[] {
    let start = 0;
    return this.slots.map(({ shape, dtype }) => {
      const length = sizeOf(shape);
      const part = packed.narrow(0, start, length);
      start += length;
      return part.reshape([...shape]).to(dtype);
    });
  }
}
