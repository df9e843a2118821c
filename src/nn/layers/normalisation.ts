/** LayerNorm and RMSNorm: normalize rows, then apply a learned scale. */

import { checkOptions } from "../../errors/index.js";
import { formatShape, type Shape } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";
import { layerNorm, rmsNorm } from "../functional.js";
import { ones, zeros } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireSizes } from "./checks.js";

/** Options of a `LayerNorm` layer. */
export interface LayerNormOptions {
  /** Added to the variance. Default: 1e-5. */
  readonly eps?: number;
  /** Learn a weight and, by default, a bias. Default: true. */
  readonly elementwiseAffine?: boolean;
  readonly bias?: boolean;
}

/** Options of an `RMSNorm` layer. */
export interface RMSNormOptions {
  /** Added to the mean square. Default: the dtype's machine epsilon. */
  readonly eps?: number;
  readonly elementwiseAffine?: boolean;
}

/**
 * Normalizes rows (the last axes, of this shape) to mean 0 and standard deviation 1, then applies weight and bias.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.LayerNorm(2, { eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[1, 3], [10, 30]])).tolist()); // → [ [ -1, 1 ], [ -1, 1 ] ]
 * cpu.close();
 * ```
 */
export class LayerNorm extends Module {
  readonly normalizedShape: Shape;
  readonly eps: number;
  readonly weight: Parameter | null;
  readonly bias: Parameter | null;

  constructor(normalizedShape: number | Shape, options: LayerNormOptions = {}) {
    const {
      eps = 1e-5,
      elementwiseAffine = true,
      bias = true,
    } = checkOptions("nn.LayerNorm", options, { eps: true, elementwiseAffine: true, bias: true });
    super();
    this.normalizedShape = rowShape("LayerNorm", normalizedShape);
    this.eps = eps;
    this.weight = elementwiseAffine ? new Parameter(this.normalizedShape, ones()) : null;
    this.bias = elementwiseAffine && bias ? new Parameter(this.normalizedShape, zeros()) : null;
  }

  /** Normalized rows, scaled and shifted; in the input's shape. */
  forward(x: Tensor): Tensor {
    return layerNorm(x, this.normalizedShape, this.weight, this.bias, this.eps);
  }

  protected override describe(): string {
    return `${formatShape(this.normalizedShape)}, eps=${this.eps}, elementwiseAffine=${this.weight !== null}`;
  }
}

/**
 * Divides rows (the last axes, of this shape) by their root mean square, then applies the weight.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.RMSNorm(2, { eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[2, 2]])).tolist()); // → [ [ 1, 1 ] ]
 * cpu.close();
 * ```
 */
export class RMSNorm extends Module {
  readonly normalizedShape: Shape;
  readonly eps: number | undefined;
  readonly weight: Parameter | null;

  constructor(normalizedShape: number | Shape, options: RMSNormOptions = {}) {
    const { eps, elementwiseAffine = true } = checkOptions("nn.RMSNorm", options, {
      eps: true,
      elementwiseAffine: true,
    });
    super();
    this.normalizedShape = rowShape("RMSNorm", normalizedShape);
    this.eps = eps;
    this.weight = elementwiseAffine ? new Parameter(this.normalizedShape, ones()) : null;
  }

  /** Rows of root mean square 1, scaled; in the input's shape. */
  forward(x: Tensor): Tensor {
    return rmsNorm(x, this.normalizedShape, this.weight, this.eps);
  }

  protected override describe(): string {
    const eps = this.eps === undefined ? "" : `, eps=${this.eps}`;
    return `${formatShape(this.normalizedShape)}${eps}, elementwiseAffine=${this.weight !== null}`;
  }
}

function rowShape(layer: string, normalizedShape: number | Shape): Shape {
  const shape = typeof normalizedShape === "number" ? [normalizedShape] : [...normalizedShape];
  requireSizes(
    layer,
    Object.fromEntries(shape.map((size, axis) => [`axis ${axis} of normalizedShape`, size])),
  );
  return shape;
}
