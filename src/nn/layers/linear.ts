/** Linear: a GEMM with a weight, and a bias. */

import type { Tensor } from "../../tensor/index.js";
import { linear } from "../functional.js";
import { kaimingUniform, uniform } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireSizes } from "./checks.js";

/** Options of a `Linear` layer. */
export interface LinearOptions {
  /** Add a bias. Default: true. */
  readonly bias?: boolean;
}

/**
 * x·Wᵀ + b over the last axis.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Linear(3, 2).to(cpu);
 * console.log(String(layer), layer.forward(ones([5, 3])).shape);
 * // → Linear(inFeatures=3, outFeatures=2, bias=true) [ 5, 2 ]
 * cpu.close();
 * ```
 */
export class Linear extends Module {
  readonly inFeatures: number;
  readonly outFeatures: number;
  /** [out, in]. Assign another layer's weight to tie the two: `head.weight = words.weight`. */
  weight: Parameter;
  /** [out] */
  readonly bias: Parameter | null;

  constructor(inFeatures: number, outFeatures: number, { bias = true }: LinearOptions = {}) {
    super();
    requireSizes("Linear", { inFeatures, outFeatures });
    this.inFeatures = inFeatures;
    this.outFeatures = outFeatures;
    this.weight = new Parameter([outFeatures, inFeatures], kaimingUniform());
    const bound = 1 / Math.sqrt(inFeatures);
    this.bias = bias ? new Parameter([outFeatures], uniform(-bound, bound)) : null;
  }

  /** [..., inFeatures] to [..., outFeatures]. */
  forward(x: Tensor): Tensor {
    return linear(x, this.weight, this.bias);
  }

  protected override describe(): string {
    return `inFeatures=${this.inFeatures}, outFeatures=${this.outFeatures}, bias=${this.bias !== null}`;
  }
}
