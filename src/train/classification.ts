/** Figures of a classifier: loss, accuracy, confusion matrix, and the accuracy of always predicting the most frequent class. */

import { HoldfastError } from "../errors/index.js";

/** Rows with this label are ignored. */
const noLabel = -1;

/**
 * Accumulates the figures of predictions against labels, batch by batch, in float64.
 *
 * @example
 * ```ts
 * import { ClassificationFigures } from "holdfast";
 * const figures = new ClassificationFigures(2);
 * figures.add([2, 0, 0, 2, 3, 1], [0, 1, 1]);
 * console.log(figures.accuracy.toFixed(3), figures.majority.toFixed(3), figures.confusion); // → 0.667 0.667 [ [ 1, 0 ], [ 1, 1 ] ]
 * ```
 */
export class ClassificationFigures {
  readonly classes: number;
  /** By label, then by prediction. */
  readonly confusion: readonly number[][];
  #lossSum = 0;

  constructor(classes: number) {
    this.classes = classes;
    this.confusion = Array.from({ length: classes }, () => new Array<number>(classes).fill(0));
  }

  /**
   * Adds logits [rows, classes] and one label per row. Rows with label −1 are ignored.
   *
   * @example
   * ```ts
   * import { ClassificationFigures } from "holdfast";
   * const figures = new ClassificationFigures(2);
   * figures.add([2, 0, 0, 2], [0, -1]);
   * console.log(figures.count); // → 1
   * ```
   */
  add(logits: ArrayLike<number>, labels: ArrayLike<number>): void {
    const { classes } = this;
    if (logits.length !== labels.length * classes) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `There are ${logits.length} logits for ${labels.length} labels; ${classes} per label are needed.`,
      );
    }
    for (let row = 0; row < labels.length; row++) {
      const label = labels[row] ?? noLabel;
      if (label === noLabel) continue;
      this.#addRow(logits, row * classes, label);
    }
  }

  /**
   * Adds the counts of other figures.
   *
   * @example
   * ```ts
   * import { ClassificationFigures } from "holdfast";
   * const [all, part] = [new ClassificationFigures(2), new ClassificationFigures(2)];
   * part.add([2, 0], [0]);
   * all.join(part);
   * console.log(all.count, all.accuracy); // → 1 1
   * ```
   */
  join(other: ClassificationFigures): void {
    for (const [label, counts] of other.confusion.entries()) {
      const sums = this.confusion[label];
      if (sums) for (const [answer, count] of counts.entries()) sums[answer] = (sums[answer] ?? 0) + count;
    }
    this.#lossSum += other.#lossSum;
  }

  /**
   * The number of counted predictions.
   *
   * @example
   * ```ts
   * import { ClassificationFigures } from "holdfast";
   * const figures = new ClassificationFigures(2);
   * figures.add([2, 0, 0, 2], [0, 0]);
   * console.log(figures.count); // → 2
   * ```
   */
  get count(): number {
    return sum(this.confusion.flat());
  }

  /**
   * The mean cross-entropy.
   *
   * @example
   * ```ts
   * import { ClassificationFigures } from "holdfast";
   * const figures = new ClassificationFigures(2);
   * figures.add([0, 0], [1]);
   * console.log(figures.loss === Math.log(2)); // → true
   * ```
   */
  get loss(): number {
    return this.#lossSum / this.count;
  }

  /**
   * The share of correct predictions.
   *
   * @example
   * ```ts
   * import { ClassificationFigures } from "holdfast";
   * const figures = new ClassificationFigures(2);
   * figures.add([2, 0, 0, 2], [0, 0]);
   * console.log(figures.accuracy); // → 0.5
   * ```
   */
  get accuracy(): number {
    return sum(this.confusion.map((counts, label) => counts[label] ?? 0)) / this.count;
  }

  /**
   * The accuracy of always predicting the most frequent class.
   *
   * @example
   * ```ts
   * import { ClassificationFigures } from "holdfast";
   * const figures = new ClassificationFigures(2);
   * figures.add([2, 0, 0, 2, 0, 2, 0, 2], [0, 1, 1, 1]);
   * console.log(figures.majority); // → 0.75
   * ```
   */
  get majority(): number {
    return Math.max(...this.confusion.map(sum)) / this.count;
  }

  #addRow(logits: ArrayLike<number>, first: number, label: number): void {
    const counts = this.confusion[label];
    if (!counts) {
      throw new HoldfastError(
        "BAD_INDEX",
        `Label ${label} is out of range: classes are 0 to ${this.classes - 1}.`,
        {
          numbers: { label, classes: this.classes },
        },
      );
    }
    let [best, max] = [0, Number.NEGATIVE_INFINITY];
    for (let index = 0; index < this.classes; index++) {
      const logit = logits[first + index] ?? Number.NaN;
      if (logit > max) [best, max] = [index, logit];
    }
    let total = 0;
    for (let index = 0; index < this.classes; index++) total += Math.exp((logits[first + index] ?? 0) - max);
    this.#lossSum += Math.log(total) + max - (logits[first + label] ?? 0);
    counts[best] = (counts[best] ?? 0) + 1;
  }
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}
