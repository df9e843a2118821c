/** LoraAdapter: the trainable low-rank product beside a frozen linear layer. */

import { noGrad } from "../../autograd/index.js";
import type { Dtype } from "../../ir/index.js";
import { Dropout, functional, init, type Linear, LinearAdapter, Parameter } from "../../nn/index.js";
import type { Tensor } from "../../tensor/index.js";

/** The sizes of an adapter. */
export interface LoraSizes {
  /** The width of the product. */
  readonly rank: number;
  /** The product is scaled by alpha / rank, or alpha / √rank with `useRslora`. */
  readonly alpha: number;
  /** The probability with which elements of the input of A are dropped in training. */
  readonly dropout: number;
  /** Scales by alpha / √rank: rank-stabilized LoRA. */
  readonly useRslora: boolean;
}

/**
 * x·Wᵀ + b + scaling · dropout(x)·Aᵀ·Bᵀ. The result has the dtype that it would have without the adapter.
 *
 * @example
 * ```ts
 * import { applyLora, device, modelFromConfig, models } from "holdfast";
 * const cpu = await device("cpu");
 * const sizes = { vocab_size: 20, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 };
 * const model = applyLora(modelFromConfig({ model_type: "llama", ...sizes }).to(cpu), { rank: 2, alpha: 4 });
 * for (const [path, module] of model.namedModules())
 *   if (module instanceof models.LoraAdapter) console.log(path, module.scaling);
 * // → layers.0.selfAttn.qProj.adapter 2
 * // → layers.0.selfAttn.vProj.adapter 2
 * cpu.close();
 * ```
 */
export class LoraAdapter extends LinearAdapter {
  /** [rank, in] */
  readonly loraA: Parameter;
  /** [out, rank]. It starts as zeros, so a new adapter changes nothing. */
  readonly loraB: Parameter;
  readonly dropout: Dropout;
  readonly sizes: LoraSizes;
  /** The factor of the product. */
  readonly scaling: number;
  /** True if the product is in the layer's weight, so that the layer computes x·Wᵀ + b alone. */
  isMerged = false;

  constructor(layer: Linear, sizes: LoraSizes) {
    super();
    const { rank, alpha, dropout, useRslora } = sizes;
    const dtype: Dtype = layer.weight.dtype === "f64" ? "f64" : "f32";
    this.sizes = sizes;
    this.scaling = alpha / (useRslora ? Math.sqrt(rank) : rank);
    this.loraA = new Parameter([rank, layer.inFeatures], init.kaimingUniform(), { dtype });
    this.loraB = new Parameter([layer.outFeatures, rank], init.zeros(), { dtype });
    this.dropout = new Dropout(dropout);
  }

  /** The result of the layer, with the product unless it is merged. */
  forward(x: Tensor, { weight, bias }: Linear): Tensor {
    if (this.isMerged) return functional.linear(x, weight, bias);
    const { loraA: a, loraB: b, scaling: scale } = this;
    const dropped = this.isTraining && this.dropout.p > 0 ? { input: this.dropout.forward(x) } : {};
    return functional.loraLinear(x, weight, bias, { a, b, scale, ...dropped });
  }

  /**
   * Adds the product to the weight of its layer, or subtracts it. `mergeLora` does this for all layers of a model.
   *
   * @example
   * ```ts
   * import { applyLora, device, models, nn } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(4, 2).to(cpu);
   * applyLora(new nn.Sequential(layer), { targets: "all-linear" });
   * if (layer.adapter instanceof models.LoraAdapter) {
   *   layer.adapter.merge(layer, true);
   *   console.log(layer.adapter.isMerged); // → true
   * }
   * cpu.close();
   * ```
   */
  merge({ weight }: Linear, isMerged: boolean): void {
    if (this.isMerged === isMerged) return;
    const factor = isMerged ? this.scaling : -this.scaling;
    weight.device.step(() =>
      noGrad(() => {
        const product = this.loraB.matmul(this.loraA).mul(factor);
        weight.copy_(weight.add(product).to(weight.dtype));
      }),
    );
    this.isMerged = isMerged;
  }

  protected override describe(): string {
    const { rank, alpha } = this.sizes;
    return `rank=${rank}, alpha=${alpha}`;
  }
}
