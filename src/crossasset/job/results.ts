/** The results of a CrossAsset job. */

import { ClassificationFigures, type EpochRecord } from "../../train/index.js";

/** The names of the classes, in the order of their labels. */
export const classNames = ["long", "short", "flat"] as const;

/** Loss, accuracy and confusion matrix of predictions, as plain numbers. */
export interface PredictionFigures {
  readonly loss: number;
  readonly accuracy: number;
  /** The accuracy of always predicting the most frequent class. */
  readonly majority: number;
  /** By label, then by prediction. */
  readonly confusion: readonly (readonly number[])[];
}

/** The figures of one fold's test. */
export interface FoldResult {
  readonly fold: number;
  readonly trainSamples: number;
  readonly testSamples: number;
  readonly epochs: readonly EpochRecord[];
  readonly test: PredictionFigures;
  /** For each scale, in minutes. */
  readonly perScale: readonly (PredictionFigures & { readonly minutes: number })[];
}

/** The figures of all folds. */
export interface JobResults {
  readonly folds: readonly FoldResult[];
  /** The means over the folds: of the accuracy, and of the most frequent class's accuracy. */
  readonly wf_mean: number;
  readonly majority_mean: number;
}

export function figuresOf({ loss, accuracy, majority, confusion }: ClassificationFigures): PredictionFigures {
  return { loss, accuracy, majority, confusion: confusion.map((counts) => [...counts]) };
}

export function resultsOf(folds: readonly FoldResult[]): JobResults {
  const mean = (pick: (fold: FoldResult) => number): number =>
    folds.reduce((sum, fold) => sum + pick(fold), 0) / folds.length;
  return {
    folds,
    wf_mean: mean(({ test }) => test.accuracy),
    majority_mean: mean(({ test }) => test.majority),
  };
}

/** Counts the predictions of a test: overall, and per scale. */
export class TestCounter {
  readonly #scales: readonly number[];
  readonly #figuresByScale: readonly ClassificationFigures[];

  constructor(scales: readonly number[]) {
    this.#scales = scales;
    this.#figuresByScale = scales.map(() => new ClassificationFigures(classNames.length));
  }

  /** Logits [rows, scales, classes], and labels [rows, scales]. */
  add(logits: ArrayLike<number>, labels: ArrayLike<number>): void {
    const [scales, classes] = [this.#scales.length, classNames.length];
    const rowLogits = new Array<number>(classes);
    for (let index = 0; index < labels.length; index++) {
      for (let classIndex = 0; classIndex < classes; classIndex++)
        rowLogits[classIndex] = logits[index * classes + classIndex] ?? Number.NaN;
      this.#figuresByScale[index % scales]?.add(rowLogits, [labels[index] ?? -1]);
    }
  }

  /** Logits of consecutive samples from `first`, and the labels of all samples. */
  addFrom(labels: Int32Array, first: number, logits: ArrayLike<number>): void {
    const from = first * this.#scales.length;
    this.add(logits, labels.subarray(from, from + logits.length / classNames.length));
  }

  get overall(): PredictionFigures {
    const all = new ClassificationFigures(classNames.length);
    for (const figures of this.#figuresByScale) all.join(figures);
    return figuresOf(all);
  }

  get perScale(): FoldResult["perScale"] {
    return this.#figuresByScale.map((figures, index) => ({
      minutes: this.#scales[index] ?? 0,
      ...figuresOf(figures),
    }));
  }
}
