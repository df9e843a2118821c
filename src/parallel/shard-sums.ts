/**
 * Sums of gradients over several batches, one for each shard of a rank. They are exchanged once, after the last batch. A sum over the
 * shards would depend on the number of ranks.
 */

import { noGrad } from "../autograd/index.js";
import type { Region } from "../runtime/index.js";
import type { Device, Tensor } from "../tensor/index.js";
import type { PackedLayout } from "./packed.js";

export class ShardSums {
  readonly layout: PackedLayout;
  readonly device: Device;
  readonly #region: Region;
  readonly #sums: readonly Tensor[]; // each [length]

  /** Of zeros. */
  constructor(device: Device, layout: PackedLayout, shards: number) {
    const { runtime } = device;
    this.layout = layout;
    this.device = device;
    this.#region = runtime.outsideTrace(() => {
      const placements = Array.from({ length: shards }, (_, shard) => ({
        name: `sum of shard ${shard}`,
        size: layout.bytes,
      }));
      const region = runtime.persistent.place("gradients", "sums of shards", placements);
      runtime.fill(region.whole, 0);
      return region;
    });
    this.#sums = this.#region.storages.map((storage, shard) =>
      device.fromStorage(storage, [layout.length], layout.dtype, `sum of shard ${shard}`),
    );
  }

  /** Adds a term to the sum of each shard. */
  add(terms: readonly Tensor[]): void {
    noGrad(() => {
      for (const [shard, sum] of this.#sums.entries()) sum.add_(terms[shard] ?? 0);
    });
  }

  /** The sums with one more term each. Afterwards they are 0. */
  take(terms: readonly Tensor[]): readonly Tensor[] {
    return noGrad(() =>
      this.#sums.map((sum, shard) => {
        const total = sum.add(terms[shard] ?? 0);
        sum.zero_();
        return total;
      }),
    );
  }

  release(): void {
    const { isOpen, runtime } = this.device;
    if (isOpen && runtime.persistent.regions.includes(this.#region)) runtime.persistent.release(this.#region);
  }
}
