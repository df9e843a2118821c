/**
 * Sums of gradients over several batches, one for each shard of a rank. They are exchanged once, after the last batch. A sum over the
 * shards would depend on the number of ranks.
 */

import { noGrad } from "../autograd/index.js";
import type { Region } from "../runtime/index.js";
import type { Device, Tensor } from "../tensor/index.js";
import type { Bucket } from "./buckets.js";

export class ShardSums {
  readonly device: Device;
  readonly #buckets: readonly Bucket[];
  readonly #region: Region;
  /** By bucket and shard. */
  readonly #sums: readonly (readonly Tensor[])[];

  /** Of zeros. */
  constructor(device: Device, buckets: readonly Bucket[], shards: number) {
    const { runtime } = device;
    this.#buckets = buckets;
    this.device = device;
    const names = Array.from({ length: shards }, (_, shard) => `sum of shard ${shard}`);
    this.#region = runtime.outsideTrace(() => {
      const placements = buckets.flatMap(({ layout }) => names.map((name) => ({ name, size: layout.bytes })));
      const region = runtime.persistent.place("gradients", "sums of shards", placements);
      runtime.fill(region.whole, 0);
      return region;
    });
    const storages = this.#region.storages.values();
    this.#sums = buckets.map(({ layout: { length, dtype } }) =>
      names.flatMap((name) => {
        const storage = storages.next().value;
        return storage ? [device.fromStorage(storage, [length], dtype, name)] : [];
      }),
    );
  }

  /** True for buckets with the same dtypes and shapes. */
  fits(buckets: readonly Bucket[]): boolean {
    return (
      buckets.length === this.#buckets.length &&
      buckets.every(({ layout }, index) => this.#buckets[index]?.layout.equals(layout))
    );
  }

  /** Adds a bucket of gradients to the sum of a shard. */
  add(bucket: number, shard: number, term: Tensor): void {
    noGrad(() => void this.#sums[bucket]?.[shard]?.add_(term));
  }

  /** The sums of a bucket with one more term each. Afterwards they are 0. */
  take(bucket: number, terms: readonly Tensor[]): readonly Tensor[] {
    return noGrad(() =>
      (this.#sums[bucket] ?? []).map((sum, shard) => {
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
