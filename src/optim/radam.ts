/** RAdam: Adam whose first steps do not divide by a mean of squares that is still uncertain. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { adamSettings, lossGradient, runningMoments, variantName } from "./formulas.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `RAdam`. */
export interface RAdamOptions {
  /** Learning rate. Default: 0.001. */
  readonly lr?: number;
  /** Decay rates of the running means of the gradient and of its square. Default: 0.9 and 0.999. */
  readonly betas?: readonly [number, number];
  /** Added to the divisor. Default: 1e-8. */
  readonly eps?: number;
  /** Weight decay. Default: 0. */
  readonly weightDecay?: number;
  /** Decay the parameter itself, as AdamW does, and not through the gradient. Default: false. */
  readonly decoupledWeightDecay?: boolean;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * RAdam with PyTorch's formulas.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.RAdam([w], { lr: 0.05 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.600', '-1.800' ]
 * cpu.close();
 * ```
 */
export class RAdam extends Optimizer<RAdamOptions> {
  constructor(parameters: ParameterSource<RAdamOptions>, options: RAdamOptions = {}) {
    checkOptions("optim.RAdam", options, {
      lr: true,
      betas: true,
      eps: true,
      weightDecay: true,
      decoupledWeightDecay: true,
      maximize: true,
    });
    super(parameters, { lr: 1e-3, ...options }, radamRule);
  }
}

function radamRule(options: RAdamOptions): UpdateRule {
  const { maximize = false, decoupledWeightDecay = false } = options;
  return {
    name: variantName("RAdam", { decoupled: decoupledWeightDecay, maximizing: maximize }),
    moments: ["firstMoment", "secondMoment"],
    settings: adamSettings("RAdam", options),
    numbers: [
      decoupledWeightDecay ? "1 - lr weight decay" : "weight decay",
      "lr / (1 - β₁ᵗ)",
      "rectification √(1 - β₂ᵗ); 0: do not divide",
    ],
    stepNumbers({ lr, weightDecay, t, setting }) {
      // The length of the moving average: in the limit, and after t steps.
      const limit = term.sub(term.div(2, setting(3)), 1);
      const power = term.pow(setting(2), t);
      const correction = term.sub(1, power);
      const length = term.sub(limit, term.div(term.mul(term.mul(2, t), power), correction));
      const rise = term.mul(term.mul(term.sub(length, 4), term.sub(length, 2)), limit);
      const scale = term.mul(term.mul(term.sub(limit, 4), term.sub(limit, 2)), length);
      const rectified = term.mul(term.sqrt(term.div(rise, scale)), term.sqrt(correction));
      return [
        decoupledWeightDecay ? term.sub(1, term.mul(lr, weightDecay)) : weightDecay,
        term.div(lr, term.sub(1, term.pow(setting(0), t))),
        term.select(term.gt(length, 5), rectified, 0),
      ];
    },
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize, ...(!decoupledWeightDecay && { decay: 0 }) });
      const decayed = decoupledWeightDecay ? term.mul(p, number(0)) : p;
      const adaptive = term.div(number(2), term.add(term.sqrt(moment(1)), setting(4)));
      const scale = term.select(term.gt(number(2), 0), adaptive, 1);
      return [
        ...runningMoments(terms, g),
        ["p", term.sub(decayed, term.mul(term.mul(number(1), moment(0)), scale))],
      ];
    },
  };
}
