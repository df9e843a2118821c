/** More activations as modules, for Sequential. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import {
  celu,
  elu,
  glu,
  hardshrink,
  hardsigmoid,
  hardswish,
  hardtanh,
  logsigmoid,
  mish,
  prelu,
  relu6,
  rrelu,
  selu,
  softmax,
  softmin,
  softshrink,
  softsign,
  tanhshrink,
  threshold,
} from "../functional.js";
import { constant } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireSizes } from "./checks.js";

/**
 * x where it is positive, and alpha · (eˣ − 1) elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ELU(0.5).forward(tensor([-1000, 2])).tolist()); // → [ -0.5, 2 ]
 * cpu.close();
 * ```
 */
export class ELU extends Module {
  readonly alpha: number;

  constructor(alpha = 1) {
    super();
    this.alpha = alpha;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return elu(x, this.alpha);
  }

  protected override describe(): string {
    return `alpha=${this.alpha}`;
  }
}

/**
 * ELU with the alpha and the scale that keep the mean at 0 and the variance at 1.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.SELU().forward(tensor([1])).item().toFixed(4)); // → 1.0507
 * cpu.close();
 * ```
 */
export class SELU extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return selu(x);
  }
}

/**
 * x where it is positive, and alpha · (e^(x / alpha) − 1) elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.CELU(0.5).forward(tensor([-1000, 2])).tolist()); // → [ -0.5, 2 ]
 * cpu.close();
 * ```
 */
export class CELU extends Module {
  readonly alpha: number;

  constructor(alpha = 1) {
    super();
    this.alpha = alpha;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return celu(x, this.alpha);
  }

  protected override describe(): string {
    return `alpha=${this.alpha}`;
  }
}

/**
 * x · tanh(softplus(x)).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Mish().forward(tensor([1])).item().toFixed(4)); // → 0.8651
 * cpu.close();
 * ```
 */
export class Mish extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return mish(x);
  }
}

/**
 * log(sigmoid(x)), which does not underflow.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.LogSigmoid().forward(tensor([-1000])).tolist()); // → [ -1000 ]
 * cpu.close();
 * ```
 */
export class LogSigmoid extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return logsigmoid(x);
  }
}

/**
 * x / (1 + |x|).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Softsign().forward(tensor([-1, 3])).tolist()); // → [ -0.5, 0.75 ]
 * cpu.close();
 * ```
 */
export class Softsign extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return softsign(x);
  }
}

/**
 * x − tanh(x).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Tanhshrink().forward(tensor([100])).tolist()); // → [ 99 ]
 * cpu.close();
 * ```
 */
export class Tanhshrink extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return tanhshrink(x);
  }
}

/**
 * x, limited to a range.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Hardtanh(-1, 2).forward(tensor([-2, 0.5, 3])).tolist()); // → [ -1, 0.5, 2 ]
 * cpu.close();
 * ```
 */
export class Hardtanh extends Module {
  readonly min: number;
  readonly max: number;

  constructor(min = -1, max = 1) {
    super();
    this.min = min;
    this.max = max;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return hardtanh(x, this.min, this.max);
  }

  protected override describe(): string {
    return `min=${this.min}, max=${this.max}`;
  }
}

/**
 * x, limited to the range from 0 to 6.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReLU6().forward(tensor([-2, 5, 9])).tolist()); // → [ 0, 5, 6 ]
 * cpu.close();
 * ```
 */
export class ReLU6 extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return relu6(x);
  }
}

/**
 * x · relu6(x + 3) / 6.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Hardswish().forward(tensor([0, 4])).tolist()); // → [ 0, 4 ]
 * cpu.close();
 * ```
 */
export class Hardswish extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return hardswish(x);
  }
}

/**
 * relu6(x + 3) / 6.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Hardsigmoid().forward(tensor([-4, 0, 4])).tolist()); // → [ 0, 0.5, 1 ]
 * cpu.close();
 * ```
 */
export class Hardsigmoid extends Module {
  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return hardsigmoid(x);
  }
}

/**
 * 0 from −lambda to lambda, and x elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Hardshrink().forward(tensor([-2, 0.25, 2])).tolist()); // → [ -2, 0, 2 ]
 * cpu.close();
 * ```
 */
export class Hardshrink extends Module {
  readonly lambda: number;

  constructor(lambda = 0.5) {
    super();
    this.lambda = lambda;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return hardshrink(x, this.lambda);
  }

