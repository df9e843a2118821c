/** Delivers gradients to the leaves. First gradients are copied together where a copy costs a launch. */

import { capabilitiesOf } from "../kernels/index.js";
import { type ArrayCopy, addToView, copyArrays, type DeviceArray } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import type { Leaf } from "./node.js";
import { PartialGradient } from "./partial-gradient.js";
import type { TemporaryGradients } from "./temporary-gradients.js";
import type { Region, ViewRegions } from "./view-regions.js";

export class LeafDelivery {
  readonly #runtime: Runtime;
  readonly #temporaries: TemporaryGradients;
  readonly #regions: ViewRegions;
  /** First gradients that still have to be copied to their storage. */
  #pendingCopies: ArrayCopy[] = [];
  readonly #copied: DeviceArray[] = [];
  /** First gradients of which only parts have arrived. */
  readonly #partial = new Map<Leaf, { readonly array: DeviceArray; readonly parts: PartialGradient }>();

  constructor(runtime: Runtime, temporaries: TemporaryGradients, regions: ViewRegions) {
    this.#runtime = runtime;
    this.#temporaries = temporaries;
    this.#regions = regions;
  }

  deliver(leaf: Leaf, gradient: DeviceArray): void {
    // On a device where a copy costs no launch, deferring it only costs memory.
    const destination = capabilitiesOf(this.#runtime).combinesKernels ? leaf.takeDestination() : undefined;
    if (destination) {
      this.#pendingCopies.push({ source: gradient, target: destination });
      this.#temporaries.retain(gradient);
      return;
    }
    // A gradient must be in place before it is added to.
    this.#flushCopies();
    this.#complete(leaf);
    leaf.accumulate(gradient);
  }

  /** Delivers a gradient of a part of a leaf. */
  deliverPart(leaf: Leaf, gradient: DeviceArray, { view, box }: Region): void {
    const partial = this.#partial.get(leaf);
    if (partial) {
      partial.parts.add(gradient, view, box);
      return;
    }
    const array = leaf.takeDestination();
    if (!array) {
      this.#flushCopies();
      leaf.accumulateView(gradient, view);
      return;
    }
    const parts = new PartialGradient(this.#runtime, array, this.#regions.expected(leaf));
    this.#partial.set(leaf, { array, parts });
    parts.add(gradient, view, box);
  }

  /** Deferred until the end of an op: its other gradients may share the memory. */
  releaseCopied(): void {
    for (const gradient of this.#copied.splice(0)) this.#temporaries.release(gradient);
  }

  /** Completes all gradients, also after a failure: they count as arrived. */
  finish(): void {
    this.#flushCopies();
    this.releaseCopied();
    for (const leaf of [...this.#partial.keys()]) this.#complete(leaf);
  }

  #flushCopies(): void {
    const copies = this.#pendingCopies;
    this.#pendingCopies = [];
    copyArrays(this.#runtime, copies);
    this.#copied.push(...copies.map(({ source }) => source));
  }

  #complete(leaf: Leaf): void {
    const partial = this.#partial.get(leaf);
    if (!partial) return;
    this.#partial.delete(leaf);
    partial.parts.finish();
    this.#temporaries.complete(addToView.name, partial.array);
  }
}
