/** Activations as modules, for Sequential. */

import { checkOptions } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { softplusOptionNames } from "../functional/activations.js";
import { logSoftmax, type SoftplusOptions, softmax, softplus } from "../functional.js";
import { Module } from "../module.js";

/**
 * max(x, 0).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReLU().forward(tensor([-1, 2])).tolist()); // → [ 0, 2 ]
 * cpu.close();
 * ```
 */
export class ReLU extends Module {
  /** max(x, 0) of an input of any shape. */
  forward(x: Tensor): Tensor {
    return x.relu();
  }
}

/**
 * The hyperbolic tangent.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Tanh().forward(tensor([-100, 0, 100])).tolist()); // → [ -1, 0, 1 ]
 * cpu.close();
 * ```
 */
export class Tanh extends Module {
  /** The hyperbolic tangent of an input of any shape. */
  forward(x: Tensor): Tensor {
    return x.tanh();
  }
}

/**
 * 1 / (1 + e⁻ˣ).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Sigmoid().forward(tensor([-1000, 0, 1000])).tolist()); // → [ 0, 0.5, 1 ]
 * cpu.close();
 * ```
 */
export class Sigmoid extends Module {
  /** 1 / (1 + e⁻ˣ) of an input of any shape. */
  forward(x: Tensor): Tensor {
    return x.sigmoid();
  }
}

/**
 * x · sigmoid(x).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.SiLU().forward(tensor([1])).item().toFixed(4)); // → 0.7311
 * cpu.close();
 * ```
 */
export class SiLU extends Module {
  /** x · sigmoid(x) of an input of any shape. */
  forward(x: Tensor): Tensor {
    return x.silu();
  }
}

/**
 * log(1 + eˣ).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Softplus().forward(tensor([100])).tolist()); // → [ 100 ]
 * cpu.close();
 * ```
 */
export class Softplus extends Module {
  readonly options: SoftplusOptions;

  constructor(options: SoftplusOptions = {}) {
    checkOptions("nn.Softplus", options, softplusOptionNames);
    super();
    this.options = options;
  }

  /** log(1 + eˣ) of an input of any shape. */
  forward(x: Tensor): Tensor {
    return softplus(x, this.options);
  }

  protected override describe(): string {
    return Object.entries(this.options)
      .map(([name, value]) => `${name}=${value}`)
      .join(", ");
  }
}

/**
 * x where it is positive, and negativeSlope · x elsewhere.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.LeakyReLU(0.5).forward(tensor([-1, 2])).tolist()); // → [ -0.5, 2 ]
 * cpu.close();
 * ```
 */
export class LeakyReLU extends Module {
  readonly negativeSlope: number;

  constructor(negativeSlope = 0.01) {
    super();
    this.negativeSlope = negativeSlope;
  }

  /** x where it is positive, and negativeSlope · x elsewhere; an input of any shape. */
  forward(x: Tensor): Tensor {
    return x.leakyRelu(this.negativeSlope);
  }

  protected override describe(): string {
    return `negativeSlope=${this.negativeSlope}`;
  }
}

/**
 * x·Φ(x), exactly or with the tanh approximation.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([1]);
 * console.log(new nn.GELU().forward(x).item().toFixed(5)); // → 0.84134
 * console.log(new nn.GELU({ approximate: "tanh" }).forward(x).item().toFixed(5)); // → 0.84119
 * cpu.close();
 * ```
 */
export class GELU extends Module {
  readonly approximate: "none" | "tanh";

  constructor(options: { readonly approximate?: "none" | "tanh" } = {}) {
    const { approximate = "none" } = checkOptions("nn.GELU", options, { approximate: true });
    super();
    this.approximate = approximate;
  }

  /** x·Φ(x) of an input of any shape. */
  forward(x: Tensor): Tensor {
    return x.gelu(this.approximate);
  }

  protected override describe(): string {
    return `approximate=${this.approximate}`;
  }
}

/**
 * Exponentials along an axis, divided by their sum.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.Softmax(-1).forward(tensor([[1, 1]])).tolist()); // → [ [ 0.5, 0.5 ] ]
 * cpu.close();
 * ```
 */
export class Softmax extends Module {
  readonly axis: number;

  constructor(axis: number) {
    super();
    this.axis = axis;
  }

  /** Probabilities along the axis, in the input's shape. */
  forward(x: Tensor): Tensor {
    return softmax(x, this.axis);
  }

  protected override describe(): string {
    return `axis=${this.axis}`;
  }
}

/**
 * The logarithm of softmax, accurate even where softmax underflows to 0.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.LogSoftmax(-1).forward(tensor([[1000, 0]])).tolist()); // → [ [ 0, -1000 ] ]
 * cpu.close();
 * ```
 */
export class LogSoftmax extends Module {
  readonly axis: number;

  constructor(axis: number) {
    super();
    this.axis = axis;
  }

  /** Log probabilities along the axis, in the input's shape. */
  forward(x: Tensor): Tensor {
    return logSoftmax(x, this.axis);
  }

  protected override describe(): string {
    return `axis=${this.axis}`;
  }
}
