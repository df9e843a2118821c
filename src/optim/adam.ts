/** Adam and AdamW: steps scaled by running means of the gradient and of its square. */

import { HoldfastError } from "../errors/index.js";
import { term } from "../ir/index.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { ElementTerms, UpdateRule } from "./update-rule.js";

/** Options of `Adam` and `AdamW`. */
export interface AdamOptions {
  /** Learning rate. Default: 0.001. */
  readonly lr?: number;
  /** Decay rates of the running means of the gradient and of its square. Default: 0.9 and 0.999. */
  readonly betas?: readonly [number, number];
  /** Added to the divisor. Default: 1e-8. */
  readonly eps?: number;
  readonly weightDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

const defaultLr = 1e-3;
const defaultAdamWDecay = 1e-2;

/**
 * Adam with PyTorch's formulas; weight decay is added to the gradient. Moments are f32, or f64 for f64 parameters.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const adam = new optim.Adam([w], { lr: 0.5 });
 * w.square().sum().backward();
 * adam.step();
 * console.log(w.tolist()); // → [ 3.5, -1.5 ]
 * cpu.close();
 * ```
 */
export class Adam extends Optimizer<AdamOptions> {
  constructor(parameters: ParameterSource<AdamOptions>, options: AdamOptions = {}) {
    super(parameters, { lr: defaultLr, ...options }, (groupOptions) => adamRule("Adam", groupOptions));
  }
}

/**
 * AdamW with PyTorch's formulas: decoupled weight decay. Default: 0.01.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [w, b] = [tensor([4, -2], { requiresGrad: true }), tensor([1], { requiresGrad: true })];
 * const adamw = new optim.AdamW([{ params: [w] }, { params: [b], weightDecay: 0 }], { lr: 0.5 });
 * w.square().sum().add(b.sum()).backward();
 * adamw.step();
 * console.log(b.item().toFixed(3)); // → 0.500
 * cpu.close();
 * ```
 */
export class AdamW extends Optimizer<AdamOptions> {
  constructor(parameters: ParameterSource<AdamOptions>, options: AdamOptions = {}) {
    super(parameters, { lr: defaultLr, weightDecay: defaultAdamWDecay, ...options }, (groupOptions) =>
      adamRule("AdamW", groupOptions),
    );
  }
}

function adamRule(
  name: "Adam" | "AdamW",
  { betas = [0.9, 0.999], eps = 1e-8, maximize = false }: AdamOptions,
): UpdateRule {
  const [beta1, beta2] = betas;
  for (const beta of betas) requireNumber(name, "beta", beta, { from: 0, below: 1 });
  // Padding is updated too, and 0 / (√0 + eps) must stay 0.
  if (!(Math.fround(eps) > 0 && Number.isFinite(eps))) {
    throw new HoldfastError("BAD_ARGUMENT", `${name}: eps is ${eps}; it must be above 0 in f32. Use 1e-8.`, {
      numbers: { eps },
    });
  }
  const isDecoupled = name === "AdamW";
  const effectiveGradient = ({ p, g, number }: ElementTerms) => {
    const signed = maximize ? term.neg(g) : g;
    return isDecoupled ? signed : term.add(signed, term.mul(number(0), p));
  };
  return {
    name: maximize ? `${name}, maximizing` : name,
    moments: ["firstMoment", "secondMoment"],
    settings: [beta1, 1 - beta1, beta2, 1 - beta2, eps],
    // [decay factor of p, or the decay; lr / (1 - β₁ᵗ); √(1 - β₂ᵗ)]
    stepNumbers: ({ lr, weightDecay, t, setting }) => [
      isDecoupled ? term.sub(1, term.mul(lr, weightDecay)) : weightDecay,
      term.div(lr, term.sub(1, term.pow(setting(0), t))),
      term.sqrt(term.sub(1, term.pow(setting(2), t))),
    ],
    newMoments(terms) {
      const { moment, setting } = terms;
      const g = effectiveGradient(terms);
      return [
        term.add(term.mul(moment(0), setting(0)), term.mul(g, setting(1))),
        term.add(term.mul(moment(1), setting(2)), term.mul(term.mul(setting(3), g), g)),
      ];
    },
    newParameter({ p, moment, number, setting }) {
      const decayed = isDecoupled ? term.mul(p, number(0)) : p;
      const divisor = term.add(term.div(term.sqrt(moment(1)), number(2)), setting(4));
      return term.sub(decayed, term.div(term.mul(number(1), moment(0)), divisor));
    },
  };
}
