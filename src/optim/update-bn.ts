/** Running statistics of batch norms for averaged weights. */

import { noGrad } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { BatchNorm1d, BatchNorm2d, BatchNorm3d, type Module, SyncBatchNorm } from "../nn/index.js";
import type { Tensor } from "../tensor/index.js";

const batchNorms = [BatchNorm1d, BatchNorm2d, BatchNorm3d, SyncBatchNorm];

/**
 * Computes the running statistics of a model's batch norms again, as means over the batches of a data set. Averaged weights need this: no
 * forward pass has collected statistics with them. A batch is an input, or a list that begins with it, as from a `DataLoader`.
 *
 * @example
 * ```ts
 * import { DataLoader, device, nn, optim, TensorDataset } from "holdfast";
 * const { AveragedModel, updateBn } = optim.swaUtils;
 * const cpu = await device("cpu");
 * const model = new nn.Sequential(new nn.BatchNorm1d(1), new nn.Linear(1, 1)).to(cpu);
 * const averaged = new AveragedModel(model);
 * averaged.updateParameters();
 * averaged.copyTo(model);
 * updateBn(new DataLoader(new TensorDataset([[1], [3], [5], [7]]), { batchSize: 2 }), model);
 * console.log(Array.from(model.buffers(), (buffer) => buffer.tolist())); // → [ [ 4 ], [ 2 ], 2 ]
 * cpu.close();
 * ```
 */
export function updateBn(
  batches: Iterable<Tensor | readonly Tensor[]>,
  model: Module & { forward(x: Tensor): unknown },
): void {
  const layers = [...model.namedModules()].flatMap(([, module]) => {
    const layer = batchNorms.some((type) => module instanceof type) ? (module as BatchNorm1d) : undefined;
    return layer?.runningMean ? [layer] : [];
  });
  const [layer] = layers;
  if (!layer) return;
  const device = layer.runningMean?.device;
  const momenta = layers.map(({ momentum }) => momentum);
  const wasTraining = model.isTraining;
  model.train();
  try {
    for (const each of layers) {
      each.resetRunningStats();
      each.momentum = null;
    }
    for (const batch of batches) {
      const x = "dtype" in batch ? batch : batch[0];
      if (!x)
        throw new HoldfastError(
          "BAD_ARGUMENT",
          "updateBn: a batch is empty. Pass batches that begin with the input.",
        );
      device?.step(() => noGrad(() => void model.forward(x)));
    }
  } finally {
    for (const [index, each] of layers.entries()) each.momentum = momenta[index] ?? null;
    model.train(wasTraining);
  }
}
