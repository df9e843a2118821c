/** Dropout of whole channels, dropout that keeps mean and variance, and random choices of classes. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import { ones, onesLike, rand, type Tensor } from "../../tensor/index.js";
import { isActive } from "./dropout-mode.js";
import { dropout } from "./layers.js";

/**
 * In training, sets whole channels of [N, C, L] or [C, L] to 0 with probability p, and scales the others by 1/(1 − p).
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const sums = nn.functional.dropout1d(ones([1, 100, 2])).sum(-1);
 * console.log(sums.eq(0).logicalOr(sums.eq(4)).all().item()); // → 1
 * cpu.close();
 * ```
 */
export function dropout1d(x: Tensor, p = 0.5, isTraining = true): Tensor {
  return dropChannels("dropout1d", x, p, isTraining, 1);
}

/**
 * In training, sets whole channels of [N, C, H, W] or [C, H, W] to 0 with probability p, and scales the others by 1/(1 − p).
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const sums = nn.functional.dropout2d(ones([1, 100, 2, 1])).sum([-1, -2]);
 * console.log(sums.eq(0).logicalOr(sums.eq(4)).all().item()); // → 1
 * cpu.close();
 * ```
 */
export function dropout2d(x: Tensor, p = 0.5, isTraining = true): Tensor {
  return dropChannels("dropout2d", x, p, isTraining, 2);
}

/**
 * In training, sets whole channels of [N, C, D, H, W] or [C, D, H, W] to 0 with probability p, and scales the others by 1/(1 − p).
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const sums = nn.functional.dropout3d(ones([1, 100, 2, 1, 1])).sum([-1, -2, -3]);
 * console.log(sums.eq(0).logicalOr(sums.eq(4)).all().item()); // → 1
 * cpu.close();
 * ```
 */
export function dropout3d(x: Tensor, p = 0.5, isTraining = true): Tensor {
  return dropChannels("dropout3d", x, p, isTraining, 3);
}

/**
 * In training, sets elements to the limit of `selu` for −∞ with probability p, then scales and shifts all, so that mean 0 and variance 1 stay.
 *
 * @example
 * ```ts
 * import { device, nn, randn } from "holdfast";
 * const cpu = await device("cpu");
 * const y = nn.functional.alphaDropout(randn([20000]), 0.3, true);
 * console.log(y.mean().abs().item() < 0.05, y.var().sub(1).abs().item() < 0.1); // → true true
 * cpu.close();
 * ```
 */
export function alphaDropout(x: Tensor, p = 0.5, isTraining = false): Tensor {
  return isActive("alphaDropout", isTraining, p) ? dropToAlpha(x, onesLike(x), p) : x;
}

/**
 * `alphaDropout` of whole channels of [N, C, …].
 *
 * @example
 * ```ts
 * import { device, nn, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * const y = nn.functional.featureAlphaDropout(zeros([1, 3, 4]), 0.5, true);
 * console.log(y.amax(-1).eq(y.amin(-1)).all().item()); // → 1
 * cpu.close();
 * ```
 */
export function featureAlphaDropout(x: Tensor, p = 0.5, isTraining = false): Tensor {
  if (!isActive("featureAlphaDropout", isTraining, p)) return x;
  const shape = x.shape.map((size, axis) => (axis < 2 ? size : 1));
  return dropToAlpha(x, ones(shape, { dtype: x.dtype, device: x.device }), p);
}

/** −scale · alpha of `selu`: its limit for −∞. */
const limit = -1.7580993408473766;

function dropToAlpha(x: Tensor, like: Tensor, p: number): Tensor {
  if (p === 1) return x.mul(0);
  const kept = dropout(like, p).mul(1 - p); // 1 or 0
  const scale = 1 / Math.sqrt((1 - p) * (1 + p * limit * limit));
  return x
    .mul(kept)
    .add(kept.neg().add(1).mul(limit))
    .sub(p * limit)
    .mul(scale);
}

function dropChannels(name: string, x: Tensor, p: number, isTraining: boolean, rank: number): Tensor {
  if (x.ndim !== rank + 1 && x.ndim !== rank + 2) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `${name}: the input is ${formatShape(x.shape)}; it needs channels and ${rank} more axes, with or without a batch.`,
      { numbers: { axes: x.ndim } },
    );
  }
  if (!isActive(name, isTraining, p)) return x;
  const first = x.ndim - rank;
  const shape = x.shape.map((size, axis) => (axis < first ? size : 1));
  return x.mul(dropout(ones(shape, { dtype: x.dtype, device: x.device }), p));
}

/** Options of `gumbelSoftmax`. */
export interface GumbelSoftmaxOptions {
  /** The temperature. Default: 1. */
  readonly tau?: number;
  /** Return one-hot vectors, with the gradient of the probabilities. Default: false. */
  readonly hard?: boolean;
  /** Default: the last axis. */
  readonly axis?: number;
}

/**
 * A random choice of a class by logits, as probabilities that a gradient flows through: softmax((logits + Gumbel noise) / tau).
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(nn.functional.gumbelSoftmax(tensor([[0, 100, 0]]), { hard: true }).tolist()); // → [ [ 0, 1, 0 ] ]
 * cpu.close();
 * ```
 */
export function gumbelSoftmax(logits: Tensor, options: GumbelSoftmaxOptions = {}): Tensor {
  const {
    tau = 1,
    hard = false,
    axis = -1,
  } = checkOptions("gumbelSoftmax", options, { tau: true, hard: true, axis: true });
  if (!(tau > 0)) {
    throw new HoldfastError("BAD_ARGUMENT", `gumbelSoftmax: tau is ${tau}; pass a number above 0.`, {
      numbers: { tau },
    });
  }
  // Above 0, so that the logarithms are finite.
  const uniform = rand(logits.shape, { device: logits.device }).clamp(1e-10, 1 - 1e-7);
  const noise = uniform.log().neg().log().neg().to(logits.dtype);
  const soft = logits.add(noise).div(tau).softmax(axis);
  if (!hard) return soft;
  const chosen = soft.detach();
  const best = chosen.eq(chosen.amax(axis, { keepdim: true })).to(logits.dtype);
  return best.sub(chosen).add(soft);
}
