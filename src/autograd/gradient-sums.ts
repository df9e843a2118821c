/** Gradients in flight: the sum of those that have arrived at each recorded op, whole or in parts. */

import { add, addToView, type DeviceArray, isContiguous, runInto } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import type { Leaf, Node } from "./node.js";
import { PartialGradient } from "./partial-gradient.js";
import type { Key } from "./paths.js";
import type { TemporaryGradients } from "./temporary-gradients.js";
import type { Region, ViewRegions } from "./view-regions.js";

interface Sum {
  readonly array: DeviceArray;
  /** Set while only parts have arrived. */
  readonly parts?: PartialGradient;
}

export class GradientSums {
  readonly #runtime: Runtime;
  readonly #temporaries: TemporaryGradients;
  readonly #regions: ViewRegions;
  readonly #sums = new Map<Key, Sum>();

  constructor(runtime: Runtime, temporaries: TemporaryGradients, regions: ViewRegions) {
    this.#runtime = runtime;
    this.#temporaries = temporaries;
    this.#regions = regions;
  }

  /** Adds a gradient of all of an op's output, or of all of a leaf. */
  add(node: Key, gradient: DeviceArray): void {
    const earlier = this.#sums.get(node);
    if (!earlier) {
      this.#sums.set(node, { array: gradient });
      this.#temporaries.retain(gradient);
      return;
    }
    const { array } = earlier;
    this.#complete(earlier);
    if (this.#temporaries.isSole(array)) {
      runInto(this.#runtime, add, array, [array, gradient], {});
      this.#sums.set(node, { array });
      return;
    }
    this.#replace(node, array, this.#temporaries.apply(add, [array, gradient]));
  }

  /** Adds a gradient of a part of a node's output. */
  addPart(node: Node | Leaf, gradient: DeviceArray, { view, box, shape }: Region): void {
    const earlier = this.#sums.get(node);
    if (!earlier) {
      const array = this.#temporaries.allocate({ shape, dtype: gradient.dtype }, viewGradientLabel);
      const parts = new PartialGradient(this.#runtime, array, this.#regions.expected(node));
      this.#sums.set(node, { array, parts });
      parts.add(gradient, view, box);
      return;
    }
    const { array, parts } = earlier;
    if (parts) parts.add(gradient, view, box);
    else if (this.#temporaries.isSole(array) && isContiguous(array)) {
      runInto(this.#runtime, addToView, array, [array, gradient], { view });
    } else this.#replace(node, array, this.#temporaries.apply(addToView, [array, gradient], { view }));
  }

  /** Removes and returns the sum of a node's gradients. The caller releases it. */
  take(node: Key): DeviceArray | undefined {
    const sum = this.#sums.get(node);
    this.#sums.delete(node);
    if (sum) this.#complete(sum);
    return sum?.array;
  }

  #complete({ array, parts }: Sum): void {
    if (!parts) return;
    parts.finish();
    this.#temporaries.complete(viewGradientLabel, array);
  }

  #replace(node: Key, earlier: DeviceArray, array: DeviceArray): void {
    this.#sums.set(node, { array });
    this.#temporaries.retain(array);
    this.#temporaries.release(earlier);
  }
}

const viewGradientLabel = addToView.name;
