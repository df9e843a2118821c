/** ASGD: stochastic gradient descent that also averages the parameters. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { lossGradient, variantName } from "./formulas.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `ASGD`. */
export interface ASGDOptions {
  /** Learning rate. Default: 0.01. */
  readonly lr?: number;
  /** Decay of the parameters. Default: 1e-4. */
  readonly lambd?: number;
  /** The learning rate in step t is lr / (1 + lambd lr (t - 1))^alpha. Default: 0.75. */
  readonly alpha?: number;
  /** Averages start after this step. Default: 1e6. */
  readonly t0?: number;
  /** Weight decay, added to the gradient. Default: 0. */
  readonly weightDecay?: number;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * ASGD with PyTorch's formulas. The averages are the state `0.average`, `1.average`, …
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.ASGD([w], { lr: 0.25 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '2.000', '-1.000' ]
 * cpu.close();
 * ```
 */
export class ASGD extends Optimizer<ASGDOptions> {
  constructor(parameters: ParameterSource<ASGDOptions>, options: ASGDOptions = {}) {
    checkOptions("optim.ASGD", options, {
      lr: true,
      lambd: true,
      alpha: true,
      t0: true,
      weightDecay: true,
      maximize: true,
    });
    super(parameters, { lr: 1e-2, ...options }, asgdRule);
  }
}

function asgdRule({ lambd = 1e-4, alpha = 0.75, t0 = 1e6, maximize = false }: ASGDOptions): UpdateRule {
  requireNumber("ASGD", "lambd", lambd, { from: 0 });
  requireNumber("ASGD", "alpha", alpha, {});
  requireNumber("ASGD", "t0", t0, { from: 0 });
  return {
    name: variantName("ASGD", { maximizing: maximize }),
    moments: ["average"],
    settings: [lambd, alpha, t0],
    numbers: ["η", "weight decay", "1 - lambd η", "share in the average"],
    stepNumbers({ lr, weightDecay, t, setting }) {
      const steps = term.sub(t, 1);
      const base = term.add(1, term.mul(term.mul(setting(0), lr), steps));
      const eta = term.div(lr, term.pow(base, setting(1)));
      return [
        eta,
        weightDecay,
        term.sub(1, term.mul(setting(0), eta)),
        term.div(1, term.max(1, term.sub(steps, setting(2)))),
      ];
    },
    update(terms) {
      const { p, moment, number } = terms;
      const g = lossGradient(terms, { maximize, decay: 1 });
      const moved = term.add(moment(0), term.mul(term.sub(p, moment(0)), number(3)));
      return [
        ["p", term.sub(term.mul(p, number(2)), term.mul(number(0), g))],
        [0, term.select(term.eq(number(3), 1), p, moved)],
      ];
    },
  };
}
