/** SyncBatchNorm: batch norm with the statistics of all ranks. */

import type { World } from "../../distributed/index.js";
import type { Tensor } from "../../tensor/index.js";
import type { Module } from "../module.js";
import { BatchNorm, type BatchNormOptions } from "./batch-norm.js";

/**
 * Normalizes each channel of [N, C, …] in training by the statistics of the rows of all ranks, where `BatchNorm` sees those of one shard. Use as
 * many shards as ranks. All ranks must call it together.
 *
 * @example
 * ```ts
 * import { device, distributed, nn, tensor } from "holdfast";
 * const world = distributed.init();
 * const cpu = await device("cpu");
 * const norm = new nn.SyncBatchNorm(1, world, { eps: 0 }).to(cpu);
 * console.log(norm.forward(tensor([[1], [3]])).flatten().tolist()); // → [ -1, 1 ]
 * world.close();
 * cpu.close();
 * ```
 */
export class SyncBatchNorm extends BatchNorm {
  constructor(numFeatures: number, world: World, options: BatchNormOptions = {}) {
    super(numFeatures, options);
    this.synchronize(world);
  }

  /** [N, C, …] to the same shape. */
  forward(x: Tensor): Tensor {
    this.requireAxes(x, 2, 3, 4, 5);
    return this.normalize(x);
  }
}

/**
 * Makes all `BatchNorm` layers of a module use the statistics of the rows of all ranks, as `SyncBatchNorm` does. Returns the module. Its parameters
 * stay where they are.
 *
 * @example
 * ```ts
 * import { device, distributed, nn } from "holdfast";
 * const world = distributed.init();
 * const cpu = await device("cpu");
 * const model = new nn.Sequential(new nn.Linear(4, 8), new nn.BatchNorm1d(8), new nn.ReLU()).to(cpu);
 * console.log(nn.convertSyncBatchNorm(model, world) === model); // → true
 * world.close();
 * cpu.close();
 * ```
 */
export function convertSyncBatchNorm<M extends Module>(module: M, world: World): M {
  module.apply((layer) => {
    if (layer instanceof BatchNorm) layer.synchronize(world);
  });
  return module;
}
