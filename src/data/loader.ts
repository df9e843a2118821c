/**
 * Batches of a data set, gathered on the device. The rows are already there: an epoch uploads its order, and a batch
 * uploads nothing. Batches use the loader's own buffers, outside every step; the next batch overwrites them.
 */

import { noteWrite, Value } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import { permutation, type Seed, submit } from "../kernels/index.js";
import { contiguousStrides, type DeviceArray, indexedCopyCalls, sizeOf } from "../ops/index.js";
import type { Region, Storage, UploadItem } from "../runtime/index.js";
import { currentSeed, type Device, deviceFor, type Tensor } from "../tensor/index.js";
import { type BatchNumber, BatchTensor } from "./batch-tensor.js";
import { type Column, type ColumnSource, TensorDataset } from "./dataset.js";
import { requireIndex } from "./map-dataset.js";
import type { Sampler } from "./samplers.js";

/** Options of a `DataLoader`. */
export interface DataLoaderOptions {
  /** Rows per batch. */
  readonly batchSize: number;
  /** Use a new order in every epoch. */
  readonly shuffle?: boolean;
  /** The seed of the orders. Default: the global seed. */
  readonly seed?: Seed;
  /** The order of the rows, instead of `shuffle`: some rows, or rows more than once. */
  readonly sampler?: Sampler;
  /** Drop the last batch if it has fewer rows. */
  readonly dropLast?: boolean;
  /** Default: the first device that was opened. */
  readonly device?: Device;
  /**
   * Keep the data set on the device (default). Otherwise every batch's rows are uploaded, for data that does not fit.
   */
  readonly resident?: boolean;
  /**
   * With `resident: false`: upload the rows of the next batch beside the work on the drawn one. It takes the memory of one more batch. Default:
   * false.
   */
  readonly uploadAhead?: boolean;
}

/** A loader's position and the seed of its orders; plain data, for JSON. */
export interface LoaderState {
  /** The next epoch, counted from 0, and its next batch. */
  readonly epoch: number;
  readonly batch: number;
  readonly rows: number;
  readonly batchSize: number;
  /** Batches per epoch. */
  readonly batches: number;
  /** Absent if the rows are not shuffled. */
  readonly seed?: string;
}

/** A tensor for each column. */
export type Batch<Sources extends readonly ColumnSource[]> = { readonly [Index in keyof Sources]: Tensor };

/**
 * Iterates over a data set in batches, epoch by epoch. The order of an epoch depends only on the seed and the epoch's
 * number, so `epoch(number)` can repeat any epoch. The last batch may have fewer rows.
 *
 * A batch's tensors are valid until the next batch is drawn; `clone()` them to keep them.
 *
 * @example
 * ```ts
 * import { DataLoader, device, TensorDataset } from "holdfast";
 * const cpu = await device("cpu");
 * const data = new TensorDataset([[1], [2], [3]], new Int32Array([0, 1, 0]));
 * const batches = new DataLoader(data, { batchSize: 2 });
 * for (const [x, y] of batches) {
 *   console.log(cpu.step(() => x.sum().item()), y.tolist());
 * }
 * // → 3 [ 0, 1 ]
 * // → 3 [ 0 ]
 * cpu.close();
 * ```
 */
export class DataLoader<Sources extends readonly ColumnSource[]> implements Iterable<Batch<Sources>> {
  readonly dataset: TensorDataset<Sources>;
  readonly device: Device;
  readonly batchSize: number;
  /** Batches per epoch. */
  readonly length: number;
  /** The seed of the orders; undefined without shuffling. */
  #seed: Seed | undefined;
  readonly #sampler: Sampler | undefined;
  /** Rows per epoch. */
  readonly #rows: number;
  /** The rows on the device; undefined if they are uploaded per batch. */
  readonly #resident: readonly DeviceArray[] | undefined;
  /** A batch of each column, then the epoch's order. */
  readonly #region: Region;
  /** The next batch of each column, if it is uploaded ahead. */
  readonly #aheadRegion: Region | undefined;
  /** The batch in it. */
  #ahead: BatchNumber | undefined;
  /** The order of the rows in the current epoch. */
  #order: Uint32Array;
  /** The start of the next pass. */
  #next: BatchNumber = { epoch: 0, batch: 0 };
  /** The position after the last drawn batch. */
  #position: BatchNumber = { epoch: 0, batch: 0 };
  /** The batch in the buffers. */
  #current: BatchNumber | undefined;

