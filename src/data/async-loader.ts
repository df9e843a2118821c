/**
 * Batches of any data set: samples are loaded before they are needed, on this thread or on worker threads, and collated to tensors. The order
 * depends only on the seed and the epoch, so a loader continues from a saved state with the same batches.
 */

import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Seed } from "../kernels/index.js";
import { currentSeed, type Device, deviceFor, Tensor } from "../tensor/index.js";
import { type Collated, defaultCollate } from "./collate.js";
import { type Dataset, IterableDataset, samplesOf } from "./map-dataset.js";
import { SampleWorkers } from "./sample-workers.js";
import { BatchSampler, RandomSampler, type Sampler, SequentialSampler } from "./samplers.js";
import { originOf, type WorkerSource } from "./worker-source.js";

/** Options of an `AsyncDataLoader`. */
export interface AsyncDataLoaderOptions<Sample, Batch = Collated<Sample>> {
  /** Samples per batch. Default: 1. */
  readonly batchSize?: number;
  /** Use a new random order in every epoch. Default: false. */
  readonly shuffle?: boolean;
  /** The order of the samples, instead of `shuffle`. */
  readonly sampler?: Sampler;
  /** The samples of each batch, instead of `batchSize`, `shuffle`, `sampler` and `dropLast`. */
  readonly batchSampler?: BatchSampler;
  /** Makes a batch of samples. Default: `defaultCollate`. */
  readonly collate?: (samples: readonly Sample[], options: { readonly device: Device }) => Batch;
  /** Leave out a last batch that is smaller than the others. Default: false. */
  readonly dropLast?: boolean;
  /** The seed of the orders. Default: the global seed. */
  readonly seed?: Seed;
  /** Default: the first device that was opened. */
  readonly device?: Device;
  /** The number of worker threads that load samples; they need `workerSource`. Default: 0, which loads on the calling thread. */
  readonly numWorkers?: number;
  /** The module that makes the same data set on each worker thread. */
  readonly workerSource?: WorkerSource;
  /** Batches whose samples are loaded before they are needed. Default: 2. */
  readonly prefetch?: number;
  /**
   * Make the next batch when one is drawn, if its samples are loaded, and upload it beside the work on the drawn one. It takes the memory of one
   * more batch. Default: false.
   */
  readonly uploadAhead?: boolean;
}

/** A loader's position and the seed of its orders; plain data, for JSON. */
export interface AsyncLoaderState {
  /** The next epoch, counted from 0, and its next batch. */
  readonly epoch: number;
  readonly batch: number;
  /** Absent for streams. */
  readonly samples?: number;
  readonly batches?: number;
  readonly seed: string;
}

/**
 * Iterates over a data set in batches, epoch by epoch, by `for await`. A batch's tensors are valid until the next batch is drawn; `clone()`
 * them to keep them. A `TensorDataset` is faster with a `DataLoader`, which keeps it on the device.
 *
 * @example
 * ```ts
 * import { AsyncDataLoader, Dataset, device } from "holdfast";
 * class Squares extends Dataset<readonly [x: Float32Array, y: number]> {
 *   readonly length = 5;
 *   override async get(index: number) {
 *     return [Float32Array.of(index, -index), index ** 2] as const;
 *   }
 * }
 * const cpu = await device("cpu");
 * for await (const [x, y] of new AsyncDataLoader(new Squares(), { batchSize: 2 })) console.log(x.shape, y.tolist());
 * // → [ 2, 2 ] [ 0, 1 ]
 * // → [ 2, 2 ] [ 4, 9 ]
 * // → [ 1, 2 ] [ 16 ]
 * cpu.close();
 * ```
 */
export class AsyncDataLoader<Sample, Batch = Collated<Sample>> implements AsyncIterable<Batch> {
  readonly dataset: Dataset<Sample> | IterableDataset<Sample>;
  readonly device: Device;
  readonly #batchSampler: BatchSampler | undefined;
  readonly #batchSize: number;
  readonly #dropLast: boolean;
  readonly #collate: (samples: readonly Sample[], options: { readonly device: Device }) => Batch;
  readonly #prefetch: number;
  readonly #uploadsAhead: boolean;
  readonly #workers: SampleWorkers | undefined;
  readonly #samplers: (seed: Seed) => BatchSampler | undefined;
  #seed: Seed;
  #position = { epoch: 0, batch: 0 };
  #live: readonly Tensor[] = [];
  /** The next batch, if it is made. */
  #ahead: Made<Batch> | undefined;
  #pass = 0;

