/**
 * Batches of a data set, drawn on the device. The rows lie there already; an epoch sends up its order, and a batch sends
 * up nothing. A batch stands in buffers of the loader's own, outside every step, which the next batch overwrites.
 */

import { noteWrite, Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { dtypes } from "../ir/index.js";
import { permutation, type Seed, submit } from "../kernels/index.js";
import { contiguousStrides, type DeviceArray, indexedCopyCalls, sizeOf } from "../ops/index.js";
import type { Region, Storage } from "../runtime/index.js";
import { currentSeed, type Device, defaultDevice, type Tensor } from "../tensor/index.js";
import { type BatchNumber, BatchTensor } from "./batch-tensor.js";
import type { Column, ColumnSource, TensorDataset } from "./dataset.js";

/** Options of a `DataLoader`. */
export interface DataLoaderOptions {
  /** Rows in a batch. */
  readonly batchSize: number;
  /** A new order in every epoch. */
  readonly shuffle?: boolean;
  /** What the orders follow from; the seed of everything unless given. */
  readonly seed?: Seed;
  /** Leave out the last batch where it has fewer rows than the others. */
  readonly dropLast?: boolean;
  /** The first one that was opened, unless given. */
  readonly device?: Device;
  /** Keep the data set on the device; else every batch's rows are sent up, for data that the device can't hold. */
  readonly resident?: boolean;
}

/** Where a loader stands, and what its orders follow from; plain data, for JSON. */
export interface LoaderState {
  /** The epoch, counted from 0, and its batch that come next. */
  readonly epoch: number;
  readonly batch: number;
  readonly rows: number;
  readonly batchSize: number;
  /** Batches in an epoch. */
  readonly batches: number;
  /** Absent where the rows are not shuffled. */
  readonly seed?: string;
}

/** A tensor for each column. */
export type Batch<Sources extends readonly ColumnSource[]> = { readonly [Index in keyof Sources]: Tensor };

/**
 * Goes through a data set in batches, epoch by epoch. The order of an epoch follows from the seed and the epoch's number
 * alone, so any epoch can be gone through again with `epoch(number)`. The last batch may have fewer rows.
 *
 * A batch's tensors are good until the next batch is drawn; `clone()` what has to stay.
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
  /** Batches in an epoch. */
  readonly length: number;
  /** What the orders follow from; undefined where rows come as they lie. */
  #seed: Seed | undefined;
  /** Where rows are gathered from; undefined where they are sent up. */
  readonly #resident: readonly DeviceArray[] | undefined;
  /** A batch of each column, then the epoch's order. */
  readonly #region: Region;
  /** The order of the rows in the present epoch. */
  #order: Uint32Array;
  /** What the next pass begins with. */
  #next: BatchNumber = { epoch: 0, batch: 0 };
  /** What comes after the batch that was drawn last. */
  #position: BatchNumber = { epoch: 0, batch: 0 };
  /** The batch that stands in the buffers. */
  #current: BatchNumber | undefined;

  constructor(dataset: TensorDataset<Sources>, options: DataLoaderOptions) {
    const { batchSize, shuffle = false, seed = currentSeed(), dropLast = false, resident = true } = options;
    const { rows, columns } = dataset;
    this.length = countBatches(rows, batchSize, dropLast);
    this.dataset = dataset;
    this.device = options.device ?? defaultDevice();
    this.device.requireOpen();
    this.batchSize = batchSize;
    this.#seed = shuffle ? seed : undefined;
    this.#order = Uint32Array.from({ length: rows }, (_, row) => row);
    this.#resident = resident ? dataset.placeOn(this.device) : undefined;
    const most = Math.min(batchSize, rows);
    this.#region = this.device.runtime.persistent.place("data set", "batches", [
      ...columns.map((column, index) => ({
        name: `batch of column ${index}`,
        size: most * widthOf(column) * dtypes[column.dtype].bytes,
      })),
      { name: "order of the rows", size: rows * indexBytes },
    ]);
    this.#uploadOrder();
  }

  /**
   * The bytes that go up when an epoch begins, and with each whole batch.
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
    return { perEpoch: this.#seed === undefined ? 0 : rows * indexBytes, perBatch: 0 };
  }

  /** The next epoch's batches; after a state was loaded in the middle of an epoch, the rest of that one. */
  [Symbol.iterator](): IterableIterator<Batch<Sources>> {
    return this.epoch(this.#next.epoch, this.#next.batch);
  }

  /**
   * The epoch, counted from 0, and its batch that come next. A batch counts as done once it is drawn. After the last
   * batch the epoch is still the same until the loop over it has ended; a loop that is left early stays where it was.
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
   * Where the loader stands, for a checkpoint: its position and what its orders follow from.
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
    return { ...this.#position, rows: this.dataset.rows, batchSize, batches, ...seed };
  }

  /**
   * Goes on from a state: the next loop has the rest of its epoch. The data set and the options have to be as they were.
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
    const own = this.stateDict();
    requireSameLoader(own, state);
    const { epoch, batch, seed } = state;
    if (seed !== undefined) this.#seed = BigInt(seed);
    this.#position = { epoch, batch };
    this.#next = this.#position;
    this.#current = undefined;
  }

  /**
   * The batches of an epoch by its number, from 0, or those from one of its batches on. The next epoch follows it.
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
      throw new HoldfastError("BAD_ARGUMENT", `There is no epoch ${epoch}: they count from 0.`, {
        numbers: { epoch },
      });
    }
    if (!Number.isSafeInteger(firstBatch) || firstBatch < 0 || firstBatch > this.length) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `An epoch can't begin at batch ${firstBatch}: it has ${this.length}, counted from 0.`,
        { numbers: { firstBatch, batches: this.length } },
      );
    }
    this.device.requireOpen();
    this.#next = { epoch: epoch + 1, batch: 0 };
    if (this.#seed !== undefined) {
      this.#order = permutation({ seed: this.#seed, id: epoch }, this.dataset.rows);
      this.#uploadOrder();
    }
    this.#current = undefined;
    let last: BatchNumber | undefined;
    for (let batch = firstBatch; batch < this.length; batch++) {
      if (this.#current !== last) throw overtaken(epoch, this.#current);
      last = { epoch, batch };
      this.#current = last;
      this.#position = { epoch, batch: batch + 1 };
      yield this.#draw(last);
    }
    if (this.#current === last) this.#position = this.#next;
  }

  /**
   * Gives the loader's buffers back. The data set stays: other loaders may draw from it.
   *
   * @example
   * ```ts
   * import { DataLoader, device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset([[1], [2]]);
   * const batches = new DataLoader(data, { batchSize: 1 });
   * const before = cpu.runtime.budget.usedBy("data set");
   * batches.close();
   * console.log(cpu.runtime.budget.usedBy("data set") < before); // → true
   * cpu.close();
   * ```
   */
  close(): void {
    this.#current = undefined;
    const { persistent } = this.device.runtime;
    if (this.device.isOpen && persistent.regions.includes(this.#region)) persistent.release(this.#region);
  }

  #draw(number: BatchNumber): Batch<Sources> {
    const { runtime } = this.device;
    const first = number.batch * this.batchSize;
    const count = Math.min(this.batchSize, this.dataset.rows - first);
    const buffers = this.dataset.columns.map((column, index): DeviceArray => {
      const { dtype } = column;
      const shape = [count, ...column.shape.slice(1)];
      const whole = this.#storageAt(index);
      const storage = runtime.view(whole, 0, sizeOf(shape) * dtypes[dtype].bytes);
      return { shape, strides: contiguousStrides(shape), dtype, storage };
    });
    if (this.#resident) this.#gather(this.#resident, first, buffers);
    else this.#send(first, buffers);
    for (const { storage } of buffers) noteWrite(storage);
    const isCurrent = (): boolean => this.#current === number;
    const tensors = buffers.map(
      (array, column) =>
        new BatchTensor({ device: this.device, value: new Value(array) }, { ...number, column, isCurrent }),
    );
    return tensors as unknown as Batch<Sources>;
  }

  /** On the device: the rows that the order lists from `first` on. */
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

  /** From the host: the same rows, one upload for all columns. */
  #send(first: number, buffers: readonly DeviceArray[]): void {
    const rows = this.#order.subarray(first, first + this.batchSize);
    this.device.runtime.upload(
      buffers.flatMap(({ storage: target }, index) => {
        const column = this.dataset.columns[index];
        return column && target ? [{ source: pickRows(column, rows), target }] : [];
      }),
    );
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

/** How many batches an epoch has; rejects sizes that would make none, or one without end. */
function countBatches(rows: number, batchSize: number, dropLast: boolean): number {
  if (!Number.isSafeInteger(batchSize) || batchSize < 1) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `batchSize is ${batchSize}; give a whole number of rows, 1 or more.`,
      { numbers: { batchSize } },
    );
  }
  const count = dropLast ? Math.floor(rows / batchSize) : Math.ceil(rows / batchSize);
  if (count > 0) return count;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `With dropLast, ${rows} rows make no batch of ${batchSize}. Lower batchSize, or keep the last batch.`,
    { numbers: { rows, batchSize } },
  );
}