  constructor(dataset: TensorDataset<Sources>, options: DataLoaderOptions) {
    checkOptions("DataLoader", options, {
      batchSize: true,
      shuffle: true,
      seed: true,
      sampler: true,
      dropLast: true,
      device: true,
      resident: true,
      uploadAhead: true,
    });
    const { batchSize, shuffle = false, seed = currentSeed(), dropLast = false, resident = true } = options;
    const { sampler } = options;
    if (sampler && shuffle) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "DataLoader got a sampler and shuffle; the sampler determines the order. Pass one of them.",
      );
    }
    if (!(dataset instanceof TensorDataset)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "DataLoader got a data set that is not a TensorDataset. Use an AsyncDataLoader, with for await, for samples that get(index) returns.",
      );
    }
    const { columns } = dataset;
    const rows = sampler?.length ?? dataset.rows;
    this.#sampler = sampler;
    this.#rows = rows;
    this.length = countBatches(rows, batchSize, dropLast);
    this.dataset = dataset;
    this.device = deviceFor(options.device);
    this.device.requireOpen();
    this.batchSize = batchSize;
    this.#seed = shuffle ? seed : undefined;
    this.#order = sampler ? this.#sampled(0) : Uint32Array.from({ length: rows }, (_, row) => row);
    this.#resident = resident ? dataset.placeOn(this.device) : undefined;
    const maxRows = Math.min(batchSize, rows);
    const batch = columns.map((column, index) => ({
      name: `batch of column ${index}`,
      size: maxRows * rowLength(column) * dtypes[column.dtype].bytes,
    }));
    const { persistent } = this.device.runtime;
    const order = { name: "order of the rows", size: rows * indexBytes };
    this.#region = persistent.place("data set", "batches", [...batch, order]);
    if (!resident && options.uploadAhead)
      this.#aheadRegion = persistent.place("data set", "next batches", batch);
    this.#uploadOrder();
  }

  /**
   * Bytes uploaded at the start of an epoch and with each whole batch.
   *
   * @example
   * ```ts
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset(new Float32Array(1000));
   * const [kept, sent] = [true, false].map((resident) => new DataLoader(data, { batchSize: 10, resident, device: cpu }));
   * console.log(kept?.uploads, sent?.uploads); // → { perEpoch: 0, perBatch: 0 } { perEpoch: 0, perBatch: 40 }
   * cpu.close();
   * ```
   */
  get uploads(): { readonly perEpoch: number; readonly perBatch: number } {
    const { rows, bytes } = this.dataset;
    if (!this.#resident) return { perEpoch: 0, perBatch: (bytes / rows) * this.batchSize };
    const isInOrder = this.#seed === undefined && !this.#sampler;
    return { perEpoch: isInOrder ? 0 : this.#rows * indexBytes, perBatch: 0 };
  }

  /** Iterates over the next epoch; after loading a state in the middle of an epoch, over the rest of it. */
  [Symbol.iterator](): IterableIterator<Batch<Sources>> {
    return this.epoch(this.#next.epoch, this.#next.batch);
  }

  /**
   * The next epoch, counted from 0, and its next batch. A batch counts as done once it is drawn. After the last batch
   * the epoch stays the same until the loop over it has ended; leaving a loop early keeps the position.
   *
   * @example
   * ```ts
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const batches = new DataLoader(new TensorDataset([[1], [2], [3]]), { batchSize: 2 });
   * for (const _ of batches) console.log(batches.position);
   * // → { epoch: 0, batch: 1 }
   * // → { epoch: 0, batch: 2 }
   * console.log(batches.position); // → { epoch: 1, batch: 0 }
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
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const batches = new DataLoader(new TensorDataset([[1], [2], [3]]), { batchSize: 2 });
   * console.log(JSON.stringify(batches.stateDict()));
   * // → {"epoch":0,"batch":0,"rows":3,"batchSize":2,"batches":2}
   * cpu.close();
   * ```
   */
  stateDict(): LoaderState {
    const seed = this.#seed === undefined ? {} : { seed: String(this.#seed) };
    const { batchSize, length: batches } = this;
    return { ...this.#position, rows: this.#rows, batchSize, batches, ...seed };
  }

  /**
   * Continues from a state: the next loop covers the rest of its epoch. The data set and the options must be the same.
   *
   * @example
   * ```ts
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset([[1], [2], [3]]);
   * const [first, second] = [new DataLoader(data, { batchSize: 1 }), new DataLoader(data, { batchSize: 1 })];
   * for (const [x] of first) if (x.item() === 2) break;
   * second.loadStateDict(first.stateDict());
   * for (const [x] of second) console.log(x.item()); // → 3
   * cpu.close();
   * ```
   */
  loadStateDict(state: LoaderState): void {
    const current = this.stateDict();
    requireSameLoader(current, state);
    const { epoch, batch, seed } = state;
    if (seed !== undefined) this.#seed = BigInt(seed);
    this.#position = { epoch, batch };
    this.#next = this.#position;
    this.#current = undefined;
  }

  /**
   * The batches of an epoch by its number, counted from 0, optionally from one of its batches on. The next epoch
   * follows it.
   *
   * @example
   * ```ts
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset(Float32Array.of(10, 20, 30, 40));
   * const batches = new DataLoader(data, { batchSize: 2, shuffle: true, device: cpu });
   * const order = () => Array.from(batches.epoch(3), ([x]) => x.tolist()).join();
   * console.log(order() === order()); // → true
   * cpu.close();
   * ```
   */
  *epoch(epoch: number, firstBatch = 0): IterableIterator<Batch<Sources>> {
    if (!Number.isSafeInteger(epoch) || epoch < 0) {
      throw new HoldfastError("BAD_ARGUMENT", `There is no epoch ${epoch}; epochs are counted from 0.`, {
        numbers: { epoch },
      });
    }
    if (!Number.isSafeInteger(firstBatch) || firstBatch < 0 || firstBatch > this.length) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `An epoch cannot start at batch ${firstBatch}: it has ${this.length} batches, counted from 0.`,
        { numbers: { firstBatch, batches: this.length } },
      );
    }
    this.device.requireOpen();
    this.#next = { epoch: epoch + 1, batch: 0 };
    if (this.#sampler || this.#seed !== undefined) {
      this.#order = this.#sampler
        ? this.#sampled(epoch)
        : permutation({ seed: this.#seed ?? 0, id: epoch }, this.dataset.rows);
      this.#uploadOrder();
    }
    this.#current = undefined;
    this.#ahead = undefined;
    let last: BatchNumber | undefined;
    for (let batch = firstBatch; batch < this.length; batch++) {
      if (this.#current !== last) throw concurrentPass(epoch, this.#current);
      last = { epoch, batch };
      this.#current = last;
      this.#position = { epoch, batch: batch + 1 };
      yield this.#draw(last);
    }
    if (this.#current === last) this.#position = this.#next;
  }

  /**
   * Frees the loader's buffers. The data set stays: other loaders may use it.
   *
   * @example
   * ```ts
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset([[1], [2]]);
   * const batches = new DataLoader(data, { batchSize: 1 });
   * const before = cpu.diagnostics().budget.usedByLabel["data set"];
   * batches.close();
   * console.log(cpu.diagnostics().budget.usedByLabel["data set"] < before); // → true
   * cpu.close();
   * ```
   */
  close(): void {
    this.#current = undefined;
    if (!this.device.isOpen) return;
    const { runtime } = this.device;
    runtime.awaitUploads();
    for (const region of [this.#region, this.#aheadRegion])
      if (region && runtime.persistent.regions.includes(region)) runtime.persistent.release(region);
  }

  /** The sampler's rows in an epoch, checked: the device gathers them unchecked. */
  #sampled(epoch: number): Uint32Array {
    const indices = this.#sampler?.indices(epoch) ?? [];
    for (let position = 0; position < indices.length; position++)
      requireIndex("DataLoader's sampler", indices[position] ?? Number.NaN, this.dataset.rows);
    if (indices.length === this.#rows) return Uint32Array.from(indices);
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `The sampler gave ${indices.length} indices for epoch ${epoch}, but its length is ${this.#rows}. Return as many indices as its length says.`,
      { numbers: { indices: indices.length, length: this.#rows } },
    );
  }

  #draw(number: BatchNumber): Batch<Sources> {
    const { runtime } = this.device;
    const first = number.batch * this.batchSize;
    const count = Math.min(this.batchSize, this.#rows - first);
    const buffers = this.dataset.columns.map((column, index): DeviceArray => {
      const { dtype } = column;
      const shape = [count, ...column.shape.slice(1)];
      const whole = this.#storageAt(index);
      const storage = runtime.view(whole, 0, sizeOf(shape) * dtypes[dtype].bytes);
      return { shape, strides: contiguousStrides(shape), dtype, storage };
    });
    if (this.#resident) this.#gather(this.#resident, first, buffers);
    else this.#send(number, buffers);
    for (const { storage } of buffers) noteWrite(storage);
    const isCurrent = (): boolean => this.#current === number;
    const tensors = buffers.map(
      (array, column) =>
        new BatchTensor({ device: this.device, value: new Value(array) }, { ...number, column, isCurrent }),
    );
    return tensors as unknown as Batch<Sources>;
  }

  /** Gathers on the device the rows that the order lists from `first` on. */
  #gather(sources: readonly DeviceArray[], first: number, buffers: readonly DeviceArray[]): void {
    const { runtime } = this.device;
    const order = this.#storageAt(this.dataset.columns.length);
    for (const [column, buffer] of buffers.entries()) {
      const source = sources[column];
      if (!source) continue;
      const [count = 0, ...row] = buffer.shape;
      const width = sizeOf(row);
      const storage = runtime.view(order, first * indexBytes, count * indexBytes);
      const calls = indexedCopyCalls({
        source,
        sourceStrides: [0, 1],
        index: { shape: [count], strides: [1], dtype: "i32", storage },
        indexStrides: [1, 0],
        step: width,
        length: this.dataset.rows,
        output: { ...buffer, shape: [count, width], strides: [width, 1] },
      });
      submit(runtime, calls);
    }
  }

  /** Uploads the same rows from the host, or copies them from where they were uploaded ahead. Then uploads the next batch ahead. */
  #send(number: BatchNumber, buffers: readonly DeviceArray[]): void {
    const { runtime } = this.device;
    const targets = buffers.flatMap(({ storage }) => storage ?? []);
    if (this.#ahead?.epoch === number.epoch && this.#ahead.batch === number.batch) {
      runtime.awaitUploads();
      const sources = this.#aheadStorages(number.batch);
      for (const [column, target] of targets.entries()) {
        const source = sources[column];
        if (source) runtime.copy(target, source);
      }
    } else runtime.upload(this.#rowsOf(number.batch, targets));
    this.#ahead = undefined;
    const batch = number.batch + 1;
    if (!this.#aheadRegion || batch >= this.length) return;
    runtime.uploadBeside(() => runtime.upload(this.#rowsOf(batch, this.#aheadStorages(batch))));
    this.#ahead = { epoch: number.epoch, batch };
  }

  /** The memory of a batch of each column that is uploaded ahead. */
  #aheadStorages(batch: number): readonly Storage[] {
    const count = Math.min(this.batchSize, this.#rows - batch * this.batchSize);
    return this.dataset.columns.flatMap((column, index) => {
      const whole = this.#aheadRegion?.storages[index];
      const size = count * rowLength(column) * dtypes[column.dtype].bytes;
      return whole ? [this.device.runtime.view(whole, 0, size)] : [];
    });
  }

  /** One upload of all columns. */
  #rowsOf(batch: number, targets: readonly Storage[]): readonly UploadItem[] {
    const first = batch * this.batchSize;
    const rows = this.#order.subarray(first, first + this.batchSize);
    return targets.flatMap((target, index) => {
      const column = this.dataset.columns[index];
      return column ? [{ source: pickRows(column, rows), target }] : [];
    });
  }

  #uploadOrder(): void {
    if (!this.#resident) return;
    const target = this.#storageAt(this.dataset.columns.length);
    this.device.runtime.upload([{ source: this.#order, target }]);
  }

  #storageAt(index: number): Storage {
    const storage = this.#region.storages[index];
    if (storage) return storage;
    throw new HoldfastError("BAD_ARGUMENT", `The loader has no buffer ${index}.`);
  }
}

const indexBytes = dtypes.i32.bytes;

/** The number of batches per epoch; rejects sizes that would give none. */
function countBatches(rows: number, batchSize: number, dropLast: boolean): number {
  if (!Number.isSafeInteger(batchSize) || batchSize < 1) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `batchSize is ${batchSize}; pass a whole number of rows, 1 or more.`,
      { numbers: { batchSize } },
    );
  }
  const count = dropLast ? Math.floor(rows / batchSize) : Math.ceil(rows / batchSize);
  if (count > 0) return count;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `With dropLast, ${rows} rows give no batch of ${batchSize}. Lower batchSize, or set dropLast to false.`,
    { numbers: { rows, batchSize } },
  );
}

/** Rejects a state of other data or other batches: its position would mean other rows. */
function requireSameLoader(current: LoaderState, state: LoaderState): void {
  const { epoch, batch } = state;
  const isPosition = [epoch, batch].every((count) => Number.isSafeInteger(count) && count >= 0);
  const isSeed = state.seed === undefined || /^\d{1,20}$/.test(state.seed);
  if (!isPosition || !isSeed || batch > current.batches) {
    throw new HoldfastError(
      "BAD_STATE",
      `The state has epoch ${epoch}, batch ${batch} and seed ${state.seed ?? "none"}; this loader has ${current.batches} batches per epoch. Pass a ` +
        "state that stateDict() returned.",
    );
  }
  const faults = (["rows", "batchSize", "batches"] as const).flatMap((name) =>
    current[name] === state[name] ? [] : [`${name} was ${state[name]} and is ${current[name]} here`],
  );
  const [was, is] = [state, current].map(({ seed }) => (seed === undefined ? "not shuffled" : "shuffled"));
  if (was !== is) faults.push(`its rows were ${was} and are ${is} here`);
  if (faults.length === 0) return;
  throw new HoldfastError(
    "BAD_STATE",
    `The state does not fit the loader: ${faults.join("; ")}. Create the loader with the options it had when the state was saved.`,
  );
}

/** Elements per row. */
function rowLength({ shape }: Column): number {
  return sizeOf(shape.slice(1));
}

/** Copies a column's rows into one array. */
function pickRows(column: Column, rows: Uint32Array): Uint8Array {
  const { elements } = column;
  const size = rowLength(column) * dtypes[column.dtype].bytes;
  const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
  const picked = new Uint8Array(rows.length * size);
  for (const [index, row] of rows.entries()) {
    picked.set(bytes.subarray(row * size, (row + 1) * size), index * size);
  }
  return picked;
}

function concurrentPass(epoch: number, by: BatchNumber | undefined): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Epoch ${epoch} was still in progress when ${by ? `epoch ${by.epoch}` : "another"} started: a loader has buffers for one ` +
      "pass at a time. End the first, or create a second loader; the data set is shared.",
    { numbers: { epoch } },
  );
}
