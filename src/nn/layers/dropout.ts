/** Dropout: sets random elements to 0 in training. */

import type { Tensor } from "../../tensor/index.js";
import { dropout } from "../functional.js";
import { Module } from "../module.js";
import { requireProbability } from "./checks.js";

/**
 * In training, sets each element to 0 with probability p and scales the others by 1/(1 − p), for p rounded to a multiple of 2⁻¹⁶. In
 * evaluation returns its input. Masks depend on the seed.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Dropout(0.5);
 * console.log(layer.forward(ones([64])).amax().item(), layer.eval().forward(ones([64])).amax().item()); // → 2 1
 * cpu.close();
 * ```
 */
export class Dropout extends Module {
  readonly p: number;

  constructor(p = 0.5) {
    super();
    requireProbability("Dropout", p);
    this.p = p;
  }

  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return dropout(x, this.p, this.isTraining);
  }

  protected override describe(): string {
    return `p=${this.p}`;
  }
}
