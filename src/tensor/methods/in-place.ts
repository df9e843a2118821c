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
  sign_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.sign, this, [this]);
  },
  floor_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.floor, this, [this]);
  },
  ceil_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.ceil, this, [this]);
  },
  expm1_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.expm1, this, [this]);
  },
  log_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.log, this, [this]);
  },
  log1p_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.log1p, this, [this]);
  },
  rsqrt_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.rsqrt, this, [this]);
  },
  square_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.square, this, [this]);
  },
  reciprocal_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.reciprocal, this, [this]);
  },
  sin_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.sin, this, [this]);
  },
  cos_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.cos, this, [this]);
  },
  erf_(this: Tensor): Tensor {
    return this.device.applyInPlace(functions.erf, this, [this]);
  },
  clamp_(this: Tensor, min?: number, max?: number): Tensor {
    const bounds = { ...(min !== undefined && { min }), ...(max !== undefined && { max }) };
    return this.device.applyInPlace(functions.clamp, this, [this], bounds);
  },
  relu_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.relu, this, [this]);
  },
  leakyRelu_(this: Tensor, negativeSlope = 0.01): Tensor {
    return this.device.applyInPlace(activations.leakyRelu, this, [this], { negativeSlope });
  },
  silu_(this: Tensor): Tensor {
    return this.device.applyInPlace(activations.silu, this, [this]);
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
    return this.device.applyInPlace(functions.fill, this, [this], { value });
  },
  zero_(this: Tensor): Tensor {
    return this.fill_(0);
  },
};
