/** In which order an epoch goes through the rows of a data set, on the device: a batch is a part of it. */

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
  #epoch: number | undefined;

  /** Without a seed every epoch goes from the first row to the last. */
  constructor(device: Device, data: TensorDataset<Sources>, batchSize: number, seed: Seed | undefined) {
    this.#device = device;
    this.#rows = data.rows;
    this.#batchSize = batchSize;
    this.#seed = seed;
    this.batches = Math.ceil(data.rows / batchSize);
    this.#columns = data.placeOn(device).map((array) => tensorOf(device, array));
    const { persistent } = device.runtime;
    const name = "order of the rows";
    this.#region = persistent.place("data set", "rows of the epoch", [
      { name, size: data.rows * indexBytes },
    ]);
  }

  /** The numbers of a batch's rows, [rows], as they lie on the device. */
  rowsOf(epoch: number, batch: number): Tensor {
    this.#begin(epoch);
    const first = batch * this.#batchSize;
    const count = this.countOf(batch);
    const storage = this.#device.runtime.view(this.#order, first * indexBytes, count * indexBytes);
    return tensorOf(this.#device, { shape: [count], strides: [1], dtype: "i32", storage });
  }

  countOf(batch: number): number {
    return Math.min(this.#batchSize, this.#rows - batch * this.#batchSize);
  }

  /** The rows themselves, a tensor for each column: gathered on the device, also inside of a compiled step. */
  gather(rows: Tensor): Batch<Sources> {
    return this.#columns.map((column) =>
      this.#device.apply(indexSelect, [column, rows], { axis: 0, isTrusted: true }),
    ) as unknown as Batch<Sources>;
  }

  close(): void {
    const { persistent } = this.#device.runtime;
    if (this.#device.isOpen && persistent.regions.includes(this.#region)) persistent.release(this.#region);
  }

  get #order(): Storage {
    const [order] = this.#region.storages;
    if (!order) throw new Error("The order of the rows has no place.");
    return order;
  }

  #begin(epoch: number): void {
    if (this.#epoch === epoch || (this.#epoch !== undefined && this.#seed === undefined)) return;
    const order =
      this.#seed === undefined
        ? Uint32Array.from({ length: this.#rows }, (_, row) => row)
        : permutation({ seed: this.#seed, id: epoch }, this.#rows);
    this.#device.runtime.upload([{ source: order, target: this.#order }]);
    noteWrite(this.#order);
    this.#epoch = epoch;
  }
}

function tensorOf(device: Device, array: DeviceArray): Tensor {
  return new Tensor({ device, value: new Value(array) });
}
