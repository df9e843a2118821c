/**
 * A training of very many tiny steps in a run folder, like the CrossAsset job's, with samples of memory on
 * the way.
 */

import { crossasset, manualSeed, nn, optim, TensorDataset, Trainer } from "holdfast";
import { normaliserFrom, sampleWidth } from "../../src/crossasset/samples/index.js";
import type { EpochRecord } from "../../src/train/index.js";
import { openDevice } from "./devices.js";
import { heapAfterCollection } from "./gc.js";
import { openTestDriver } from "./test-device.js";

/** A checkpoint is saved after each epoch. */
export const soakStepsPerEpoch = 1000;
const batchSize = 4;
const sampleCount = 20;

export interface SoakOptions {
  readonly out: string;
  /** A multiple of the steps of an epoch. */
  readonly steps: number;
  readonly lr: number;
}

/** A sample of memory. */
export interface MemoryLook {
  readonly step: number;
  readonly heapBytes: number;
  readonly residentBytes: number;
  /** Of the device's budget. */
  readonly used: number;
  readonly committed: number;
  readonly pins: number;
}

export async function soakRun({ out, steps, lr }: SoakOptions): Promise<{
  readonly epochs: readonly EpochRecord[];
  readonly samples: readonly MemoryLook[];
}> {
  const device = openDevice({ driver: openTestDriver() });
  const { runtime } = device;
  manualSeed(7);
  const rows = soakStepsPerEpoch * batchSize;
  const points = Array.from({ length: rows }, (_, row) => [
    Math.sin(row),
    Math.cos(row * 1.7),
    Math.sin(row * 0.3),
  ]);
  const data = new TensorDataset(
    points,
    points.map(([a = 0, b = 0, c = 0]) => [a * 0.5 - b + c * 0.25]),
  );
  const model = new nn.Sequential(new nn.Linear(3, 8), new nn.GELU(), new nn.Linear(8, 1)).to(device);
  const optimizer = new optim.AdamW(model.parameters(), { lr, weightDecay: 0 });
  const count = steps / soakStepsPerEpoch;
  const run = crossasset.openJobRun({
    path: out,
    settings: { steps },
    device: "the device under test",
    recordedDevice: device,
  });
  const epochs: EpochRecord[] = [];
  const samples: MemoryLook[] = [];
  const foldPosition = { fold: 0, folds: 1, epochs: count };
  run.note({ kind: "device", name: "the device under test", budgetBytes: runtime.budget.limit });
  const trainer = new Trainer({
    ...{ device, model, optimizer, data, batchSize, epochs: count, shuffle: false, clipNorm: 10 },
    watcher: run.watch(0, 0),
    loss: (x, y) => model.forward(x).sub(y).square().mean(),
    onStep: ({ progress: { epoch, batch, step }, batches, latestLoss: loss, samplesPerSecond }) =>
      run.note({
        ...{ kind: "step", ...foldPosition, epoch, batch, batches, step, steps, loss, samplesPerSecond },
        ...{ samples: batchSize * step, usedBytes: runtime.budget.used, secondsLeft: 0 },
      }),
    onEpoch: (record) => {
      const { step } = trainer.progress;
      epochs.push(record);
      run.note({ kind: "epoch", ...foldPosition, epoch: record.epoch, step, record, secondsLeft: 0 });
      run.save(step, 0, asJob, training, []);
      if ((record.epoch + 1) % Math.ceil(count / sampleCount) === 0) samples.push(look());
    },
  });
  // The job's own model and training have more members; only these are used.
  const asJob = model as unknown as crossasset.CrossAsset;
  const normaliser = normaliserFrom({
    mean: new Float32Array(sampleWidth),
    deviation: new Float32Array(sampleWidth).fill(1),
  });
  const training = {
    ...{ optimizer, normaliser, epochs: [] },
    get position() {
      return trainer.position;
    },
  } as unknown as Parameters<typeof run.save>[3];
  const look = (): MemoryLook => {
    const heapBytes = heapAfterCollection();
    const { committed, pins } = runtime.arena.figures;
    return {
      step: trainer.progress.step,
      heapBytes,
      residentBytes: process.memoryUsage.rss(),
      used: runtime.budget.used,
      committed,
      pins,
    };
  };
  await trainer.run();
  run.end({ folds: [], wf_mean: 0, majority_mean: 0 }, 0);
  trainer.close();
  return { epochs, samples };
}