  protected override describe(): string {
    return `lambda=${this.lambda}`;
  }
}

/**
 * 0 from −lambda to lambda, and x, moved towards 0 by lambda, elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Softshrink().forward(tensor([-2, 0.25, 2])).tolist()); // → [ -1.5, 0, 1.5 ]
 * cpu.close();
 * ```
 */
export class Softshrink extends Module {
  readonly lambda: number;

  constructor(lambda = 0.5) {
    super();
    this.lambda = lambda;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return softshrink(x, this.lambda);
  }

  protected override describe(): string {
    return `lambda=${this.lambda}`;
  }
}

/**
 * x above a threshold, and a value elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Threshold(2, -5).forward(tensor([1, 3])).tolist()); // → [ -5, 3 ]
 * cpu.close();
 * ```
 */
export class Threshold extends Module {
  readonly threshold: number;
  readonly value: number;

  constructor(threshold: number, value: number) {
    super();
    this.threshold = threshold;
    this.value = value;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return threshold(x, this.threshold, this.value);
  }

  protected override describe(): string {
    return `threshold=${this.threshold}, value=${this.value}`;
  }
}

/**
 * The first half along an axis times the sigmoid of the second half.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.GLU().forward(tensor([3, 5, 0, 1000])).tolist()); // → [ 1.5, 5 ]
 * cpu.close();
 * ```
 */
export class GLU extends Module {
  readonly axis: number;

  constructor(axis = -1) {
    super();
    this.axis = axis;
  }

  /** The axis has half the size in the result. */
  forward(x: Tensor): Tensor {
    return glu(x, this.axis);
  }

  protected override describe(): string {
    return `axis=${this.axis}`;
  }
}

/**
 * The softmax of −x along an axis.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Softmin(-1).forward(tensor([5, 5])).tolist()); // → [ 0.5, 0.5 ]
 * cpu.close();
 * ```
 */
export class Softmin extends Module {
  readonly axis: number;

  constructor(axis: number) {
    super();
    this.axis = axis;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    return softmin(x, this.axis);
  }

  protected override describe(): string {
    return `axis=${this.axis}`;
  }
}

/**
 * The softmax over the channels of [N, C, H, W] or [C, H, W].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Softmax2d().forward(tensor([[[3]], [[3]]])).flatten().tolist()); // → [ 0.5, 0.5 ]
 * cpu.close();
 * ```
 */
export class Softmax2d extends Module {
  /** [N, C, H, W] or [C, H, W] to probabilities of the channels. */
  forward(x: Tensor): Tensor {
    return softmax(x, -3);
  }
}

/**
 * x where it is positive, and a learned slope times x elsewhere: one slope, or one for each channel of [N, C, …].
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.PReLU().to(cpu);
 * console.log(layer.forward(tensor([-4, 2])).tolist(), layer.parameterCount); // → [ -1, 2 ] 1
 * cpu.close();
 * ```
 */
export class PReLU extends Module {
  readonly numParameters: number;
  /** [numParameters] */
  readonly weight: Parameter;

  constructor(numParameters = 1, options: { readonly init?: number } = {}) {
    const { init = 0.25 } = checkOptions("nn.PReLU", options, { init: true });
    super();
    requireSizes("PReLU", { numParameters });
    this.numParameters = numParameters;
    this.weight = new Parameter([numParameters], constant(init));
  }

  /** An input of any shape, or [N, C, …] with a slope for each channel. */
  forward(x: Tensor): Tensor {
    return prelu(x, this.weight);
  }

  protected override describe(): string {
    return `numParameters=${this.numParameters}`;
  }
}

/**
 * In training, x where it is positive and a random slope times x elsewhere. In evaluation the slope is the mean.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const layer = new nn.RReLU(0, 0.5);
 * console.log(layer.forward(tensor([-8])).item() <= 0, layer.eval().forward(tensor([-8])).item()); // → true -2
 * cpu.close();
 * ```
 */
export class RReLU extends Module {
  readonly lower: number;
  readonly upper: number;

  constructor(lower = 1 / 8, upper = 1 / 3) {
    super();
    this.lower = lower;
    this.upper = upper;
  }

  /** An input of any shape to the same shape. */
  forward(x: Tensor): Tensor {
    const { lower, upper, isTraining } = this;
    return rrelu(x, { lower, upper, training: isTraining });
  }

  protected override describe(): string {
    return `lower=${this.lower}, upper=${this.upper}`;
  }
}
