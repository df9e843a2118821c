/** Data sets of samples: by index, or as a stream; and data sets made of others. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { permutation, type Seed } from "../kernels/index.js";
import { currentSeed } from "../tensor/index.js";
import type { SampleContext } from "./sample-context.js";

/**
 * A data set whose samples have an index. Derive from it, and load a sample in `get`, which may be asynchronous. An `AsyncDataLoader` makes
 * batches of it. A `TensorDataset` is one too.
 *
 * @example
 * ```ts
 * import { Dataset } from "holdfast";
 * class Squares extends Dataset<readonly [number, number]> {
 *   readonly length = 10;
 *   override get(index: number) {
 *     return [index, index ** 2] as const;
 *   }
 * }
 * console.log(new Squares().get(3)); // → [ 3, 9 ]
 * ```
 */
export abstract class Dataset<Sample> {
  /** The number of samples. */
  abstract readonly length: number;
  /**
   * The sample at an index from 0 to length − 1. An `AsyncDataLoader` passes its seed and epoch, for random changes of samples.
   *
   * @example
   * ```ts
   * import { TensorDataset } from "holdfast";
   * const [x] = new TensorDataset([[1, 2], [3, 4]]).get(1);
   * console.log(x.values); // → Float32Array(2) [ 3, 4 ]
   * ```
   */
  abstract get(index: number, context?: SampleContext): Sample | Promise<Sample>;
}

/**
 * A data set that is a stream of samples, such as lines of files that are too large for memory. Each loop over it starts anew.
 *
 * @example
 * ```ts
 * import { IterableDataset } from "holdfast";
 * class Countdown extends IterableDataset<number> {
 *   override *[Symbol.iterator]() {
 *     for (let number = 3; number > 0; number--) yield number;
 *   }
 * }
 * console.log([...new Countdown()]); // → [ 3, 2, 1 ]
 * ```
 */
