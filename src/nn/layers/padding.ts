/** Borders as modules: of a constant, mirrored, of the edge, or from the other end. */

import { HoldfastError } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { type PadMode, pad } from "../functional.js";
import { Module } from "../module.js";

/** One size for all sides, or the sizes before and after each axis, from the last axis on. */
export type Padding = number | readonly number[];

abstract class Pad extends Module {
  /** The sizes before and after each axis, from the last axis on. */
  readonly padding: readonly number[];
  readonly #mode: PadMode;
  readonly #value: number;

  constructor(padding: Padding, axes: number, mode: PadMode, value = 0) {
    super();
    const sides = typeof padding === "number" ? new Array<number>(2 * axes).fill(padding) : [...padding];
    if (sides.length !== 2 * axes || !sides.every(Number.isSafeInteger)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${this.constructor.name}: padding [${sides.join(", ")}]; pass one whole number, or ${2 * axes} of them.`,
      );
    }
    this.padding = sides;
    this.#mode = mode;
    this.#value = value;
  }

  /** The tensor with its borders. */
  forward(x: Tensor): Tensor {
    return pad(x, this.padding, { mode: this.#mode, value: this.#value });
  }

  protected override describe(): string {
    const value = this.#value === 0 ? "" : `, value=${this.#value}`;
    return `[${this.padding.join(", ")}]${value}`;
  }
}

/**
 * Pads the last axis with a constant.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ConstantPad1d(1, 7).forward(tensor([1, 2, 3])).shape); // → [ 5 ]
 * cpu.close();
 * ```
 */
export class ConstantPad1d extends Pad {
  constructor(padding: Padding, value: number) {
    super(padding, 1, "constant", value);
  }
}

/**
 * Pads the last axis with zeros.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ZeroPad1d(1).forward(tensor([1, 2, 3])).shape); // → [ 5 ]
 * cpu.close();
 * ```
 */
export class ZeroPad1d extends Pad {
  constructor(padding: Padding) {
    super(padding, 1, "constant");
  }
}

/**
 * Pads the last axis with a mirror image that does not repeat the edge.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReflectionPad1d(1).forward(tensor([1, 2, 3])).shape); // → [ 5 ]
 * cpu.close();
 * ```
 */
export class ReflectionPad1d extends Pad {
  constructor(padding: Padding) {
    super(padding, 1, "reflect");
  }
}

/**
 * Pads the last axis with the elements at the edge.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReplicationPad1d(1).forward(tensor([1, 2, 3])).shape); // → [ 5 ]
 * cpu.close();
 * ```
 */
export class ReplicationPad1d extends Pad {
  constructor(padding: Padding) {
    super(padding, 1, "replicate");
  }
}

/**
 * Pads the last axis with the elements of the other end.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.CircularPad1d(1).forward(tensor([1, 2, 3])).shape); // → [ 5 ]
 * cpu.close();
 * ```
 */
export class CircularPad1d extends Pad {
  constructor(padding: Padding) {
    super(padding, 1, "circular");
  }
}

/**
 * Pads the last two axes with a constant.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ConstantPad2d(1, 7).forward(tensor([[[1, 2, 3], [4, 5, 6]]])).shape); // → [ 1, 4, 5 ]
 * cpu.close();
 * ```
 */
export class ConstantPad2d extends Pad {
  constructor(padding: Padding, value: number) {
    super(padding, 2, "constant", value);
  }
}

/**
 * Pads the last two axes with zeros.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ZeroPad2d(1).forward(tensor([[[1, 2, 3], [4, 5, 6]]])).shape); // → [ 1, 4, 5 ]
 * cpu.close();
 * ```
 */
export class ZeroPad2d extends Pad {
  constructor(padding: Padding) {
    super(padding, 2, "constant");
  }
}

/**
 * Pads the last two axes with a mirror image that does not repeat the edge.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReflectionPad2d(1).forward(tensor([[[1, 2, 3], [4, 5, 6]]])).shape); // → [ 1, 4, 5 ]
 * cpu.close();
 * ```
 */
export class ReflectionPad2d extends Pad {
  constructor(padding: Padding) {
    super(padding, 2, "reflect");
  }
}

/**
 * Pads the last two axes with the elements at the edge.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReplicationPad2d(1).forward(tensor([[[1, 2, 3], [4, 5, 6]]])).shape); // → [ 1, 4, 5 ]
 * cpu.close();
 * ```
 */
export class ReplicationPad2d extends Pad {
  constructor(padding: Padding) {
    super(padding, 2, "replicate");
  }
}

/**
 * Pads the last two axes with the elements of the other end.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.CircularPad2d(1).forward(tensor([[[1, 2, 3], [4, 5, 6]]])).shape); // → [ 1, 4, 5 ]
 * cpu.close();
 * ```
 */
export class CircularPad2d extends Pad {
  constructor(padding: Padding) {
    super(padding, 2, "circular");
  }
}

/**
 * Pads the last three axes with a constant.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ConstantPad3d(1, 7).forward(ones([1, 2, 2, 2])).shape); // → [ 1, 4, 4, 4 ]
 * cpu.close();
 * ```
 */
export class ConstantPad3d extends Pad {
  constructor(padding: Padding, value: number) {
    super(padding, 3, "constant", value);
  }
}

/**
 * Pads the last three axes with zeros.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ZeroPad3d(1).forward(ones([1, 2, 2, 2])).shape); // → [ 1, 4, 4, 4 ]
 * cpu.close();
 * ```
 */
export class ZeroPad3d extends Pad {
  constructor(padding: Padding) {
    super(padding, 3, "constant");
  }
}

/**
 * Pads the last three axes with a mirror image that does not repeat the edge.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReflectionPad3d(1).forward(ones([1, 2, 2, 2])).shape); // → [ 1, 4, 4, 4 ]
 * cpu.close();
 * ```
 */
export class ReflectionPad3d extends Pad {
  constructor(padding: Padding) {
    super(padding, 3, "reflect");
  }
}

/**
 * Pads the last three axes with the elements at the edge.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.ReplicationPad3d(1).forward(ones([1, 2, 2, 2])).shape); // → [ 1, 4, 4, 4 ]
 * cpu.close();
 * ```
 */
export class ReplicationPad3d extends Pad {
  constructor(padding: Padding) {
    super(padding, 3, "replicate");
  }
}

/**
 * Pads the last three axes with the elements of the other end.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.CircularPad3d(1).forward(ones([1, 2, 2, 2])).shape); // → [ 1, 4, 4, 4 ]
 * cpu.close();
 * ```
 */
export class CircularPad3d extends Pad {
  constructor(padding: Padding) {
    super(padding, 3, "circular");
  }
}
