/** Adadelta: steps as large as the recent ones, relative to recent gradients. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { lossGradient, requireEps, runningMean, variantName } from "./formulas.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `Adadelta`. */
export interface AdadeltaOptions {
  /** Learning rate. Default: 1. */
  readonly lr?: number;
  /** Decay rate of the running means of squares; above 0. Default: 0.9. */
  readonly rho?: number;
  /** Added to the means of squares. Default: 1e-6. */
  readonly eps?: number;
  /** Weight decay, added to the gradient. Default: 0. */
  readonly weightDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * Adadelta with PyTorch's formulas.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.Adadelta([w], { lr: 100 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.684', '-1.684' ]
 * cpu.close();
 * ```
 */
export class Adadelta extends Optimizer<AdadeltaOptions> {
  constructor(parameters: ParameterSource<AdadeltaOptions>, options: AdadeltaOptions = {}) {
    checkOptions("optim.Adadelta", options, {
      lr: true,
      rho: true,
      eps: true,
      weightDecay: true,
      maximize: true,
    });
    super(parameters, { lr: 1, ...options }, adadeltaRule);
  }
}

function adadeltaRule({ rho = 0.9, eps = 1e-6, maximize = false }: AdadeltaOptions): UpdateRule {
  requireNumber("Adadelta", "rho", rho, { above: 0, upTo: 1 });
  requireEps("Adadelta", eps);
  return {
    name: variantName("Adadelta", { maximizing: maximize }),
    moments: ["secondMoment", "stepSquares"],
    settings: [rho, 1 - rho, eps],
    numbers: ["lr", "weight decay"],
    stepNumbers: ({ lr, weightDecay }) => [lr, weightDecay],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const [keep, take, added] = [setting(0), setting(1), setting(2)];
      const g = lossGradient(terms, { maximize, decay: 1 });
      const square = term.mul(g, g);
      const divisor = term.add(moment(0), added);
      const ratio = term.mul(take, term.div(square, divisor));
      // With the mean s of squared steps, the new mean is keep s + ratio (s + eps). The step of p needs the old mean, and the new mean the
      // old p, through the weight decay: so p gets s back from the new mean.
      const before = term.div(term.sub(moment(1), term.mul(ratio, added)), term.add(keep, ratio));
      const root = term.sqrt(term.div(term.add(before, added), divisor));
      return [
        [0, runningMean(moment(0), square, [keep, take])],
        [1, runningMean(moment(1), term.add(moment(1), added), [keep, ratio])],
        ["p", term.sub(p, term.mul(number(0), term.mul(root, g)))],
      ];
    },
  };
}
