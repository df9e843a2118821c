/** Adagrad: gradients divided by the root of the sum of their squares. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { lossGradient, requireEps, variantName } from "./formulas.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `Adagrad`. */
export interface AdagradOptions {
  /** Learning rate. Default: 0.01. */
  readonly lr?: number;
  /** The learning rate in step t is lr / (1 + (t - 1) lrDecay). Default: 0. */
  readonly lrDecay?: number;
  /** Weight decay, added to the gradient. Default: 0. */
  readonly weightDecay?: number;
  /** The sum of squares before the first step. Default: 0. */
  readonly initialAccumulatorValue?: number;
  /** Added to the divisor. Default: 1e-10. */
  readonly eps?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * Adagrad with PyTorch's formulas.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.Adagrad([w], { lr: 0.5 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.500', '-1.500' ]
 * cpu.close();
 * ```
 */
export class Adagrad extends Optimizer<AdagradOptions> {
  constructor(parameters: ParameterSource<AdagradOptions>, options: AdagradOptions = {}) {
    checkOptions("optim.Adagrad", options, {
      lr: true,
      lrDecay: true,
      weightDecay: true,
      initialAccumulatorValue: true,
      eps: true,
      maximize: true,
    });
    super(parameters, { lr: 1e-2, ...options }, adagradRule);
  }
}

function adagradRule({
  lrDecay = 0,
  initialAccumulatorValue = 0,
  eps = 1e-10,
  maximize = false,
}: AdagradOptions): UpdateRule {
  requireNumber("Adagrad", "lrDecay", lrDecay, { from: 0 });
  requireNumber("Adagrad", "initialAccumulatorValue", initialAccumulatorValue, { from: 0 });
  requireEps("Adagrad", eps);
  return {
    name: variantName("Adagrad", { maximizing: maximize }),
    moments: ["sumOfSquares"],
    settings: [lrDecay, initialAccumulatorValue, eps],
    numbers: ["lr / (1 + (t - 1) lrDecay)", "weight decay", "initial sum"],
    stepNumbers: ({ lr, weightDecay, t, setting }) => [
      term.div(lr, term.add(1, term.mul(term.sub(t, 1), setting(0)))),
      weightDecay,
      term.select(term.eq(t, 1), setting(1), 0),
    ],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize, decay: 1 });
      const divisor = term.add(term.sqrt(moment(0)), setting(2));
      return [
        [0, term.add(term.add(moment(0), number(2)), term.mul(g, g))],
        ["p", term.sub(p, term.mul(number(0), term.div(g, divisor)))],
      ];
    },
  };
}
