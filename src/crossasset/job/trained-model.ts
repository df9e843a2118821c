/** A model that a run has trained, asked about bars: its answers for each time and scale, and how good they are. */

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
import { askModel } from "./ask-model.js";
import { modelName, normaliserIn } from "./job-run.js";
import { type AnswerFigures, classNames, type FoldResult, TestCounter } from "./results.js";

/** What the model says of one time and scale. */
export interface Answer {
  /** Milliseconds since 1970 of the bar at which it was asked. */
  readonly time: number;
  /** The scale: how far ahead the answer looks. */
  readonly minutes: number;
  readonly answer: (typeof classNames)[number];
  /** Of long, short and flat; together 1. */
  readonly probabilities: readonly number[];
}

/** Options for asking a trained model. */
export interface AskOptions {
  /** Bars from one question to the next; 60 unless given. */
  readonly stride?: number;
  /** Samples in a batch; 256 unless given. */
  readonly batch?: number;
}

/** The figures of a trained model on other bars. */
export interface EvaluatedModel {
  readonly samples: number;
  readonly overall: AnswerFigures;
  readonly perScale: FoldResult["perScale"];
}

/**
 * Opens the model of a run's latest checkpoint, with the figures that its features are normalised by.
 *
 * @example
 * ```ts
 * import { crossasset, device } from "holdfast";
 * const cpu = await device("cpu");
 * try {
 *   crossasset.openTrainedModel(cpu, "runs/that/never/were");
 * } catch (error) {
 *   console.log(String(error)); // → HoldfastError [BAD_FILE]: runs/that/never/were holds no run: there is no such folder. Give the folder of a run.
 * }
 * cpu.close();
 * ```
 */
export function openTrainedModel(device: Device, path: string): TrainedModel {
  return new TrainedModel(device, path);
}

/** A model, ready to be asked. */
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
    this.#model = new CrossAsset({ qkNorm: run.settings["qkNorm"] === true }).to(device);
    restoreWeights(checkpoint, this.#model);
    this.#normaliser = normaliserIn(checkpoint);
  }

  /** Calls `take` with the answers for every `stride`-th bar that has its history, scale by scale; also for the latest ones. */
  predict(bars: Bars, take: (answer: Answer) => void, options: AskOptions = {}): number {
    const samples = makeSamples(bars, { stride: options.stride ?? defaultStride, labelled: false });
    for (const { outputs: logits, firstRow: first } of this.#ask(samples, options)) {
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

  /** How good its answers are, wherever the bars tell what was right. */
  evaluate(bars: Bars, options: AskOptions = {}): EvaluatedModel {
    const samples = makeSamples(bars, { stride: options.stride ?? defaultStride });
    const counter = new TestCounter(scales);
    for (const { outputs, firstRow } of this.#ask(samples, options))
      counter.addFrom(samples.labels, firstRow, outputs);
    const { overall, perScale } = counter;
    if (!Number.isFinite(overall.loss)) throw this.#notFinite();
    return { samples: samples.count, overall, perScale };
  }

  #notFinite(): HoldfastError {
    return new HoldfastError(
      "NOT_FINITE",
      `The model of step ${this.step} in ${this.#path} gives answers that are not finite: its training has diverged. Use the model of another run.`,
      { numbers: { step: this.step, path: this.#path } },
    );
  }

  #ask({ x }: Samples, { batch = 256 }: AskOptions): ReturnType<typeof askModel> {
    const features = x.slice();
    applyNormaliser(this.#normaliser, features);
    return askModel(this.#device, this.#model, features, batch);
  }
}

function softmax(logits: ArrayLike<number>, first: number): number[] {
  const own = classNames.map((_, index) => logits[first + index] ?? Number.NaN);
  const most = Math.max(...own);
  const powers = own.map((logit) => Math.exp(logit - most));
  const sum = powers.reduce((total, power) => total + power, 0);
  return powers.map((power) => power / sum);
}
