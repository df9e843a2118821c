/** Adamax: Adam with the largest magnitude of recent gradients as divisor. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { lossGradient, requireBetas, requireEps, runningMean, variantName } from "./formulas.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `Adamax`. */
export interface AdamaxOptions {
  /** Learning rate. Default: 0.002. */
  readonly lr?: number;
  /** Decay rates of the running mean of the gradient and of its largest magnitude. Default: 0.9 and 0.999. */
  readonly betas?: readonly [number, number];
  /** Added to the magnitude of the gradient. Default: 1e-8. */
  readonly eps?: number;
  /** Weight decay, added to the gradient. Default: 0. */
  readonly weightDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * Adamax with PyTorch's formulas.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.Adamax([w], { lr: 0.5 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.500', '-1.500' ]
 * cpu.close();
 * ```
 */
export class Adamax extends Optimizer<AdamaxOptions> {
  constructor(parameters: ParameterSource<AdamaxOptions>, options: AdamaxOptions = {}) {
    checkOptions("optim.Adamax", options, {
      lr: true,
      betas: true,
      eps: true,
      weightDecay: true,
      maximize: true,
    });
    super(parameters, { lr: 2e-3, ...options }, adamaxRule);
  }
}

function adamaxRule({ betas = [0.9, 0.999], eps = 1e-8, maximize = false }: AdamaxOptions): UpdateRule {
  requireBetas("Adamax", betas);
  requireEps("Adamax", eps);
  const [beta1, beta2] = betas;
  return {
    name: variantName("Adamax", { maximizing: maximize }),
    moments: ["firstMoment", "largestMagnitude"],
    settings: [beta1, 1 - beta1, beta2, eps],
    numbers: ["lr / (1 - β₁ᵗ)", "weight decay"],
    stepNumbers: ({ lr, weightDecay, t, setting }) => [
      term.div(lr, term.sub(1, term.pow(setting(0), t))),
      weightDecay,
    ],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize, decay: 1 });
      const magnitude = term.add(term.abs(g), setting(3));
      return [
        [0, runningMean(moment(0), g, [setting(0), setting(1)])],
        [1, term.max(term.mul(moment(1), setting(2)), magnitude)],
        ["p", term.sub(p, term.mul(number(0), term.div(moment(0), moment(1))))],
      ];
    },
  };
}
