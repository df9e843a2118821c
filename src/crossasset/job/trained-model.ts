/** Runs a trained model on bars: predictions for each time and scale, and their accuracy. */

import { join } from "node:path";
import { HoldfastError } from "../../errors/index.js";
import type { Device } from "../../tensor/index.js";
import {
  CheckpointStore,
  requireCompatible,
  requireRun,
  restoreWeights,
  runFiles,
} from "../../train/index.js";
import type { Bars } from "../bars/index.js";
import { CrossAsset } from "../model.js";
import {
  applyNormaliser,
  defaultStride,
  makeSamples,
  type Normaliser,
  type Samples,
  scales,
} from "../samples/index.js";
import { modelName, normaliserIn } from "./job-checkpoint.js";
import { predictOnce } from "./predictor.js";
import { classNames, type FoldResult, type PredictionFigures, TestCounter } from "./results.js";
import { definedSizes } from "./settings.js";

/** The prediction for one time and scale. */
export interface Prediction {
  /** The time of the last input bar, in milliseconds since 1970. */
  readonly time: number;
  /** The scale: the horizon of the prediction. */
  readonly minutes: number;
  readonly answer: (typeof classNames)[number];
  /** Of long, short and flat; their sum is 1. */
  readonly probabilities: readonly number[];
}

/** Options of `TrainedModel.predict` and `TrainedModel.evaluate`. */
export interface PredictOptions {
  /** Bars between two predictions; default: 60. */
  readonly stride?: number;
  /** Samples per batch; default: 256. */
  readonly batch?: number;
}

/** The figures of a trained model on other bars. */
export interface EvaluatedModel {
  readonly samples: number;
  readonly overall: PredictionFigures;
  readonly perScale: FoldResult["perScale"];
}

/**
 * Opens the model of a run's latest checkpoint, with its feature normaliser.
 *
 * @example
 * ```ts
 * import { crossasset, device } from "holdfast";
 * const cpu = await device("cpu");
 * try {
 *   crossasset.openTrainedModel(cpu, "runs/that/never/were");
 * } catch (error) {
 *   console.log(String(error)); // → HoldfastError [BAD_FILE]: runs/that/never/were holds no run: the folder does not exist. Pass the folder of a run.
 * }
 * cpu.close();
 * ```
 */
export function openTrainedModel(device: Device, path: string): TrainedModel {
  return new TrainedModel(device, path);
}

/** A trained model. */
export class TrainedModel {
  readonly step: number;
  readonly #path: string;
  readonly #device: Device;
  readonly #model: CrossAsset;
  readonly #normaliser: Normaliser;

  constructor(device: Device, path: string) {
    const run = requireRun(path);
    const store = new CheckpointStore(join(path, runFiles.checkpoints));
    if (store.list().length === 0) {
      throw new HoldfastError(
        "BAD_FILE",
        `The run in ${path} has no checkpoint yet. It saves the first one after its first epoch or after five minutes. Try again then.`,
      );
    }
    const checkpoint = store.load("latest");
    requireCompatible(checkpoint, { model: modelName });
    this.#path = path;
    this.#device = device;
    this.step = checkpoint.step;
    const { qkNorm, width, layers } = run.settings;
    const sizes = definedSizes({ width, layers });
    this.#model = new CrossAsset({ qkNorm: qkNorm === true, ...sizes }).to(device);
    restoreWeights(checkpoint, this.#model);
    this.#normaliser = normaliserIn(checkpoint);
  }

  /** Calls `take` with the predictions for every `stride`-th bar with enough history, scale by scale, up to the latest bars. */
  predict(bars: Bars, take: (prediction: Prediction) => void, options: PredictOptions = {}): number {
    const samples = makeSamples(bars, { stride: options.stride ?? defaultStride, labelled: false });
    for (const { outputs: logits, firstRow: first } of this.#logits(samples, options)) {
      for (let index = 0; index < logits.length / classNames.length; index++) {
        const probabilities = softmax(logits, index * classNames.length);
        if (!probabilities.every(Number.isFinite)) throw this.#notFinite();
        const best = probabilities.indexOf(Math.max(...probabilities));
        take({
          time: samples.time[first + Math.floor(index / scales.length)] ?? Number.NaN,
          minutes: scales[index % scales.length] ?? 0,
          answer: classNames[best] ?? "flat",
          probabilities,
        });
      }
    }
    return samples.count;
  }

  /** Loss and accuracy, for all samples whose labels are known. */
  evaluate(bars: Bars, options: PredictOptions = {}): EvaluatedModel {
    const samples = makeSamples(bars, { stride: options.stride ?? defaultStride });
    const counter = new TestCounter(scales);
    for (const { outputs, firstRow } of this.#logits(samples, options))
      counter.addFrom(samples.labels, firstRow, outputs);
    const { overall, perScale } = counter;
    if (!Number.isFinite(overall.loss)) throw this.#notFinite();
    return { samples: samples.count, overall, perScale };
  }

  #notFinite(): HoldfastError {
    return new HoldfastError(
      "NOT_FINITE",
      `The model of step ${this.step} in ${this.#path} gives predictions that are not finite: its training diverged. Use the model of another run.`,
      { numbers: { step: this.step, path: this.#path } },
    );
  }

  #logits({ x }: Samples, { batch = 256 }: PredictOptions): ReturnType<typeof predictOnce> {
    const features = x.slice();
    applyNormaliser(this.#normaliser, features);
    return predictOnce(this.#device, this.#model, features, batch);
  }
}

function softmax(logits: ArrayLike<number>, first: number): number[] {
  const classLogits = classNames.map((_, index) => logits[first + index] ?? Number.NaN);
  const max = Math.max(...classLogits);
  const powers = classLogits.map((logit) => Math.exp(logit - max));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}
