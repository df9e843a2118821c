/** One fold of a job: its data on the device, its training and its test. */

import { setImmediate } from "node:timers/promises";
import { TensorDataset } from "../../data/index.js";
import { functional } from "../../nn/index.js";
import { AdamW } from "../../optim/index.js";
import type { DataParallel } from "../../parallel/index.js";
import type { Device } from "../../tensor/index.js";
import {
  type EpochRecord,
  isStopped,
  type Predictor,
  Trainer,
  type TrainerOptions,
  type TrainerPosition,
} from "../../train/index.js";
import type { CrossAsset } from "../model.js";
import {
  applyNormaliser,
  type Fold,
  featureCount,
  fitNormaliser,
  type Normaliser,
  type SampleRange,
  type Samples,
  sampleWidth,
  scales,
} from "../samples/index.js";
import { makePredictor } from "./predictor.js";
import { classNames, type FoldResult, TestCounter } from "./results.js";
import type { JobSettings } from "./settings.js";

/** Features [n, S, F] and labels [n, S]. */
type Columns = [
  { readonly values: Float32Array<ArrayBuffer>; readonly shape: readonly number[] },
  {
    readonly values: Int32Array<ArrayBuffer>;
    readonly shape: readonly number[];
    readonly labels: typeof labelRange;
  },
];

/** −1 is "no label". */
const labelRange = { classes: classNames.length, ignoreIndex: -1 };

export interface FoldTrainingOptions
  extends Pick<TrainerOptions<Columns>, "onStep" | "onEpoch" | "signal" | "from" | "watcher"> {
  readonly device: Device;
  /** With the initial weights of this fold. */
  readonly model: CrossAsset;
  readonly settings: JobSettings;
  readonly samples: Samples;
  readonly fold: Fold;
  /** From a checkpoint; default: fitted to the training samples. */
  readonly normaliser?: Normaliser | undefined;
  /** Its epochs that were completed before. */
  readonly epochs?: readonly EpochRecord[];
  /** Also test after every epoch. */
  readonly testsEpochs?: boolean | undefined;
  /** Trains on all ranks of a run. */
  readonly parallel?: DataParallel | undefined;
  /** Splits the moments over the ranks. */
  readonly shardOptimizer?: boolean;
}

export class FoldTraining {
  readonly optimizer: AdamW;
  readonly trainer: Trainer<Columns>;
  readonly normaliser: Normaliser;
  /** Its completed epochs. */
  readonly epochs: EpochRecord[];
  readonly #options: FoldTrainingOptions;
  readonly #data: TensorDataset<Columns>;
  /** Made for the first test. It keeps the test samples on the device. */
  #testPredictor: Predictor | undefined;

  constructor(options: FoldTrainingOptions) {
    const { device, settings, samples, fold, onStep, onEpoch, signal, from, watcher } = options;
    const { model, parallel, shardOptimizer } = options;
    const { seed, lr, batch, epochs } = settings;
    this.#options = options;
    this.epochs = [...(options.epochs ?? [])];
    const makeOptimizer = (): AdamW => new AdamW(model.parameters(), { lr });
    this.optimizer = parallel && shardOptimizer ? parallel.shardOptimizer(makeOptimizer) : makeOptimizer();
    this.normaliser = options.normaliser ?? fitNormaliser(samples.x, fold.train);
    this.#data = new TensorDataset<Columns>(
      { values: this.#features(fold.train), shape: [lengthOf(fold.train), scales.length, featureCount] },
      {
        values: labelsOf(samples, fold.train),
        shape: [lengthOf(fold.train), scales.length],
        labels: labelRange,
      },
    );
    this.trainer = new Trainer<Columns>({
      ...{ device, model, optimizer: this.optimizer, data: this.#data },
      ...{ batchSize: batch, epochs, seed, clipNorm: 1 },
      ...(onStep && { onStep }),
      ...(signal && { signal }),
      ...(from && { from }),
      ...(watcher && { watcher }),
      ...(parallel && { parallel }),
      ...(options.testsEpochs && { evaluate: () => this.#testEpoch() }),
      onEpoch: (record, trainer) => {
        this.epochs.push(record);
        return onEpoch?.(record, trainer);
      },
      loss: (x, labels) =>
        functional.crossEntropy(model.forward(x).reshape([-1, labelRange.classes]), labels.reshape([-1]), {
          ignoreIndex: labelRange.ignoreIndex,
        }),
    });
  }

  get position(): TrainerPosition {
    return this.trainer.position;
  }

  /**
   * Tests the model; `onBatch` is called after each batch. Signals are handled between batches. Returns undefined if a signal ended
   * the test.
   */
  async test(
    onBatch?: () => void,
  ): Promise<Pick<FoldResult, "test" | "perScale" | "testSamples"> | undefined> {
    const { samples, fold, signal, parallel } = this.#options;
    const labels = labelsOf(samples, fold.test);
    const counter = new TestCounter(scales);
    for (const { outputs, firstRow } of this.#predictor().batches()) {
      counter.addFrom(labels, firstRow, outputs);
      onBatch?.();
      await setImmediate();
      if (isStopped(signal, parallel)) return undefined;
    }
    return { test: counter.overall, perScale: counter.perScale, testSamples: lengthOf(fold.test) };
  }

  #testEpoch(): Readonly<Record<string, number>> {
    const { samples, fold } = this.#options;
    const labels = labelsOf(samples, fold.test);
    const counter = new TestCounter(scales);
    this.#predictor().run((logits, first) => counter.addFrom(labels, first, logits));
    const { accuracy, loss } = counter.overall;
    return { accuracy, loss };
  }

  #predictor(): Predictor {
    const { device, model, settings, fold } = this.#options;
    this.#testPredictor ??= makePredictor(device, model, this.#features(fold.test), settings.batch);
    return this.#testPredictor;
  }

  /** Releases the device memory. */
  close(): void {
    const { device } = this.#options;
    this.#testPredictor?.close();
    this.trainer.close();
    this.#data.release(device);
    this.optimizer.release();
  }

  #features({ start, end }: SampleRange): Float32Array<ArrayBuffer> {
    const features = this.#options.samples.x.slice(start * sampleWidth, end * sampleWidth);
    applyNormaliser(this.normaliser, features);
    return features;
  }
}

export function lengthOf({ start, end }: SampleRange): number {
  return end - start;
}

function labelsOf({ labels }: Samples, { start, end }: SampleRange): Int32Array<ArrayBuffer> {
  return labels.slice(start * scales.length, end * scales.length);
}
