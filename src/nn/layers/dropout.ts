/** Dropout: sets random elements to 0 in training. */

import type { Tensor } from "../../tensor/index.js";
import {
  alphaDropout,
  dropout,
  dropout1d,
  dropout2d,
  dropout3d,
  featureAlphaDropout,
} from "../functional.js";
import { Module } from "../module.js";
import { requireProbability } from "./checks.js";

/** The common base: a probability. */
abstract class DropoutLayer extends Module {
  readonly p: number;

  constructor(p = 0.5) {
    super();
    requireProbability(this.constructor.name, p);
    this.p = p;
  }

  protected override describe(): string {
    return `p=${this.p}`;
  }
}

/**
 * In training, sets each element to 0 with probability p and scales the others by 1/(1 − p), for p rounded to a multiple of 2⁻¹⁶. In
 * evaluation returns its input. Masks depend on the seed.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Dropout(0.5);
 * console.log(layer.forward(ones([64])).amax().item(), layer.eval().forward(ones([64])).amax().item()); // → 2 1
 * cpu.close();
 * ```
 */
export class Dropout extends DropoutLayer {
  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return dropout(x, this.p, this.isTraining);
  }
}

/**
 * In training, drops whole channels of [N, C, L] or [C, L].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Dropout1d(0.5);
 * console.log(layer.eval().forward(ones([1, 2, 3])).sum().item()); // → 6
 * cpu.close();
 * ```
 */
export class Dropout1d extends DropoutLayer {
  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return dropout1d(x, this.p, this.isTraining);
  }
}

/**
 * In training, drops whole channels of [N, C, H, W] or [C, H, W].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Dropout2d(0.5);
 * console.log(layer.eval().forward(ones([1, 2, 3, 1])).sum().item()); // → 6
 * cpu.close();
 * ```
 */
export class Dropout2d extends DropoutLayer {
  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return dropout2d(x, this.p, this.isTraining);
  }
}

/**
 * In training, drops whole channels of [N, C, D, H, W] or [C, D, H, W].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.Dropout3d(0.5);
 * console.log(layer.eval().forward(ones([1, 2, 3, 1, 1])).sum().item()); // → 6
 * cpu.close();
 * ```
 */
export class Dropout3d extends DropoutLayer {
  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return dropout3d(x, this.p, this.isTraining);
  }
}

/**
 * In training, drops elements and keeps mean 0 and variance 1, for `SELU`.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.AlphaDropout(0.5);
 * console.log(layer.eval().forward(ones([6])).sum().item()); // → 6
 * cpu.close();
 * ```
 */
export class AlphaDropout extends DropoutLayer {
  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return alphaDropout(x, this.p, this.isTraining);
  }
}

/**
 * `AlphaDropout` of whole channels of [N, C, …].
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.FeatureAlphaDropout(0.5);
 * console.log(layer.eval().forward(ones([1, 2, 3])).sum().item()); // → 6
 * cpu.close();
 * ```
 */
export class FeatureAlphaDropout extends DropoutLayer {
  /** x with random elements dropped in training; x itself in evaluation. */
  forward(x: Tensor): Tensor {
    return featureAlphaDropout(x, this.p, this.isTraining);
  }
}
