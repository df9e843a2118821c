/** Rprop: a step size for each element, which depends only on the signs of its gradients. For whole batches. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { term } from "../ir/index.js";
import { signOf, variantName } from "./formulas.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { UpdateRule } from "./update-rule.js";

/** Options of `Rprop`. */
export interface RpropOptions {
  /** The first step size of each element. Default: 0.01. */
  readonly lr?: number;
  /** Factors of a step size after a change of sign, and after none. Default: 0.5 and 1.2. */
  readonly etas?: readonly [number, number];
  /** The smallest and the largest step size. Default: 1e-6 and 50. */
  readonly stepSizes?: readonly [number, number];
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * Rprop with PyTorch's formulas. A later change of the learning rate has no effect.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const optimizer = new optim.Rprop([w], { lr: 0.5 });
 * w.square().sum().backward();
 * optimizer.step();
 * console.log(Array.from(w.dataSync(), (value) => value.toFixed(3))); // → [ '3.500', '-1.500' ]
 * cpu.close();
 * ```
 */
export class Rprop extends Optimizer<RpropOptions> {
  constructor(parameters: ParameterSource<RpropOptions>, options: RpropOptions = {}) {
    checkOptions("optim.Rprop", options, { lr: true, etas: true, stepSizes: true, maximize: true });
    super(parameters, { lr: 1e-2, ...options }, rpropRule);
  }
}

function rpropRule({
  etas = [0.5, 1.2],
  stepSizes = [1e-6, 50],
  maximize = false,
  weightDecay = 0,
}: RpropOptions & { readonly weightDecay?: number }): UpdateRule {
  const [lower, upper] = etas;
  const [smallest, largest] = stepSizes;
  requireNumber("Rprop", "etas[0]", lower, { above: 0, below: 1 });
  requireNumber("Rprop", "etas[1]", upper, { above: 1 });
  requireNumber("Rprop", "stepSizes[0]", smallest, { from: 0 });
  requireNumber("Rprop", "stepSizes[1]", largest, { from: smallest });
  if (weightDecay !== 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Rprop: weightDecay is ${weightDecay}; Rprop uses only signs and has none. Add the decay to the loss.`,
      { numbers: { weightDecay } },
    );
  }
  return {
    name: variantName("Rprop", { maximizing: maximize }),
    moments: ["previousGradient", "stepSize"],
    settings: [lower, upper, smallest, largest],
    numbers: ["first step size"],
    stepNumbers: ({ lr, t }) => [term.select(term.eq(t, 1), lr, 0)],
    update({ p, g, moment, number, setting }) {
      const signed = maximize ? term.neg(g) : g;
      const product = term.mul(signed, moment(0));
      const hasTurned = term.lt(product, 0);
      const factor = term.select(hasTurned, setting(0), term.select(term.gt(product, 0), setting(1), 1));
      const size = term.mul(term.add(moment(1), number(0)), factor);
      const gradient = term.select(hasTurned, 0, signed);
      // The previous gradient is stored last: the others depend on the old one.
      return [
        [1, term.min(term.max(size, setting(2)), setting(3))],
        ["p", term.sub(p, term.mul(signOf(gradient), moment(1)))],
        [0, gradient],
      ];
    },
  };
}
