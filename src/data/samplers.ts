/** Samplers: the order in which samples are drawn. It depends only on the seed and on the epoch, so that training can be resumed. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { orderNumbers, permutation, type Seed } from "../kernels/index.js";
import { currentSeed } from "../tensor/index.js";

/**
 * The base of samplers. Derive from it for an order of your own.
 *
 * @example
 * ```ts
 * import { Sampler } from "holdfast";
 * class Backwards extends Sampler {
 *   readonly length = 3;
 *   override indices() {
 *     return [2, 1, 0];
 *   }
 * }
 * console.log([...new Backwards()]); // → [ 2, 1, 0 ]
 * ```
 */
export abstract class Sampler implements Iterable<number> {
  /** Indices per epoch. */
  abstract readonly length: number;
  /**
   * The indices of an epoch: the same ones for the same epoch.
   *
   * @example
   * ```ts
   * import { RandomSampler } from "holdfast";
   * const sampler = new RandomSampler(9, { seed: 2 });
   * console.log(String(sampler.indices(3)) === String(sampler.indices(3))); // → true
   * ```
   */
  abstract indices(epoch: number): ArrayLike<number>;

  /** The indices of epoch 0. */
  [Symbol.iterator](): Iterator<number> {
    return Array.from(this.indices(0))[Symbol.iterator]();
  }
}

/** The number of samples, or something that has it. */
export type SampleCount = number | { readonly length: number };

/**
 * All samples in their order.
 *
 * @example
 * ```ts
 * import { SequentialSampler } from "holdfast";
 * console.log([...new SequentialSampler(3)]); // → [ 0, 1, 2 ]
 * ```
 */
export class SequentialSampler extends Sampler {
  readonly length: number;

  constructor(samples: SampleCount) {
    super();
    this.length = countOf("SequentialSampler", samples);
  }

  /**
   * The same indices in every epoch.
   *
   * @example
   * ```ts
   * import { SequentialSampler } from "holdfast";
   * console.log(new SequentialSampler(3).indices()); // → Uint32Array(3) [ 0, 1, 2 ]
   * ```
   */
  override indices(): Uint32Array {
    return Uint32Array.from({ length: this.length }, (_, index) => index);
  }
}

/** Options of a `RandomSampler`. */
export interface RandomSamplerOptions {
  /** Draw with replacement: an epoch may have an index several times. Default: false. */
  readonly replacement?: boolean;
  /** Indices per epoch. Default: as many as there are samples. */
  readonly numSamples?: number;
  /** Determines the orders. Default: the seed of `manualSeed`. */
  readonly seed?: Seed;
}

/**
 * All samples in a new random order in each epoch, or samples drawn with replacement.
 *
 * @example
 * ```ts
 * import { RandomSampler } from "holdfast";
 * const sampler = new RandomSampler(100, { seed: 1 });
 * console.log(new Set(sampler.indices(0)).size, String(sampler.indices(0)) === String(sampler.indices(1))); // → 100 false
 * ```
 */
export class RandomSampler extends Sampler {
  readonly length: number;
  readonly #samples: number;
  readonly #replacement: boolean;
  readonly #seed: Seed;

  constructor(samples: SampleCount, options: RandomSamplerOptions = {}) {
    const {
      replacement = false,
      numSamples,
      seed = currentSeed(),
    } = checkOptions("RandomSampler", options, { replacement: true, numSamples: true, seed: true });
    super();
    this.#samples = countOf("RandomSampler", samples);
    this.#replacement = replacement;
    this.#seed = seed;
    this.length = numSamples === undefined ? this.#samples : countOf("RandomSampler", numSamples);
  }