  constructor(
    dataset: Dataset<Sample> | IterableDataset<Sample>,
    options: AsyncDataLoaderOptions<Sample, Batch> = {},
  ) {
    checkOptions("AsyncDataLoader", options, {
      batchSize: true,
      shuffle: true,
      sampler: true,
      batchSampler: true,
      collate: true,
      dropLast: true,
      seed: true,
      device: true,
      numWorkers: true,
      workerSource: true,
      prefetch: true,
      uploadAhead: true,
    });
    const { batchSize = 1, dropLast = false, numWorkers = 0, prefetch = 2, seed = currentSeed() } = options;
    const { uploadAhead = false } = options;
    requireWhole("batchSize", batchSize, 1);
    requireWhole("numWorkers", numWorkers, 0);
    requireWhole("prefetch", prefetch, 0);
    requireFitting(dataset, options);
    this.dataset = dataset;
    this.device = deviceFor(options.device);
    this.#batchSize = batchSize;
    this.#dropLast = dropLast;
    this.#prefetch = uploadAhead ? Math.max(1, prefetch) : prefetch;
    this.#uploadsAhead = uploadAhead;
    this.#seed = seed;
    this.#collate =
      options.collate ?? ((samples, { device }) => defaultCollate(samples, { device }) as unknown as Batch);
    this.#samplers = (of) => makeSampler(dataset, { ...options, seed: of });
    this.#batchSampler = this.#samplers(seed);
    this.#workers =
      numWorkers > 0 ? new SampleWorkers(originOf(options.workerSource), numWorkers) : undefined;
  }

  /**
   * Batches per epoch; undefined for a stream.
   *
   * @example
   * ```ts
   * import { AsyncDataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(new AsyncDataLoader(new TensorDataset([[1], [2], [3]]), { batchSize: 2 }).length); // → 2
   * cpu.close();
   * ```
   */
  get length(): number | undefined {
    return this.#batchSampler?.length;
  }

  /**
   * The next epoch, counted from 0, and its next batch. A batch counts as done once it is drawn.
   *
   * @example
   * ```ts
   * import { AsyncDataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const batches = new AsyncDataLoader(new TensorDataset([[1], [2], [3]]), { batchSize: 2 });
   * for await (const _ of batches) break;
   * console.log(batches.position); // → { epoch: 0, batch: 1 }
   * cpu.close();
   * ```
   */
  get position(): { readonly epoch: number; readonly batch: number } {
    return this.#position;
  }

