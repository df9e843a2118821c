/** Random numbers in place: every call draws new ones on the device, also in a compiled step. */

import { HoldfastError } from "../../../errors/index.js";
import { type Dtype, dtypes } from "../../../ir/index.js";
import type { Distribution, Integers } from "../../../kernels/index.js";
import { contiguous, random } from "../../../ops/index.js";
import { draw, drawnDtype, integersBetween, requireDeviation } from "../../random.js";
import type { Tensor } from "../../tensor.js";
import { below, requireProbability } from "../random.js";

export const inPlaceRandomMethods = {
  /**
   * Uniform random numbers from `low` (default: 0) to `high` (default: 1).
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const x = zeros([100]).uniform_(-1, 1);
   * console.log(x.amin().item() >= -1, x.amax().item() <= 1); // → true true
   * cpu.close();
   * ```
   */
  uniform_(this: Tensor, low = 0, high = 1): Tensor {
    const isRange = Number.isFinite(low) && Number.isFinite(high) && low <= high;
    if (!isRange)
      throw badNumbers("uniform_", `the range is ${low} to ${high}`, "two finite numbers in order");
    return fill(this, "uniform_", { kind: "uniform", low, high });
  },
  /**
   * Random numbers of the normal distribution. Default: mean 0, standard deviation 1.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2]).normal_(3, 0).tolist()); // → [ 3, 3 ]
   * cpu.close();
   * ```
   */
  normal_(this: Tensor, mean = 0, std = 1): Tensor {
    requireDeviation("normal_", std);
    return fill(this, "normal_", { kind: "normal", mean, std });
  },
  /**
   * Random numbers of the log-normal distribution: exp of normal ones. Default: mean 1, standard deviation 2 of the logarithm.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2]).logNormal_(0, 0).tolist()); // → [ 1, 1 ]
   * cpu.close();
   * ```
   */
  logNormal_(this: Tensor, mean = 1, std = 2): Tensor {
    return this.normal_(mean, std).exp_();
  },
  /**
   * Random numbers of the exponential distribution. Default rate: 1. None is 0.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([100]).exponential_().amin().item() > 0); // → true
   * cpu.close();
   * ```
   */
  exponential_(this: Tensor, rate = 1): Tensor {
    if (!(rate > 0 && rate < Number.POSITIVE_INFINITY))
      throw badNumbers("exponential_", `the rate is ${rate}`, "a finite number above 0");
    return fill(this, "exponential_", { kind: "exponential", rate });
  },
  /**
   * Random numbers of the Cauchy distribution. Default: median 0, scale 1.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2]).cauchy_(7, 0).tolist()); // → [ 7, 7 ]
   * cpu.close();
   * ```
   */
  cauchy_(this: Tensor, median = 0, scale = 1): Tensor {
    const angle = draw("cauchy_", { kind: "uniform", low: -Math.PI / 2, high: Math.PI / 2 }, this.shape, {
      device: this.device,
    });
    return store(this, angle.sin().div(angle.cos()).mul(scale).add(median));
  },
  /**
   * The number of trials up to the first success, each with probability `p`: 1 or more.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([3]).geometric_(1).tolist()); // → [ 1, 1, 1 ]
   * cpu.close();
   * ```
   */
  geometric_(this: Tensor, p: number): Tensor {
    if (!(p > 0 && p <= 1)) throw badNumbers("geometric_", `p is ${p}`, "a probability above 0, up to 1");
    const rate = -Math.log1p(-p);
    const trials =
      rate === Number.POSITIVE_INFINITY
        ? 1
        : draw("geometric_", { kind: "exponential", rate }, this.shape, { device: this.device }).ceil();
    return typeof trials === "number" ? this.fill_(trials) : store(this, trials);
  },
  /**
   * 1 with the probability `p`, a number or a tensor that broadcasts, else 0. Default: 0.5.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 2]).bernoulli_(tensor([0, 1])).tolist()); // → [ [ 0, 1 ], [ 0, 1 ] ]
   * cpu.close();
   * ```
   */
  bernoulli_(this: Tensor, p: Tensor | number = 0.5): Tensor {
    if (typeof p === "number") requireProbability("bernoulli_", p);
    return store(this, below(this, typeof p === "number" ? p : p.detach()));
  },
  /**
   * Uniform random integers from `low` up to but not including `high`. Default: from 0 to the largest integer of the dtype; for floats, to
   * the largest up to which all integers are numbers of the dtype.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([100]).random_(0, 3).amax().item()); // → 2
   * cpu.close();
   * ```
   */
  random_(this: Tensor, low = 0, high?: number): Tensor {
    const end = high ?? endOfIntegers[this.dtype];
    return fill(this, "random_", integersBetween("random_", low, end));
  },
};

/** The end of the range of `random_`. */
const endOfIntegers: Readonly<Record<Dtype, number>> = {
  ...{ bool: 2, u8: 2 ** 8, i8: 2 ** 7, i32: 2 ** 31, i64: 2 ** 31, f64: 2 ** 31 },
  ...{ f32: 2 ** 24 + 1, f16: 2 ** 11 + 1, bf16: 2 ** 8 + 1, f8e4m3: 2 ** 4 + 1, f8e5m2: 2 ** 3 + 1 },
};

/** Draws into the memory of the tensor, or copies what was drawn in another dtype. */
function fill(target: Tensor, caller: string, distribution: Distribution | Integers): Tensor {
  const { dtype, shape, device } = target;
  if (distribution.kind !== "integers" && dtypes[dtype].kind !== "float") {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${caller} draws floats, but the tensor is ${dtype}. Use random_() for whole numbers.`,
    );
  }
  if (drawnDtype(distribution, dtype) !== dtype)
    return store(target, draw(caller, distribution, shape, { dtype: "i32", device }));
  return device.applyInPlace(random, target, [device.randomState], {
    ...{ shape: [...shape], dtype, distribution },
  });
}

function store(target: Tensor, values: Tensor): Tensor {
  const { dtype } = target;
  const isKept = dtypes[values.dtype].kind !== "float" || dtypes[dtype].kind === "float";
  return target.device.applyInPlace(contiguous, target, [isKept ? values : values.to(dtype)]);
}

function badNumbers(caller: string, actual: string, wanted: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `${caller}: ${actual}; pass ${wanted}.`);
}