  /**
   * The indices of an epoch. If there are more indices than samples, without replacement, they are several random orders in a row.
   *
   * @example
   * ```ts
   * import { RandomSampler } from "holdfast";
   * const indices = new RandomSampler(3, { numSamples: 6, seed: 1 }).indices(0);
   * console.log([...indices].sort()); // → [ 0, 0, 1, 1, 2, 2 ]
   * ```
   */
  override indices(epoch: number): Uint32Array {
    const stream = { seed: this.#seed, id: epoch };
    const samples = this.#samples;
    if (this.#replacement) {
      const next = orderNumbers(stream);
      return Uint32Array.from({ length: this.length }, () => (samples === 1 ? 0 : next(samples)));
    }
    if (this.length <= samples) return permutation(stream, samples).subarray(0, this.length);
    const rounds = Math.ceil(this.length / samples);
    const indices = new Uint32Array(rounds * samples);
    for (let round = 0; round < rounds; round++)
      indices.set(permutation({ ...stream, id: epoch * rounds + round }, samples), round * samples);
    return indices.subarray(0, this.length);
  }
}

/**
 * Some samples in random order.
 *
 * @example
 * ```ts
 * import { SubsetRandomSampler } from "holdfast";
 * console.log([...new SubsetRandomSampler([5, 7, 9], { seed: 3 })].sort()); // → [ 5, 7, 9 ]
 * ```
 */
export class SubsetRandomSampler extends Sampler {
  readonly #subset: Uint32Array;
  readonly #seed: Seed;

  constructor(indices: Iterable<number>, options: { readonly seed?: Seed } = {}) {
    const { seed = currentSeed() } = checkOptions("SubsetRandomSampler", options, { seed: true });
    super();
    this.#subset = Uint32Array.from(indices);
    this.#seed = seed;
  }

  /**
   * The number of samples in the subset.
   *
   * @example
   * ```ts
   * import { SubsetRandomSampler } from "holdfast";
   * console.log(new SubsetRandomSampler([5, 7, 9]).length); // → 3
   * ```
   */
  get length(): number {
    return this.#subset.length;
  }

  /**
   * The subset's indices in the order of an epoch.
   *
   * @example
   * ```ts
   * import { SubsetRandomSampler } from "holdfast";
   * const sampler = new SubsetRandomSampler([5, 7, 9], { seed: 3 });
   * console.log([...sampler.indices(4)].sort()); // → [ 5, 7, 9 ]
   * ```
   */
  override indices(epoch: number): Uint32Array {
    return permutation({ seed: this.#seed, id: epoch }, this.length).map((index) => this.#subset[index] ?? 0);
  }
}

/** Options of a `WeightedRandomSampler`. */
export interface WeightedSamplerOptions {
  /** Draw with replacement: an epoch may have an index several times. Default: true. */
  readonly replacement?: boolean;
  readonly seed?: Seed;
}

/**
 * Samples drawn with probabilities in proportion to their weights, for example to balance classes.
 *
 * @example
 * ```ts
 * import { WeightedRandomSampler } from "holdfast";
 * const sampler = new WeightedRandomSampler([0, 1, 3], 1000, { seed: 1 });
 * const counts = [0, 0, 0];
 * for (const index of sampler) counts[index] = (counts[index] ?? 0) + 1;
 * console.log(counts[0], (counts[2] ?? 0) > 700); // → 0 true
 * ```
 */
export class WeightedRandomSampler extends Sampler {
  readonly length: number;
  readonly #weights: Float64Array;
  readonly #replacement: boolean;
  readonly #seed: Seed;

  constructor(weights: Iterable<number>, numSamples: number, options: WeightedSamplerOptions = {}) {
    const { replacement = true, seed = currentSeed() } = checkOptions("WeightedRandomSampler", options, {
      replacement: true,
      seed: true,
    });
    super();
    this.#weights = Float64Array.from(weights);
    this.#replacement = replacement;
    this.#seed = seed;
    this.length = countOf("WeightedRandomSampler", numSamples);
    const invalid = this.#weights.findIndex((weight) => !(weight >= 0 && weight < Infinity));
    if (invalid >= 0) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `WeightedRandomSampler: weight ${invalid} is ${this.#weights[invalid]}; it must be a number of at least 0.`,
      );
    }
    const positive = this.#weights.filter((weight) => weight > 0).length;
    if (positive === 0 || (!replacement && this.length > positive)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `WeightedRandomSampler: ${positive} weights are above 0, but ${this.length} samples are to be drawn ${replacement ? "with" : "without"} replacement. ` +
          "Draw fewer samples, or draw with replacement.",
        { numbers: { positive, numSamples: this.length } },
      );
    }
  }

