/** Linear: a GEMM with a weight, and a bias; and the base of what changes its result, such as LoRA. */

import { checkOptions, type OptionNames } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { bilinear, linear } from "../functional.js";
import { kaimingUniform, uniform } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireSizes } from "./checks.js";

/** Options of a `Linear` layer. */
export interface LinearOptions {
  /** Add a bias. Default: true. */
  readonly bias?: boolean;
}

const linearOptionNames: OptionNames<LinearOptions> = { bias: true };

/**
 * What changes the result of a linear layer, such as a low-rank adapter: a module with its own parameters, in the field `adapter` of the
 * layer. The layer calls it instead of computing x·Wᵀ + b.
 *
 * @example
 * ```ts
 * import { device, nn, ones, type Tensor } from "holdfast";
 * class Doubled extends nn.LinearAdapter {
 *   forward(x: Tensor, layer: nn.Linear): Tensor {
 *     return nn.functional.linear(x, layer.weight, layer.bias).mul(2);
 *   }
 * }
 * const cpu = await device("cpu");
 * const layer = new nn.Linear(3, 1, { bias: false }).to(cpu);
 * const before = layer.forward(ones([3])).item();
 * layer.adapter = new Doubled();
 * console.log(layer.forward(ones([3])).item() === 2 * before); // → true
 * cpu.close();
 * ```
 */
export abstract class LinearAdapter extends Module {
  /** The result of the layer with this adapter. */
  abstract forward(x: Tensor, layer: Linear): Tensor;
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
  /** Changes the result, such as LoRA's low-rank product. Default: null. */
  adapter: LinearAdapter | null = null;

  constructor(inFeatures: number, outFeatures: number, options: LinearOptions = {}) {
    const { bias = true } = checkOptions("nn.Linear", options, linearOptionNames);
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
    return this.adapter?.forward(x, this) ?? linear(x, this.weight, this.bias);
  }

  protected override describe(): string {
    return `inFeatures=${this.inFeatures}, outFeatures=${this.outFeatures}, bias=${this.bias !== null}`;
  }
}

/**
 * x1 · W[o] · x2 + b[o] for each output o.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Bilinear(2, 3, 4).to(cpu);
 * console.log(layer.forward(ones([5, 2]), ones([5, 3])).shape); // → [ 5, 4 ]
 * cpu.close();
 * ```
 */
export class Bilinear extends Module {
  readonly in1Features: number;
  readonly in2Features: number;
  readonly outFeatures: number;
  /** [out, in1, in2] */
  readonly weight: Parameter;
  readonly bias: Parameter | null;

  constructor(in1Features: number, in2Features: number, outFeatures: number, options: LinearOptions = {}) {
    const { bias = true } = checkOptions("nn.Bilinear", options, linearOptionNames);
    super();
    requireSizes("Bilinear", { in1Features, in2Features, outFeatures });
    this.in1Features = in1Features;
    this.in2Features = in2Features;
    this.outFeatures = outFeatures;
    const bound = 1 / Math.sqrt(in1Features);
    this.weight = new Parameter([outFeatures, in1Features, in2Features], uniform(-bound, bound));
    this.bias = bias ? new Parameter([outFeatures], uniform(-bound, bound)) : null;
  }

  /** […, in1] and […, in2] to […, out]. */
  forward(x1: Tensor, x2: Tensor): Tensor {
    return bilinear(x1, x2, this.weight, this.bias);
  }

  protected override describe(): string {
    const { in1Features, in2Features, outFeatures, bias } = this;
    return `in1Features=${in1Features}, in2Features=${in2Features}, outFeatures=${outFeatures}, bias=${bias !== null}`;
  }
}
