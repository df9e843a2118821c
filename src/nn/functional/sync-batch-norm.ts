/** Batch norm with the statistics of the batches of all ranks. */

import { currentRecomputation, noGrad } from "../../autograd/index.js";
import type { Communicator } from "../../distributed/index.js";
import { HoldfastError } from "../../errors/index.js";
import { allGather, formatShape } from "../../ops/index.js";
import { full, stack, type Tensor } from "../../tensor/index.js";

export interface SyncStatistics {
  readonly communicator: Communicator;
  readonly runningMean: Tensor | null;
  readonly runningVar: Tensor | null;
  readonly momentum: number | Tensor;
  readonly eps: number;
}

/**
 * Normalizes each channel of [N, C, …] by the mean and the variance over the rows of all ranks, in the order of ranks. Gradients flow through
 * the statistics of the other ranks too.
 */
export function syncBatchNorm(
  x: Tensor,
  weight: Tensor | null,
  bias: Tensor | null,
  { communicator, runningMean, runningVar, momentum, eps }: SyncStatistics,
): Tensor {
  const { device, dtype } = x;
  const [, channels = 0] = x.shape;
  const axes = x.shape.flatMap((_, axis) => (axis === 1 ? [] : [axis]));
  const count = x.numel / Math.max(1, channels);
  if (count === 0)
    throw new HoldfastError(
      "BAD_SHAPE",
      `SyncBatchNorm: ${formatShape(x.shape)} has no rows. Every rank needs one: pass larger batches.`,
    );
  const values = dtype === "f64" ? x : x.to("f32");
  const perChannel = (of: Tensor): Tensor => of.reshape([channels, ...axes.slice(1).map(() => 1)]);
  const ownMean = values.mean(axes); // [C]
  const ownVariance = values.sub(perChannel(ownMean)).square().mean(axes); // [C]
  const counts = full([channels], count, { dtype: values.dtype, device });
  const own = stack([ownMean, ownVariance, counts]); // [3, C]
  const all = device.apply(allGather, [own], { communicator }); // [ranks, 3, C]
  const [means, variances, rows] = [0, 1, 2].map((index) => all.select(1, index)) as [Tensor, Tensor, Tensor];
  const total = rows.detach().sum(0); // [C]
  const shares = rows.detach().div(total); // [ranks, C]
  const mean = means.mul(shares).sum(0);
  const variance = variances.add(means.sub(mean).square()).mul(shares).sum(0);
  // A function that runs again for backward must not count its batch twice.
  if (!currentRecomputation()?.isRunningAgain)
    noGrad(() => {
      const move = (running: Tensor | null, value: Tensor): void => {
        running?.add_(value.to(running.dtype).sub(running).mul(momentum));
      };
      move(runningMean, mean.detach());
      move(runningVar, variance.detach().mul(total.div(total.sub(1))));
    });
  const normalized = values.sub(perChannel(mean)).mul(perChannel(variance.add(eps).rsqrt()));
  const weighted = weight ? normalized.mul(perChannel(weight)) : normalized;
  return (bias ? weighted.add(perChannel(bias)) : weighted).to(dtype);
}
