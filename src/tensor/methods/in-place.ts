/** In-place methods: the result stands where the tensor stands, at the same address. */

import { activations, add, contiguous, div, functions, mul, pow, sub } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import type { Other } from "./elementwise.js";

export const inPlaceMethods = {
  /** Adds in place. */
  add_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(add, this, [this, other]);
  },
  sub_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(sub, this, [this, other]);
  },
  mul_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(mul, this, [this, other]);
  },
  div_(this: Tensor, other: Other): Tensor {
    return this.device.applyInPlace(div, this, [this, other]);
  },
  pow_(this: Tensor, exponent: Other): Tensor {
    return this.device.applyInPlace(pow, this, [this, exponent]);
  },
  neg_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.neg, this, [this]);
  },
  abs_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.abs, this, [this]);
  },
  exp_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.exp, this, [this]);
  },
  sqrt_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.sqrt, this, [this]);
  },
  clamp_(this: Tensor, min?: number, max?: number): Tensor {
    const bounds = { ...(min !== undefined && { min }), ...(max !== undefined && { max }) };
    return this.device.applyInPlace(functions.clamp, this, [this], bounds);
  },
  relu_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.relu, this, [this]);
  },
  tanh_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.tanh, this, [this]);
  },
  sigmoid_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.sigmoid, this, [this]);
  },
  /** Takes over another tensor's values, stretched where they broadcast. */
  copy_(this: Tensor, source: Tensor): Tensor {
    const stretched = source.expand(this.shape);
    return this.device.applyInPlace(contiguous, this, [stretched]);
  },
  /** Sets every element to a number. */
  fill_(this: Tensor, value: number): Tensor {
    return this.device.applyInPlace(functions.clamp, this, [this], { min: value, max: value });
  },
  zero_(this: Tensor): Tensor {
    return this.fill_(0);
  },
};
