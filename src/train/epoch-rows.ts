/** The order of a data set's rows in an epoch, on the device. A batch is a slice of it. */

import { noteWrite, Value } from "../autograd/index.js";
import type { Batch, ColumnSource, TensorDataset } from "../data/index.js";
import { dtypes } from "../ir/index.js";
import { permutation, type Seed } from "../kernels/index.js";
import { type DeviceArray, indexSelect } from "../ops/index.js";
import type { Region, Storage } from "../runtime/index.js";
import { type Device, Tensor } from "../tensor/index.js";

const indexBytes = dtypes.i32.bytes;

export class EpochRows<Sources extends readonly ColumnSource[]> {
  /** Batches in an epoch; the last one may have fewer rows. */
  readonly batches: number;
  readonly #device: Device;
  readonly #rows: number;
  readonly #batchSize: number;
  readonly #seed: Seed | undefined;
  readonly #columns: readonly Tensor[];
  readonly #region: Region;
  readonly #weights: ArrayLike<number> | undefined;
  #epoch: number | undefined;
  /** The order of the epoch, if rows have weights. */
  #order: Uint32Array | undefined;

  /** Without a seed, every epoch uses the original order. Without weights, each row has the weight 1. */
  constructor(
    device: Device,
    data: TensorDataset<Sources>,
    batchSize: number,
    seed: Seed | undefined,
    weights?: ArrayLike<number>,
  ) {
    this.#device = device;
    this.#rows = data.rows;
    this.#batchSize = batchSize;
    this.#seed = seed;
    this.#weights = weights;
    this.batches = Math.ceil(data.rows / batchSize);
    this.#columns = data.placeOn(device).map((array) => tensorOf(device, array));
    const { persistent } = device.runtime;
    const name = "order of the rows";
    this.#region = persistent.place("data set", "rows of the epoch", [
      { name, size: data.rows * indexBytes },
    ]);
  }

  /** The row indices of a batch, [rows], on the device. */
  rowsOf(epoch: number, batch: number): Tensor {
    this.#startEpoch(epoch);
    const first = batch * this.#batchSize;
    const count = this.countOf(batch);
    const storage = this.#device.runtime.view(this.#storage, first * indexBytes, count * indexBytes);
    return tensorOf(this.#device, { shape: [count], strides: [1], dtype: "i32", storage });
  }

  countOf(batch: number): number {
    return Math.min(this.#batchSize, this.#rows - batch * this.#batchSize);
  }

  /** The sum of the weights of a batch's rows. */
  weightOf(epoch: number, batch: number): number {
    const weights = this.#weights;
    if (!weights) return this.countOf(batch);
    this.#startEpoch(epoch);
    const first = batch * this.#batchSize;
    let sum = 0;
    for (let row = first; row < first + this.countOf(batch); row++)
      sum += weights[this.#order?.[row] ?? row] ?? 0;
    return sum;
  }

  /** The rows, one tensor per column. Gathered on the device, in a compiled step too. */
  gather(rows: Tensor): Batch<Sources> {
    return this.#columns.map((column) =>
      this.#device.apply(indexSelect, [column, rows], { axis: 0, isTrusted: true }),
    ) as unknown as Batch<Sources>;
  }

  close(): void {
    const { persistent } = this.#device.runtime;
    if (this.#device.isOpen && persistent.regions.includes(this.#region)) persistent.release(this.#region);
  }

  get #storage(): Storage {
    const [storage] = this.#region.storages;
    if (!storage) throw new Error("The row order has no storage.");
    return storage;
  }

  #startEpoch(epoch: number): void {
    if (this.#epoch === epoch || (this.#epoch !== undefined && this.#seed === undefined)) return;
    const order =
      this.#seed === undefined
        ? Uint32Array.from({ length: this.#rows }, (_, row) => row)
        : permutation({ seed: this.#seed, id: epoch }, this.#rows);
    this.#device.runtime.upload([{ source: order, target: this.#storage }]);
    noteWrite(this.#storage);
    this.#epoch = epoch;
    if (this.#weights) this.#order = order;
  }
}

function tensorOf(device: Device, array: DeviceArray): Tensor {
  return new Tensor({ device, value: new Value(array) });
}
