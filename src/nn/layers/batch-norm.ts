/** BatchNorm and InstanceNorm: normalize channels, with running statistics for evaluation. */

import { currentRecomputation, noGrad } from "../../autograd/index.js";
import type { World } from "../../distributed/index.js";
import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import type { Tensor } from "../../tensor/index.js";
import { Buffer } from "../buffer.js";
import { syncBatchNorm } from "../functional/sync-batch-norm.js";
import { batchNorm, instanceNorm } from "../functional.js";
import { ones, zeros } from "../init.js";
import { Module } from "../module.js";
import { Parameter } from "../parameter.js";
import { requireOwnStatistics } from "../running-statistics.js";
import { requireSizes } from "./checks.js";

/** Options of `BatchNorm` and `InstanceNorm` layers. */
export interface BatchNormOptions {
  /** Added to the variance. Default: 1e-5. */
  readonly eps?: number;
  /** The share of each batch in the running statistics; null: their mean over all batches. Default: 0.1. */
  readonly momentum?: number | null;
  /** Learn a weight and a bias for each channel. Default: true; false for InstanceNorm. */
  readonly affine?: boolean;
  /** Keep running statistics, and use them in evaluation mode. Default: true; false for InstanceNorm. */
  readonly trackRunningStats?: boolean;
}

const batchNormOptionNames: OptionNames<BatchNormOptions> = {
  eps: true,
  momentum: true,
  affine: true,
  trackRunningStats: true,
};

/** The common base: a weight and a bias, and the running statistics, which stay f32 if the module is converted to a half float. */
abstract class RunningNorm extends Module {
  readonly numFeatures: number;
  readonly eps: number;
  /** The share of each batch in the running statistics; null: their mean over all batches. */
  momentum: number | null;
  readonly weight: Parameter | null;
  readonly bias: Parameter | null;
  readonly runningMean: Buffer | null;
  readonly runningVar: Buffer | null;
  /** The number of batches in the running statistics. */
  readonly numBatchesTracked: Buffer | null;

  constructor(
    numFeatures: number,
    { eps = 1e-5, momentum = 0.1, affine = true, trackRunningStats = true }: BatchNormOptions,
  ) {
    super();
    requireSizes(this.constructor.name, { numFeatures });
    this.numFeatures = numFeatures;
    this.eps = eps;
    this.momentum = momentum;
    this.weight = affine ? new Parameter([numFeatures], ones()) : null;
    this.bias = affine ? new Parameter([numFeatures], zeros()) : null;
    const statistic = { staysF32: true };
    this.runningMean = trackRunningStats ? new Buffer([numFeatures], zeros(), statistic) : null;
    this.runningVar = trackRunningStats ? new Buffer([numFeatures], ones(), statistic) : null;
    this.numBatchesTracked = trackRunningStats ? new Buffer([], zeros(), { dtype: "i32" }) : null;
  }

  /**
   * Forgets the running statistics: the mean is 0 again, and the variance 1.
   *
   * @example
   * ```ts
   * import { device, nn, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const norm = new nn.BatchNorm1d(1).to(cpu);
   * norm.forward(tensor([[1], [3]]));
   * norm.resetRunningStats();
   * console.log(norm.runningMean?.tolist(), norm.numBatchesTracked?.item()); // → [ 0 ] 0
   * cpu.close();
   * ```
   */
  resetRunningStats(): void {
    const { runningMean, runningVar, numBatchesTracked } = this;
    noGrad(() => {
      runningMean?.zero_();
      runningVar?.fill_(1);
      numBatchesTracked?.zero_();
    });
  }

  /** Counts the batch, and returns its share in the running statistics. */
  protected countBatch(x: Tensor): number | Tensor {
    requireOwnStatistics(this.constructor.name, x);
    const { numBatchesTracked, momentum } = this;
    if (!numBatchesTracked) return momentum ?? 0;
    return noGrad(() => {
      if (!currentRecomputation()?.isRunningAgain) numBatchesTracked.add_(1);
      return momentum ?? numBatchesTracked.to("f32").reciprocal();
    });
  }

  protected requireAxes(x: Tensor, ...allowed: readonly number[]): void {
    const [, channels] = x.shape;
    if (allowed.includes(x.ndim) && channels === this.numFeatures) return;
    const layer = this.constructor.name;
    throw new HoldfastError(
      "BAD_SHAPE",
      `${layer}: the input is ${formatShape(x.shape)}; it needs ${allowed.join(" or ")} axes, [N, C${allowed.includes(2) ? "" : ", …"}], with ` +
        `${this.numFeatures} channels.`,
      { numbers: { layer, axes: x.ndim, channels: channels ?? 0 } },
    );
  }

  protected override describe(): string {
    const { numFeatures, eps, momentum, weight, runningMean } = this;
    return `${numFeatures}, eps=${eps}, momentum=${momentum}, affine=${weight !== null}, trackRunningStats=${runningMean !== null}`;
  }
}

export abstract class BatchNorm extends RunningNorm {
  /** The ranks over whose rows the statistics are; undefined for those of this process. */
  #world: World | undefined;