  /**
   * The loader's state for a checkpoint: its position and the seed of its orders.
   *
   * @example
   * ```ts
   * import { AsyncDataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const batches = new AsyncDataLoader(new TensorDataset([[1], [2], [3]]), { seed: 5 });
   * console.log(JSON.stringify(batches.stateDict())); // → {"epoch":0,"batch":0,"samples":3,"batches":3,"seed":"5"}
   * cpu.close();
   * ```
   */
  stateDict(): AsyncLoaderState {
    const { dataset, length } = this;
    const sizes = dataset instanceof IterableDataset ? {} : { samples: dataset.length };
    const batches = length === undefined ? {} : { batches: length };
    return { ...this.#position, ...sizes, ...batches, seed: String(this.#seed) };
  }

  /**
   * Continues from a state: the next loop covers the rest of its epoch. A stream is read again from its start up to that batch.
   *
   * @example
   * ```ts
   * import { AsyncDataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset([[1], [2], [3]]);
   * const [first, second] = [new AsyncDataLoader(data), new AsyncDataLoader(data)];
   * for await (const [x] of first) if (x?.item() === 2) break;
   * second.loadStateDict(first.stateDict());
   * for await (const [x] of second) console.log(x?.item()); // → 3
   * cpu.close();
   * ```
   */
  loadStateDict(state: AsyncLoaderState): void {
    const { samples, batches } = this.stateDict();
    const { epoch, batch, seed } = state;
    const isPosition = [epoch, batch].every((count) => Number.isSafeInteger(count) && count >= 0);
    if (!isPosition || !/^\d{1,20}$/.test(seed) || state.samples !== samples || state.batches !== batches) {
      throw new HoldfastError(
        "BAD_STATE",
        `The state does not fit the loader: it has ${state.samples ?? "no number of"} samples in ${state.batches ?? "unknown"} batches, epoch ${epoch}, batch ${batch}; ` +
          `the loader has ${samples ?? "no number of"} samples in ${batches ?? "unknown"} batches. Create the loader with the options it had.`,
      );
    }
    this.#seed = BigInt(seed);
    this.#position = { epoch, batch };
    this.#pass += 1;
  }

  /** Iterates over the next epoch; after a break, or after loading a state inside an epoch, over the rest of it. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Batch, void, undefined> {
    this.device.requireOpen();
    const pass = ++this.#pass;
    const { epoch, batch: firstBatch } = this.#position;
    const pending: Load<Sample>[] = [];
    const loads = this.#loads(epoch, firstBatch);
    const startLoads = (): void => {
      while (pending.length <= this.#prefetch) pending.push(startLoad(loads));
    };
    try {
      for (let batch = firstBatch; ; batch++) {
        startLoads();
        const samples = await pending.shift()?.samples;
        if (pass !== this.#pass) throw concurrentPass();
        if (!samples) break;
        const drawn = this.#take(samples);
        this.#position = { epoch, batch: batch + 1 };
        if (this.#uploadsAhead) {
          startLoads();
          this.#makeAhead(pending[0]?.loaded);
        }
        yield drawn;
        if (pass !== this.#pass) throw concurrentPass();
      }
      this.#position = { epoch: epoch + 1, batch: 0 };
    } finally {
      loads.close?.();
      if (pass === this.#pass) this.#release();
    }
  }

  /**
   * Ends the worker threads, and frees the tensors of the last batch. Without worker threads it is not needed.
   *
   * @example
   * ```ts
   * import { AsyncDataLoader, device } from "holdfast";
   * const cpu = await device("cpu");
   * // A file, such as new URL("./cubes.js", import.meta.url); here its text.
   * const text = "export default (length) => ({ length, get: (index) => index ** 3 });";
   * const module = new URL(`data:text/javascript,${encodeURIComponent(text)}`);
   * const cubes = { length: 4, get: (index: number) => index ** 3 };
   * const loader = new AsyncDataLoader(cubes, { batchSize: 4, numWorkers: 1, workerSource: { module, argument: 4 } });
   * for await (const batch of loader) console.log(batch.tolist()); // → [ 0, 1, 8, 27 ]
   * await loader.close();
   * cpu.close();
   * ```
   */
  async close(): Promise<void> {
    this.#pass += 1;
    this.#release();
    await this.#workers?.close();
  }

  /** The samples of each batch, loading at once: a call of `next()` starts a load without waiting for the one before. */
  #loads(epoch: number, firstBatch: number): LoadQueue<Sample> {
    const { dataset } = this;
    if (dataset instanceof IterableDataset)
      return streamLoads(dataset, this.#batchSize, this.#dropLast, firstBatch);
    const batches = this.#samplers(this.#seed)?.batches(epoch) ?? [];
    let batch = firstBatch;
    const context = { seed: this.#seed, epoch };
    const load = async (indices: readonly number[]): Promise<readonly Sample[]> =>
      this.#workers
        ? ((await this.#workers.load(indices, context)) as readonly Sample[])
        : Promise.all(indices.map((index) => dataset.get(index, context)));
    return {
      async next() {
        const indices = batches[batch++];
        return indices ? { value: { samples: await load(indices) } } : {};
      },
    };
  }

  /** The next batch. The one before is freed. */
  #take(samples: readonly Sample[]): Batch {
    const ahead = this.#ahead;
    this.#ahead = undefined;
    this.#release();
    if (ahead) this.device.runtime.awaitUploads();
    const { batch, tensors } = ahead ?? this.#make(samples);
    this.#live = tensors;
    return batch();
  }

  /** Makes the next batch, if its samples are loaded. An error is thrown when the batch is due. */
  #makeAhead(samples: readonly Sample[] | undefined): void {
    if (!samples) return;
    try {
      this.#ahead = this.device.runtime.uploadBeside(() => this.#make(samples));
    } catch (error) {
      const batch = (): never => {
        throw error;
      };
      this.#ahead = { batch, tensors: [] };
    }
  }

  #make(samples: readonly Sample[]): Made<Batch> {
    const own = new Set(tensorsIn(samples));
    const batch = this.#collate(samples, { device: this.device });
    return { batch: () => batch, tensors: tensorsIn(batch).filter((tensor) => !own.has(tensor)) };
  }

  /** Frees the tensors of the last batch, and of the next one; the user may have done so already. */
  #release(): void {
    const { device } = this;
    if (this.#ahead && device.isOpen) device.runtime.awaitUploads();
    const tensors = [...this.#live, ...(this.#ahead?.tensors ?? [])];
    if (device.isOpen) for (const tensor of tensors) tensor.release();
    this.#live = [];
    this.#ahead = undefined;
  }
}

interface Made<Batch> {
  /** The batch, or the error of making it. */
  readonly batch: () => Batch;
  /** Those of the batch that the samples do not have. */
  readonly tensors: readonly Tensor[];
}

interface Load<Sample> {
  /** Undefined after the last batch. */
  readonly samples: Promise<readonly Sample[] | undefined>;
  /** Set once they are loaded. */
  loaded: readonly Sample[] | undefined;
}

function startLoad<Sample>(loads: LoadQueue<Sample>): Load<Sample> {
  const load: Load<Sample> = {
    samples: loads.next().then(({ value }) => {
      load.loaded = value?.samples;
      return value?.samples;
    }),
    loaded: undefined,
  };
  // Failures are reported when the batch is due.
  load.samples.catch(() => undefined);
  return load;
}

interface LoadQueue<Sample> {
  /** Ends the loads, for example to close a file. */
  close?(): void;
  next(): Promise<{ readonly value?: { readonly samples: readonly Sample[] } }>;
}

/** A stream has one reader: loads wait for each other. */
function streamLoads<Sample>(
  dataset: IterableDataset<Sample>,
  batchSize: number,
  dropLast: boolean,
  firstBatch: number,
): LoadQueue<Sample> {
  async function* read(): AsyncGenerator<{ readonly samples: readonly Sample[] }, undefined> {
    let samples: Sample[] = [];
    let batch = 0;
    for await (const sample of samplesOf(dataset)) {
      samples.push(sample);
      if (samples.length < batchSize) continue;
      if (batch++ >= firstBatch) yield { samples };
      samples = [];
    }
    if (samples.length > 0 && !dropLast && batch >= firstBatch) yield { samples };
    return undefined;
  }
  const reader = read();
  return {
    close: () => void reader.return(undefined).catch(() => undefined),
    async next() {
      const { value } = await reader.next();
      return value ? { value } : {};
    },
  };
}

function makeSampler<Sample, Batch>(
  dataset: Dataset<Sample> | IterableDataset<Sample>,
  options: AsyncDataLoaderOptions<Sample, Batch> & { readonly seed: Seed },
): BatchSampler | undefined {
  if (dataset instanceof IterableDataset) return undefined;
  const { batchSampler, batchSize = 1, dropLast = false, shuffle = false, seed } = options;
  if (batchSampler) return batchSampler;
  const sampler =
    options.sampler ?? (shuffle ? new RandomSampler(dataset, { seed }) : new SequentialSampler(dataset));
  return new BatchSampler(sampler, { batchSize, dropLast });
}

function requireFitting<Sample, Batch>(
  dataset: Dataset<Sample> | IterableDataset<Sample>,
  {
    sampler,
    batchSampler,
    shuffle,
    batchSize,
    dropLast,
    numWorkers = 0,
  }: AsyncDataLoaderOptions<Sample, Batch>,
): void {
  const reject = (what: string, advice: string): never => {
    throw new HoldfastError("BAD_ARGUMENT", `AsyncDataLoader: ${what}. ${advice}`);
  };
  if (dataset instanceof IterableDataset) {
    if (sampler || batchSampler || shuffle)
      reject("a stream has no sampler and no shuffling", "Mix the samples in the stream itself.");
    if (numWorkers > 0) reject("a stream is read on this thread", "Leave out numWorkers.");
    return;
  }
  if (batchSampler && (sampler || shuffle || batchSize !== undefined || dropLast !== undefined)) {
    reject(
      "a batchSampler replaces batchSize, shuffle, sampler and dropLast",
      "Pass it alone, or leave it out.",
    );
  }
  if (sampler && shuffle) reject("a sampler replaces shuffle", "Pass one of them.");
}

function requireWhole(name: string, value: number, from: number): void {
  if (Number.isSafeInteger(value) && value >= from) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `AsyncDataLoader: ${name} is ${value}; it must be a whole number of at least ${from}.`,
    { numbers: { [name]: value } },
  );
}

/** The tensors in a batch: fields of arrays and of plain objects. */
function tensorsIn(value: unknown): readonly Tensor[] {
  if (value instanceof Tensor) return [value];
  if (Array.isArray(value)) return typeof value[0] === "number" ? [] : value.flatMap(tensorsIn);
  if (typeof value !== "object" || value === null || Object.getPrototypeOf(value) !== Object.prototype)
    return [];
  return Object.values(value).flatMap(tensorsIn);
}

function concurrentPass(): HoldfastError {
  return new HoldfastError(
    "BAD_STATE",
    "The loader was closed, loaded a state or began another loop while this loop was in progress. End a loop before that, or create a second loader.",
  );
}