  /**
   * The indices of an epoch.
   *
   * @example
   * ```ts
   * import { WeightedRandomSampler } from "holdfast";
   * const sampler = new WeightedRandomSampler([1, 5, 1], 3, { replacement: false, seed: 1 });
   * console.log([...sampler.indices(7)].sort()); // → [ 0, 1, 2 ]
   * ```
   */
  override indices(epoch: number): Uint32Array {
    const next = orderNumbers({ seed: this.#seed, id: epoch });
    // 53 random bits, above 0.
    const draw = (): number => (next(2 ** 27) * 2 ** 26 + next(2 ** 26) + 1) / 2 ** 53;
    return this.#replacement ? this.#withReplacement(draw) : this.#withoutReplacement(draw);
  }

  #withReplacement(draw: () => number): Uint32Array {
    let sum = 0;
    const sums = this.#weights.map((weight) => {
      sum += weight;
      return sum;
    });
    return Uint32Array.from({ length: this.length }, () => firstAtLeast(sums, draw() * sum));
  }

  /** The smallest of exponential waiting times, whose rates are the weights. */
  #withoutReplacement(draw: () => number): Uint32Array {
    const times = this.#weights.map((weight) => {
      const time = -Math.log(draw());
      return weight > 0 ? time / weight : Infinity;
    });
    const order = Array.from(times.keys()).sort((a, b) => (times[a] ?? 0) - (times[b] ?? 0) || a - b);
    return Uint32Array.from(order.slice(0, this.length));
  }
}

/** The first index whose sum is at least a number; sums ascend. An index without weight is never the first. */
function firstAtLeast(sums: Float64Array, number: number): number {
  let [low, high] = [0, sums.length - 1];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((sums[middle] ?? 0) >= number) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Options of a `BatchSampler`. */
export interface BatchSamplerOptions {
  readonly batchSize: number;
  /** Leave out a last batch that is smaller than the others. Default: false. */
  readonly dropLast?: boolean;
}

/**
 * Batches of a sampler's indices. Derive from it to form batches by other rules, such as equal lengths.
 *
 * @example
 * ```ts
 * import { BatchSampler, SequentialSampler } from "holdfast";
 * const batches = new BatchSampler(new SequentialSampler(5), { batchSize: 2 });
 * console.log([...batches], batches.length); // → [ [ 0, 1 ], [ 2, 3 ], [ 4 ] ] 3
 * ```
 */
export class BatchSampler implements Iterable<readonly number[]> {
  readonly #sampler: Sampler;
  readonly #batchSize: number;
  readonly #dropLast: boolean;

  constructor(sampler: Sampler, options: BatchSamplerOptions) {
    const { batchSize, dropLast = false } = checkOptions("BatchSampler", options, {
      batchSize: true,
      dropLast: true,
    });
    this.#sampler = sampler;
    this.#batchSize = countOf("BatchSampler", batchSize);
    this.#dropLast = dropLast;
  }

  /**
   * Batches per epoch.
   *
   * @example
   * ```ts
   * import { BatchSampler, SequentialSampler } from "holdfast";
   * console.log(new BatchSampler(new SequentialSampler(5), { batchSize: 2, dropLast: true }).length); // → 2
   * ```
   */
  get length(): number {
    const batches = this.#sampler.length / this.#batchSize;
    return this.#dropLast ? Math.floor(batches) : Math.ceil(batches);
  }

  /**
   * The batches of an epoch.
   *
   * @example
   * ```ts
   * import { BatchSampler, RandomSampler } from "holdfast";
   * const batches = new BatchSampler(new RandomSampler(5, { seed: 1 }), { batchSize: 2 }).batches(3);
   * console.log(batches.map(({ length }) => length)); // → [ 2, 2, 1 ]
   * ```
   */
  batches(epoch: number): readonly (readonly number[])[] {
    const indices = Array.from(this.#sampler.indices(epoch));
    return Array.from({ length: this.length }, (_, batch) =>
      indices.slice(batch * this.#batchSize, (batch + 1) * this.#batchSize),
    );
  }

  /** The batches of epoch 0. */
  [Symbol.iterator](): Iterator<readonly number[]> {
    return this.batches(0)[Symbol.iterator]();
  }
}

function countOf(owner: string, samples: SampleCount): number {
  const count = typeof samples === "number" ? samples : samples.length;
  if (Number.isSafeInteger(count) && count >= 1) return count;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner} got ${count} as a number of samples; it must be a whole number of at least 1.`,
    { numbers: { count } },
  );
}
