/** Flatten: merges neighbouring axes. */

import type { Tensor } from "../../tensor/index.js";
import { Module } from "../module.js";

/**
 * Merges the axes from `first` to `last`. Default: all but the batch.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Flatten().forward(ones([2, 3, 4])).shape); // → [ 2, 12 ]
 * cpu.close();
 * ```
 */
export class Flatten extends Module {
  readonly first: number;
  readonly last: number;

  constructor(first = 1, last = -1) {
    super();
    this.first = first;
    this.last = last;
  }

  /** The same elements with the axes from `first` to `last` merged. */
  forward(x: Tensor): Tensor {
    return x.flatten(this.first, this.last);
  }

  protected override describe(): string {
    return `first=${this.first}, last=${this.last}`;
  }
}

/**
 * Splits an axis into several.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Unflatten(1, [2, 3]).forward(ones([4, 6])).shape); // → [ 4, 2, 3 ]
 * cpu.close();
 * ```
 */
export class Unflatten extends Module {
  readonly axis: number;
  readonly sizes: readonly number[];

  constructor(axis: number, sizes: readonly number[]) {
    super();
    this.axis = axis;
    this.sizes = sizes;
  }

  /** The axis becomes several, of these sizes. */
  forward(x: Tensor): Tensor {
    return x.unflatten(this.axis, this.sizes);
  }

  protected override describe(): string {
    return `axis=${this.axis}, sizes=[${this.sizes.join(", ")}]`;
  }
}

/**
 * Returns its input: a place for another layer.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Identity().forward(ones([2])).tolist()); // → [ 1, 1 ]
 * cpu.close();
 * ```
 */
export class Identity extends Module {
  /** The input itself. */
  forward(x: Tensor): Tensor {
    return x;
  }
}
