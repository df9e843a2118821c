/** NAdam: Adam with Nesterov momentum. */

import { checkOptions } from "../errors/index.js";
import { type Expression, term } from "../ir/index.js";
import { adamSettings, lossGradient, runningMoments, variantName } from "./formulas.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { StepTerms, UpdateRule } from "./update-rule.js";

/** Options of `NAdam`. */
export interface NAdamOptions {
  /** Learning rate. Default: 0.002. */
  readonly lr?: number;
  /** Decay rates of the running means of the gradient and of its square. Default: 0.9 and 0.999. */
  readonly betas?: readonly [number, number];
  /** Added to the divisor. Default: 1e-8. */
  readonly eps?: number;
  /** Weight decay. Default: 0. */
  readonly weightDecay?: number;
  /** Decay the parameter itself, as AdamW does, and not through the gradient. Default: false. */
  readonly decoupledWeightDecay?: boolean;
  /** How fast the momentum grows to β₁. Default: 0.004. */
  readonly momentumDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * NAdam with PyTorch's formulas. The product of all momenta is part of the state.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.NAdam([w], { lr: 0.5 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.472', '-1.472' ]
 * cpu.close();
 * ```
 */
export class NAdam extends Optimizer<NAdamOptions> {
  constructor(parameters: ParameterSource<NAdamOptions>, options: NAdamOptions = {}) {
    checkOptions("optim.NAdam", options, {
      lr: true,
      betas: true,
      eps: true,
      weightDecay: true,
      decoupledWeightDecay: true,
      momentumDecay: true,
      maximize: true,
    });
    super(parameters, { lr: 2e-3, ...options }, nadamRule);
  }
}

function nadamRule(options: NAdamOptions): UpdateRule {
  const { momentumDecay = 4e-3, maximize = false, decoupledWeightDecay = false } = options;
  requireNumber("NAdam", "momentumDecay", momentumDecay, { from: 0 });
  return {
    name: variantName("NAdam", { decoupled: decoupledWeightDecay, maximizing: maximize }),
    moments: ["firstMoment", "secondMoment"],
    settings: [...adamSettings("NAdam", options), momentumDecay],
    carried: ["momentumProduct"],
    newCarried: (terms) => [momentumProduct(terms)],
    numbers: [
      decoupledWeightDecay ? "1 - lr weight decay" : "weight decay",
      "lr (1 - μₜ) / (1 - μ₁ … μₜ)",
      "lr μₜ₊₁ / (1 - μ₁ … μₜ₊₁)",
      "1 - β₂ᵗ",
    ],
    stepNumbers(terms) {
      const { lr, weightDecay, t, setting } = terms;
      const [momentum, next] = [momentumOf(terms, t), momentumOf(terms, term.add(t, 1))];
      const product = momentumProduct(terms);
      return [
        decoupledWeightDecay ? term.sub(1, term.mul(lr, weightDecay)) : weightDecay,
        term.div(term.mul(lr, term.sub(1, momentum)), term.sub(1, product)),
        term.div(term.mul(lr, next), term.sub(1, term.mul(product, next))),
        term.sub(1, term.pow(setting(2), t)),
      ];
    },
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize, ...(!decoupledWeightDecay && { decay: 0 }) });
      const decayed = decoupledWeightDecay ? term.mul(p, number(0)) : p;
      const divisor = term.add(term.sqrt(term.div(moment(1), number(3))), setting(4));
      const withGradient = term.sub(decayed, term.mul(number(1), term.div(g, divisor)));
      return [
        ...runningMoments(terms, g),
        ["p", term.sub(withGradient, term.mul(number(2), term.div(moment(0), divisor)))],
      ];
    },
  };
}

/** μ of a step: β₁ (1 - 0.96^(step · momentumDecay) / 2). */
function momentumOf({ setting }: StepTerms, step: Expression): Expression {
  const decay = term.pow(term.constant(0.96, "f64"), term.mul(step, setting(5)));
  return term.mul(setting(0), term.sub(1, term.mul(0.5, decay)));
}

/** μ₁ … μₜ. */
function momentumProduct(terms: StepTerms): Expression {
  const { t, carried } = terms;
  return term.mul(term.select(term.eq(t, 1), 1, carried(0)), momentumOf(terms, t));
}