  constructor(numFeatures: number, options: BatchNormOptions = {}) {
    checkOptions("nn.BatchNorm", options, batchNormOptionNames);
    super(numFeatures, options);
  }

  /**
   * Takes the statistics over the rows of all ranks from now on, in training.
   *
   * @internal
   */
  synchronize(world: World): void {
    this.#world = world;
  }

  protected normalize(x: Tensor): Tensor {
    const { runningMean, runningVar, weight, bias, eps, isTraining } = this;
    if (!isTraining && runningMean) return batchNorm(x, runningMean, runningVar, weight, bias, { eps });
    const isTracked = isTraining && runningMean !== null;
    const momentum = isTracked ? this.countBatch(x) : 0;
    const [mean, variance] = isTracked ? [runningMean, runningVar] : [null, null];
    const communicator = isTraining ? this.#world?.communicator : undefined;
    if (communicator) {
      const running = { runningMean: mean, runningVar: variance, momentum };
      return syncBatchNorm(x, weight, bias, { communicator, ...running, eps });
    }
    return batchNorm(x, mean, variance, weight, bias, { training: true, momentum, eps });
  }
}

abstract class InstanceNorm extends RunningNorm {
  constructor(numFeatures: number, given: BatchNormOptions = {}) {
    const {
      affine = false,
      trackRunningStats = false,
      ...options
    } = checkOptions("nn.InstanceNorm", given, batchNormOptionNames);
    super(numFeatures, { ...options, affine, trackRunningStats });
  }

  protected normalize(x: Tensor): Tensor {
    const { runningMean, runningVar, weight, bias, eps, isTraining } = this;
    const useInputStats = isTraining || !runningMean;
    const momentum = useInputStats && runningMean ? this.countBatch(x) : 0;
    return instanceNorm(x, runningMean, runningVar, weight, bias, { useInputStats, momentum, eps });
  }
}

/**
 * Normalizes each channel of [N, C] or [N, C, L]: in training by the statistics of the batch, in evaluation by running ones.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.BatchNorm1d(1, { momentum: 0.5, eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[1], [3]])).flatten().tolist()); // → [ -1, 1 ]
 * console.log(norm.runningMean?.tolist(), norm.runningVar?.tolist()); // → [ 1 ] [ 1.5 ]
 * cpu.close();
 * ```
 */
export class BatchNorm1d extends BatchNorm {
  /** [N, C] or [N, C, L] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 2, 3);
    return this.normalize(x);
  }
}

/**
 * Normalizes each channel of [N, C, H, W]: in training by the statistics of the batch, in evaluation by running ones.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.BatchNorm2d(1, { momentum: 0.5, eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[[[1, 3]]]])).flatten().tolist()); // → [ -1, 1 ]
 * console.log(norm.runningMean?.tolist(), norm.runningVar?.tolist()); // → [ 1 ] [ 1.5 ]
 * cpu.close();
 * ```
 */
export class BatchNorm2d extends BatchNorm {
  /** [N, C, H, W] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 4);
    return this.normalize(x);
  }
}

/**
 * Normalizes each channel of [N, C, D, H, W]: in training by the statistics of the batch, in evaluation by running ones.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const norm = new nn.BatchNorm3d(1, { momentum: 0.5, eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[[[[1, 3]]]]])).flatten().tolist()); // → [ -1, 1 ]
 * console.log(norm.runningMean?.tolist(), norm.runningVar?.tolist()); // → [ 1 ] [ 1.5 ]
 * cpu.close();
 * ```
 */
export class BatchNorm3d extends BatchNorm {
  /** [N, C, D, H, W] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 5);
    return this.normalize(x);
  }
}

/**
 * Normalizes each channel of each element of a batch [N, C, L] by its own statistics.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.InstanceNorm1d(1, { eps: 0 }).forward(tensor([[[1, 3]]])).flatten().tolist()); // → [ -1, 1 ]
 * cpu.close();
 * ```
 */
export class InstanceNorm1d extends InstanceNorm {
  /** [N, C, L] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 3);
    return this.normalize(x);
  }
}

/**
 * Normalizes each channel of each element of a batch [N, C, H, W] by its own statistics.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.InstanceNorm2d(1, { eps: 0 }).forward(tensor([[[[1, 3]]]])).flatten().tolist()); // → [ -1, 1 ]
 * cpu.close();
 * ```
 */
export class InstanceNorm2d extends InstanceNorm {
  /** [N, C, H, W] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 4);
    return this.normalize(x);
  }
}

/**
 * Normalizes each channel of each element of a batch [N, C, D, H, W] by its own statistics.
 *
 * @example
 * ```ts
 * import { device, nn, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(new nn.InstanceNorm3d(1, { eps: 0 }).forward(tensor([[[[[1, 3]]]]])).flatten().tolist()); // → [ -1, 1 ]
 * cpu.close();
 * ```
 */
export class InstanceNorm3d extends InstanceNorm {
  /** [N, C, D, H, W] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 5);
    return this.normalize(x);
  }
}