export abstract class IterableDataset<Sample> {
  /** The samples; or implement `[Symbol.asyncIterator]`, which is preferred. */
  [Symbol.iterator](): Iterator<Sample> {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${this.constructor.name} has no samples: implement [Symbol.iterator] or [Symbol.asyncIterator].`,
    );
  }

  [Symbol.asyncIterator]?(): AsyncIterator<Sample>;
}

/**
 * Some samples of a data set, in the order of their indices.
 *
 * @example
 * ```ts
 * import { Subset, TensorDataset } from "holdfast";
 * const data = new TensorDataset(Float32Array.of(10, 20, 30));
 * const subset = new Subset(data, [2, 0]);
 * console.log(subset.length, subset.get(0)); // → 2 [ { values: Float32Array(1) [ 30 ], shape: [], dtype: 'f32' } ]
 * ```
 */
export class Subset<Sample> extends Dataset<Sample> {
  readonly dataset: Dataset<Sample>;
  readonly indices: readonly number[];

  constructor(dataset: Dataset<Sample>, indices: Iterable<number>) {
    super();
    this.dataset = dataset;
    this.indices = [...indices];
    for (const index of this.indices) requireIndex("Subset", index, dataset.length);
  }

  /**
   * The number of samples.
   *
   * @example
   * ```ts
   * import { Subset, TensorDataset } from "holdfast";
   * console.log(new Subset(new TensorDataset([[1], [2], [3]]), [1]).length); // → 1
   * ```
   */
  get length(): number {
    return this.indices.length;
  }

  /**
   * A sample of the data set, by its index in the subset.
   *
   * @example
   * ```ts
   * import { Subset, TensorDataset } from "holdfast";
   * const [sample] = await new Subset(new TensorDataset([[1], [2], [3]]), [1]).get(0);
   * console.log(sample?.values); // → Float32Array(1) [ 2 ]
   * ```
   */
  override get(index: number, context?: SampleContext): Sample | Promise<Sample> {
    requireIndex("Subset", index, this.length);
    return this.dataset.get(this.indices[index] ?? 0, context);
  }
}

/**
 * Data sets one after the other.
 *
 * @example
 * ```ts
 * import { ConcatDataset, TensorDataset } from "holdfast";
 * const all = new ConcatDataset([new TensorDataset([[1], [2]]), new TensorDataset([[3]])]);
 * console.log(all.length, (await all.get(2))[0]?.values); // → 3 Float32Array(1) [ 3 ]
 * ```
 */
export class ConcatDataset<Sample> extends Dataset<Sample> {
  readonly datasets: readonly Dataset<Sample>[];

  constructor(datasets: Iterable<Dataset<Sample>>) {
    super();
    this.datasets = [...datasets];
    if (this.datasets.length === 0)
      throw new HoldfastError("BAD_ARGUMENT", "ConcatDataset got no data sets. Pass at least one.");
  }

  /**
   * The number of samples of all data sets.
   *
   * @example
   * ```ts
   * import { ConcatDataset, TensorDataset } from "holdfast";
   * console.log(new ConcatDataset([new TensorDataset([[1], [2]]), new TensorDataset([[3]])]).length); // → 3
   * ```
   */
  get length(): number {
    return this.datasets.reduce((sum, { length }) => sum + length, 0);
  }

  /**
   * The sample at an index, counted over all data sets.
   *
   * @example
   * ```ts
   * import { ConcatDataset, TensorDataset } from "holdfast";
   * const all = new ConcatDataset([new TensorDataset([[1], [2]]), new TensorDataset([[3]])]);
   * console.log((await all.get(1))[0]?.values); // → Float32Array(1) [ 2 ]
   * ```
   */
  override get(index: number, context?: SampleContext): Sample | Promise<Sample> {
    requireIndex("ConcatDataset", index, this.length);
    let rest = index;
    for (const dataset of this.datasets) {
      if (rest < dataset.length) return dataset.get(rest, context);
      rest -= dataset.length;
    }
    throw new HoldfastError("BAD_INDEX", `ConcatDataset has no sample ${index}.`);
  }
}

/**
 * Streams one after the other.
 *
 * @example
 * ```ts
 * import { ChainDataset, IterableDataset } from "holdfast";
 * class Pair extends IterableDataset<number> {
 *   override *[Symbol.iterator]() {
 *     yield* [1, 2];
 *   }
 * }
 * const all: number[] = [];
 * for await (const number of new ChainDataset([new Pair(), new Pair()])) all.push(number);
 * console.log(all); // → [ 1, 2, 1, 2 ]
 * ```
 */
export class ChainDataset<Sample> extends IterableDataset<Sample> {
  readonly datasets: readonly IterableDataset<Sample>[];

  constructor(datasets: Iterable<IterableDataset<Sample>>) {
    super();
    this.datasets = [...datasets];
  }

  override async *[Symbol.asyncIterator](): AsyncGenerator<Sample> {
    for (const dataset of this.datasets) yield* samplesOf(dataset);
  }
}

/** A stream's samples, whichever iterator it has. */
export async function* samplesOf<Sample>(dataset: IterableDataset<Sample>): AsyncGenerator<Sample> {
  const asynchronous = dataset[Symbol.asyncIterator]?.();
  if (asynchronous) yield* { [Symbol.asyncIterator]: () => asynchronous };
  else yield* { [Symbol.iterator]: () => dataset[Symbol.iterator]() };
}

/** Options of `randomSplit`. */
export interface RandomSplitOptions {
  /** Determines the split. Default: the seed of `manualSeed`. */
  readonly seed?: Seed;
}

/**
 * Splits a data set into random parts that do not overlap. `lengths` are numbers of samples that add up to all, or shares that add up to 1.
 *
 * @example
 * ```ts
 * import { randomSplit, TensorDataset } from "holdfast";
 * const data = new TensorDataset(new Float32Array(10));
 * const [training, validation] = randomSplit(data, [0.8, 0.2], { seed: 1 });
 * console.log(training?.length, validation?.length); // → 8 2
 * ```
 */
export function randomSplit<Sample>(
  dataset: Dataset<Sample>,
  lengths: readonly number[],
  options: RandomSplitOptions = {},
): Subset<Sample>[] {
  const { seed = currentSeed() } = checkOptions("randomSplit", options, { seed: true });
  const sizes = splitSizes(dataset.length, lengths);
  const order = permutation({ seed, id: 0 }, dataset.length);
  let start = 0;
  return sizes.map((size) => {
    const indices = order.subarray(start, start + size);
    start += size;
    return new Subset(dataset, indices);
  });
}

/** Shares are rounded down; the first parts get the samples that remain. */
function splitSizes(total: number, lengths: readonly number[]): readonly number[] {
  const sum = lengths.reduce((a, b) => a + b, 0);
  const areValid = lengths.length > 0 && lengths.every((length) => Number.isFinite(length) && length >= 0);
  if (areValid && sum === total && lengths.every(Number.isInteger)) return lengths;
  if (areValid && Math.abs(sum - 1) < 1e-6) {
    const sizes = lengths.map((share) => Math.floor(share * total));
    const rest = total - sizes.reduce((a, b) => a + b, 0);
    return sizes.map((size, index) => size + (index < rest ? 1 : 0));
  }
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `randomSplit got the lengths [${lengths.join(", ")}] for ${total} samples. Pass numbers that add up to ${total}, or shares that add up to 1.`,
    { numbers: { sum, samples: total } },
  );
}

export function requireIndex(owner: string, index: number, length: number): void {
  if (Number.isSafeInteger(index) && index >= 0 && index < length) return;
  throw new HoldfastError(
    "BAD_INDEX",
    `${owner}: there is no sample ${index}; the ${length} samples are 0 to ${length - 1}.`,
    { numbers: { index, length } },
  );
}
