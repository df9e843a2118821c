/** RMSprop: gradients divided by the root of a running mean of their squares. */

import { checkOptions } from "../errors/index.js";
import { term } from "../ir/index.js";
import { lossGradient, requireEps, runningMean, variantName } from "./formulas.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { Assignment, UpdateRule } from "./update-rule.js";

/** Options of `RMSprop`. */
export interface RMSpropOptions {
  /** Learning rate. Default: 0.01. */
  readonly lr?: number;
  /** Decay rate of the running mean of squares. Default: 0.99. */
  readonly alpha?: number;
  /** Added to the divisor. Default: 1e-8. */
  readonly eps?: number;
  /** Weight decay, added to the gradient. Default: 0. */
  readonly weightDecay?: number;
  /** Momentum factor. Default: 0, which needs no memory. */
  readonly momentum?: number;
  /** Divide by the standard deviation of the gradient: its mean is subtracted. Default: false. */
  readonly centered?: boolean;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * RMSprop with PyTorch's formulas.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.RMSprop([w], { lr: 0.05 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.500', '-1.500' ]
 * cpu.close();
 * ```
 */
export class RMSprop extends Optimizer<RMSpropOptions> {
  constructor(parameters: ParameterSource<RMSpropOptions>, options: RMSpropOptions = {}) {
    checkOptions("optim.RMSprop", options, {
      lr: true,
      alpha: true,
      eps: true,
      weightDecay: true,
      momentum: true,
      centered: true,
      maximize: true,
    });
    super(parameters, { lr: 1e-2, ...options }, rmspropRule);
  }
}

function rmspropRule({
  alpha = 0.99,
  eps = 1e-8,
  momentum = 0,
  centered = false,
  maximize = false,
}: RMSpropOptions): UpdateRule {
  requireNumber("RMSprop", "alpha", alpha, { from: 0, upTo: 1 });
  requireNumber("RMSprop", "momentum", momentum, { from: 0 });
  requireEps("RMSprop", eps);
  const hasMomentum = momentum > 0;
  const moments = [
    "secondMoment",
    ...(centered ? ["firstMoment"] : []),
    ...(hasMomentum ? ["momentum"] : []),
  ];
  const momentumIndex = moments.length - 1;
  return {
    name: variantName("RMSprop", { centered, "with momentum": hasMomentum, maximizing: maximize }),
    moments,
    settings: [alpha, 1 - alpha, eps, momentum],
    numbers: ["lr", "weight decay"],
    stepNumbers: ({ lr, weightDecay }) => [lr, weightDecay],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const g = lossGradient(terms, { maximize, decay: 1 });
      const square = term.mul(term.mul(setting(1), g), g);
      const updates: Assignment[] = [[0, term.add(term.mul(moment(0), setting(0)), square)]];
      if (centered) updates.push([1, runningMean(moment(1), g, [setting(0), setting(1)])]);
      // Rounding may make the variance of an almost constant gradient negative.
      const variance = centered
        ? term.max(term.sub(moment(0), term.mul(moment(1), moment(1))), 0)
        : moment(0);
      const scaled = term.div(g, term.add(term.sqrt(variance), setting(2)));
      if (hasMomentum) {
        const buffer = moment(momentumIndex);
        updates.push([momentumIndex, term.add(term.mul(buffer, setting(3)), scaled)]);
      }
      const step = hasMomentum ? moment(momentumIndex) : scaled;
      return [...updates, ["p", term.sub(p, term.mul(number(0), step))]];
    },
  };
}
