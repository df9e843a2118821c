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
  #epoch: number | undefined;

  /** Without a seed, every epoch uses the original order. */
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

  /** The row indices of a batch, [rows], on the device. */
  rowsOf(epoch: number, batch: number): Tensor {
    this.#startEpoch(epoch);
    const first = batch * this.#batchSize;
    const count = this.countOf(batch);
    const storage = this.#device.runtime.view(this.#order, first * indexBytes, count * indexBytes);
    return tensorOf(this.#device, { shape: [count], strides: [1], dtype: "i32", storage });
  }

  countOf(batch: number): number {
    return Math.min(this.#batchSize, this.#rows - batch * this.#batchSize);
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

  get #order(): Storage {
    const [order] = this.#region.storages;
    if (!order) throw new Error("The row order has no storage.");
    return order;
  }

  #startEpoch(epoch: number): void {
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