/** Rejects a state of other data or other batches: its position would mean other rows. */
function requireSameLoader(own: LoaderState, state: LoaderState): void {
  const { epoch, batch } = state;
  const isPlace = [epoch, batch].every((count) => Number.isSafeInteger(count) && count >= 0);
  const isSeed = state.seed === undefined || /^\d{1,20}$/.test(state.seed);
  if (!isPlace || !isSeed || batch > own.batches) {
    throw new HoldfastError(
      "BAD_STATE",
      `The state has epoch ${epoch}, batch ${batch} and seed ${state.seed ?? "none"}; this loader has ${own.batches} batches in an epoch. Give a ` +
        "state that stateDict() returned.",
    );
  }
  const faults = (["rows", "batchSize", "batches"] as const).flatMap((name) =>
    own[name] === state[name] ? [] : [`${name} was ${state[name]} and is ${own[name]} here`],
  );
  const [was, is] = [state, own].map(({ seed }) => (seed === undefined ? "not shuffled" : "shuffled"));
  if (was !== is) faults.push(`its rows were ${was} and are ${is} here`);
  if (faults.length === 0) return;
  throw new HoldfastError(
    "BAD_STATE",
    `The state does not fit the loader: ${faults.join("; ")}. Make it as it was when the state was saved.`,
  );
}

/** Elements in a row. */
function widthOf({ shape }: Column): number {
  return sizeOf(shape.slice(1));
}

/** A column's rows, one behind the other. */
function pickRows(column: Column, rows: Uint32Array): Uint8Array {
  const { elements } = column;
  const size = widthOf(column) * dtypes[column.dtype].bytes;
  const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
  const picked = new Uint8Array(rows.length * size);
  for (const [at, row] of rows.entries()) picked.set(bytes.subarray(row * size, (row + 1) * size), at * size);
  return picked;
}

function overtaken(epoch: number, by: BatchNumber | undefined): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `Epoch ${epoch} was being gone through when ${by ? `epoch ${by.epoch}` : "another"} began: a loader has buffers for one ` +
      "pass at a time. End the first, or make a second loader; the data set is shared.",
    { numbers: { epoch } },
  );
}
