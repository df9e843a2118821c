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
