/**
 * Gradients in buckets. Each bucket is exchanged as a whole, as soon as its gradients are complete, while backward computes those of the next.
 */

import type { Device, Tensor } from "../tensor/index.js";
import { MiB } from "../units/index.js";
import { PackedLayout, type Slot } from "./packed.js";

/** As in PyTorch: large enough for the bandwidth of a network, small enough to leave work to overlap with. */
export const defaultBucketBytes = 25 * MiB;
/** The first bucket is small, so that its exchange starts early. */
const firstBucketBytes = MiB;

/** Gradients that are exchanged together. */
export interface Bucket {
  readonly layout: PackedLayout;
  /** The index of its first slot. */
  readonly first: number;
}

/** Cuts gradients, in the order in which they are expected, into buckets of at most `maxBytes`; a larger gradient has its own. */
export function cutBuckets(slots: readonly Slot[], maxBytes: number): readonly Bucket[] {
  const buckets: Bucket[] = [];
  let first = 0;
  let bytes = 0;
  const close = (end: number): void => {
    if (end > first) buckets.push({ layout: new PackedLayout(slots.slice(first, end)), first });
    first = end;
    bytes = 0;
  };
  for (const [index, slot] of slots.entries()) {
    const added = new PackedLayout([slot]).bytes;
    const limit = buckets.length === 0 ? Math.min(maxBytes, firstBucketBytes) : maxBytes;
    if (bytes + added > limit) close(index);
    bytes += added;
  }
  close(slots.length);
  return buckets;
}

/** Packs the gradients of one backward pass as they arrive. */
export class BucketPacker {
  readonly #device: Device;
  readonly #buckets: readonly Bucket[];
  readonly #onPacked: (bucket: number, packed: Tensor) => void;
  readonly #arrived: (Tensor | undefined)[] = [];
  readonly #missing: number[];
  #next = 0;

  /** `onPacked` is called with each bucket, in their order: the collectives of all ranks have one order. */
  constructor(
    device: Device,
    buckets: readonly Bucket[],
    onPacked: (bucket: number, packed: Tensor) => void,
  ) {
    this.#device = device;
    this.#buckets = buckets;
    this.#onPacked = onPacked;
    this.#missing = buckets.map(({ layout }) => layout.slots.length);
  }

  put(slot: number, gradient: Tensor): void {
    this.#arrived[slot] = gradient;
    const bucket = this.#buckets.findLastIndex(({ first }) => first <= slot);
    this.#missing[bucket] = (this.#missing[bucket] ?? 0) - 1;
    while (this.#missing[this.#next] === 0) this.#packNext();
  }

  /** Packs the other buckets. Gradients that have not arrived are zeros. */
  finish(): void {
    while (this.#next < this.#buckets.length) this.#packNext();
  }

  #packNext(): void {
    const index = this.#next++;
    const bucket = this.#buckets[index];
    if (!bucket) return;
    const { layout, first } = bucket;
    const gradients = layout.slots.map((_, slot) => this.#arrived[first + slot]);
    for (const slot of layout.slots.keys()) this.#arrived[first + slot] = undefined;
    this.#onPacked(index, layout.pack(gradients, this.#device));
  }
}
