/** Elementwise methods of tensors: arithmetic, comparisons, elementary functions, activations. */

import type { Dtype } from "../../kernels/index.js";
import {
  activations,
  add,
  cast,
  comparisons,
  contiguous,
  div,
  functions,
  maximum,
  minimum,
  mul,
  pow,
  sub,
} from "../../ops/index.js";
import type { Tensor } from "../tensor.js";

/** What the other operand may be: a tensor that broadcasts, or a number. */
export type Other = Tensor | number;

export const elementwiseMethods = {
  /** The sum with a tensor or a number. */
  add(this: Tensor, other: Other): Tensor {
    return this.device.apply(add, [this, other]);
  },
  /** The difference: this less the other. */
  sub(this: Tensor, other: Other): Tensor {
    return this.device.apply(sub, [this, other]);
  },
  /** The product, element by element. */
  mul(this: Tensor, other: Other): Tensor {
    return this.device.apply(mul, [this, other]);
  },
  /** The quotient: this over the other. Integers give floats. */
  div(this: Tensor, other: Other): Tensor {
    return this.device.apply(div, [this, other]);
  },
  /** This to the power of the other. */
  pow(this: Tensor, exponent: Other): Tensor {
    return this.device.apply(pow, [this, exponent]);
  },
  /** The larger of the two, element by element. */
  maximum(this: Tensor, other: Other): Tensor {
    return this.device.apply(maximum, [this, other]);
  },
  /** The smaller of the two, element by element. */
  minimum(this: Tensor, other: Other): Tensor {
    return this.device.apply(minimum, [this, other]);
  },

  /** Equal, as truth values. */
  eq(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.eq, [this, other]);
  },
  /** Not equal. */
  ne(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.ne, [this, other]);
  },
  /** Less than. */
  lt(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.lt, [this, other]);
  },
  /** Less than or equal. */
  le(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.le, [this, other]);
  },
  /** Greater than. */
  gt(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.gt, [this, other]);
  },
  /** Greater than or equal. */
  ge(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.ge, [this, other]);
  },
  /** Both are not 0. */
  logicalAnd(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.logicalAnd, [this, other]);
  },
  /** At least one is not 0. */
  logicalOr(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.logicalOr, [this, other]);
  },
  /** Exactly one is not 0. */
  logicalXor(this: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.logicalXor, [this, other]);
  },
  /** True where this is 0. */
  logicalNot(this: Tensor): Tensor {
    return this.device.apply(comparisons.logicalNot, [this]);
  },
  isnan(this: Tensor): Tensor {
    return this.device.apply(comparisons.isnan, [this]);
  },
  isfinite(this: Tensor): Tensor {
    return this.device.apply(comparisons.isfinite, [this]);
  },
  /** This where the condition holds, the other elsewhere. */
  where(this: Tensor, condition: Tensor, other: Other): Tensor {
    return this.device.apply(comparisons.where, [condition, this, other]);
  },

  neg(this: Tensor): Tensor {
    return this.device.apply(functions.neg, [this]);
  },
  abs(this: Tensor): Tensor {
    return this.device.apply(functions.abs, [this]);
  },
  /** -1, 0 or 1. */
  sign(this: Tensor): Tensor {
    return this.device.apply(functions.sign, [this]);
  },
  floor(this: Tensor): Tensor {
    return this.device.apply(functions.floor, [this]);
  },
  ceil(this: Tensor): Tensor {
    return this.device.apply(functions.ceil, [this]);
  },
  exp(this: Tensor): Tensor {
    return this.device.apply(functions.exp, [this]);
  },
  /** exp(x) − 1, with all its digits near 0. */
  expm1(this: Tensor): Tensor {
    return this.device.apply(functions.expm1, [this]);
  },
  log(this: Tensor): Tensor {
    return this.device.apply(functions.log, [this]);
  },
  /** log(1 + x), with all its digits near 0. */
  log1p(this: Tensor): Tensor {
    return this.device.apply(functions.log1p, [this]);
  },
  sqrt(this: Tensor): Tensor {
    return this.device.apply(functions.sqrt, [this]);
  },
  /** 1/√x */
  rsqrt(this: Tensor): Tensor {
    return this.device.apply(functions.rsqrt, [this]);
  },
  square(this: Tensor): Tensor {
    return this.device.apply(functions.square, [this]);
  },
  reciprocal(this: Tensor): Tensor {
    return this.device.apply(functions.reciprocal, [this]);
  },
  sin(this: Tensor): Tensor {
    return this.device.apply(functions.sin, [this]);
  },
  cos(this: Tensor): Tensor {
    return this.device.apply(functions.cos, [this]);
  },
  /** The error function. */
  erf(this: Tensor): Tensor {
    return this.device.apply(functions.erf, [this]);
  },
  /** Held between two bounds; either may be left out. */
  clamp(this: Tensor, min?: number, max?: number): Tensor {
    return this.device.apply(functions.clamp, [this], {
      ...(min !== undefined && { min }),
      ...(max !== undefined && { max }),
    });
  },

  relu(this: Tensor): Tensor {
    return this.device.apply(activations.relu, [this]);
  },
  leakyRelu(this: Tensor, negativeSlope = 0.01): Tensor {
    return this.device.apply(activations.leakyRelu, [this], { negativeSlope });
  },
  tanh(this: Tensor): Tensor {
    return this.device.apply(activations.tanh, [this]);
  },
  sigmoid(this: Tensor): Tensor {
    return this.device.apply(activations.sigmoid, [this]);
  },
  silu(this: Tensor): Tensor {
    return this.device.apply(activations.silu, [this]);
  },
  /** log(1 + eˣ) */
  softplus(this: Tensor): Tensor {
    return this.device.apply(activations.softplus, [this]);
  },
  /** x·Φ(x), exactly or by tanh. */
  gelu(this: Tensor, approximate: "none" | "tanh" = "none"): Tensor {
    return this.device.apply(approximate === "tanh" ? activations.geluTanh : activations.gelu, [this]);
  },

  /** The same values in another dtype; itself where it has it already. */
  to(this: Tensor, dtype: Dtype): Tensor {
    return this.dtype === dtype ? this : this.device.apply(cast, [this], { dtype });
  },
  /** A copy in memory of its own; the gradient flows through it. */
  clone(this: Tensor): Tensor {
    return this.device.apply(contiguous, [this]);
  },
  /** Row by row in memory; itself where it lies so already. */
  contiguous(this: Tensor): Tensor {
    return this.isContiguous ? this : this.device.apply(contiguous, [this]);
  },
};
