/** Stochastic gradient descent, optionally with momentum. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { type Expression, term } from "../ir/index.js";
import { requireNumber } from "./numbers.js";
import { Optimizer, type ParameterSource } from "./optimizer.js";
import type { ElementTerms, UpdateRule } from "./update-rule.js";

/** Options of `SGD`. */
export interface SGDOptions {
  readonly lr: number;
  /** Momentum factor. Default: 0, which needs no memory. */
  readonly momentum?: number;
  /** Share of the new gradient that is left out of the momentum. */
  readonly dampening?: number;
  /** Weight decay, added to the gradient. */
  readonly weightDecay?: number;
  readonly nesterov?: boolean;
  /** Maximize instead of minimizing. */
  readonly maximize?: boolean;
}

/**
 * Stochastic gradient descent with PyTorch's formulas.
 *
 * @example
 * ```ts
 * import { device, optim, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const w = tensor([4, -2], { requiresGrad: true });
 * const sgd = new optim.SGD([w], { lr: 0.25 });
 * w.square().sum().backward();
 * sgd.step();
 * console.log(w.tolist()); // → [ 2, -1 ]
 * cpu.close();
 * ```
 */
export class SGD extends Optimizer<SGDOptions> {
  constructor(parameters: ParameterSource<SGDOptions>, options: SGDOptions) {
    checkOptions("optim.SGD", options, {
      lr: true,
      momentum: true,
      dampening: true,
      weightDecay: true,
      nesterov: true,
      maximize: true,
    });
    super(parameters, options, sgdRule);
  }
}

function sgdRule({
  momentum = 0,
  dampening = 0,
  nesterov = false,
  maximize = false,
}: SGDOptions): UpdateRule {
  requireNumber("SGD", "momentum", momentum, { from: 0 });
  requireNumber("SGD", "dampening", dampening, {});
  if (nesterov && (momentum === 0 || dampening !== 0)) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `SGD: nesterov needs momentum above 0 and dampening 0; they are ${momentum} and ${dampening}.`,
      { numbers: { momentum, dampening } },
    );
  }
  const direction = ({ p, g, number }: ElementTerms): Expression =>
    term.add(maximize ? term.neg(g) : g, term.mul(number(1), p));
  const hasMomentum = momentum !== 0;
  const variant = [hasMomentum && " with momentum", nesterov && ", nesterov", maximize && ", maximizing"];
  return {
    name: `SGD${variant.filter(Boolean).join("")}`,
    moments: hasMomentum ? ["momentum"] : [],
    settings: [momentum, 1 - dampening],
    numbers: ["lr", "weight decay", "1 - dampening"],
    stepNumbers: ({ lr, weightDecay, t, setting }) => [
      lr,
      weightDecay,
      // The first direction is not dampened.
      term.select(term.eq(t, 1), 1, setting(1)),
    ],
    update(terms) {
      const { p, moment, number, setting } = terms;
      const step = !hasMomentum
        ? direction(terms)
        : nesterov
          ? term.add(direction(terms), term.mul(moment(0), setting(0)))
          : moment(0);
      const parameter = ["p", term.sub(p, term.mul(number(0), step))] as const;
      const momentum = term.add(term.mul(moment(0), setting(0)), term.mul(direction(terms), number(2)));
      return hasMomentum ? [[0, momentum], parameter] : [parameter];
    },
  };
}
