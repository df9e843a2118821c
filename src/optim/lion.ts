/** Lion: steps of one size, in the direction of the sign of a running mean. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { requireBetas, runningMean, signOf, variantName } from "./formulas.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `Lion`. */
export interface LionOptions {
  /** Learning rate. Default: 1e-4. */
  readonly lr?: number;
  /** The share of the mean in the direction, and its decay rate. Default: 0.9 and 0.99. */
  readonly betas?: readonly [number, number];
  /** Decoupled weight decay. Default: 0. */
  readonly weightDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * Lion (evolved sign momentum): one moment, and a third to a tenth of Adam's learning rate.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.Lion([w], { lr: 0.5 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.500', '-1.500' ]
 * cpu.close();
 * ```
 */
export class Lion extends Optimizer<LionOptions> {
  constructor(parameters: ParameterSource<LionOptions>, options: LionOptions = {}) {
    checkOptions("optim.Lion", options, { lr: true, betas: true, weightDecay: true, maximize: true });
    super(parameters, { lr: 1e-4, ...options }, lionRule);
  }
}

function lionRule({ betas = [0.9, 0.99], maximize = false }: LionOptions): UpdateRule {
  requireBetas("Lion", betas);
  const [beta1, beta2] = betas;
  return {
    name: variantName("Lion", { maximizing: maximize }),
    moments: ["firstMoment"],
    settings: [beta1, 1 - beta1, beta2, 1 - beta2],
    numbers: ["lr", "1 - lr weight decay"],
    stepNumbers: ({ lr, weightDecay }) => [lr, term.sub(1, term.mul(lr, weightDecay))],
    update({ p, g, moment, number, setting }) {
      const signed = maximize ? term.neg(g) : g;
      const direction = signOf(runningMean(moment(0), signed, [setting(0), setting(1)]));
      // The direction uses the old moment.
      return [
        ["p", term.sub(term.mul(p, number(1)), term.mul(number(0), direction))],
        [0, runningMean(moment(0), signed, [setting(2), setting(3)])],
      ];
    },
  };
}
