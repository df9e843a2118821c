/**
 * A data set: columns of rows, validated at construction. It is on the host; on a device it is placed once, in
 * persistent memory, for all loaders.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, widenBf16, widenF16 } from "../ir/index.js";
import {
  contiguousStrides,
  type DeviceArray,
  defaultIgnoreIndex,
  formatShape,
  type Shape,
  sizeOf,
} from "../ops/index.js";
import type { Region } from "../runtime/index.js";
import {
  chooseDtype,
  type Device,
  dtypeOfArray,
  encodeElements,
  type NestedArray,
  type NumberArray,
  readNested,
  Tensor,
} from "../tensor/index.js";
import type { HostArray } from "./collate.js";
import { Dataset, requireIndex } from "./map-dataset.js";

/** A column as nested arrays, a typed array (one number per row), a flat array with its shape, or a tensor. */
export type ColumnSource = NestedArray | FlatColumn | Tensor;

/** Elements in row-major order with their shape: the fast way to pass large data. */
export interface FlatColumn {
  readonly values: NumberArray | readonly number[];
  /** The number of rows comes first. */
  readonly shape: Shape;
  /** Default: that of the typed array; f32 for plain arrays. */
  readonly dtype?: Dtype;
  /** For labels: the number of classes. A label outside them is rejected, with its row. */
  readonly labels?: LabelRange;
}

/** The classes of a label column. */
export interface LabelRange {
  readonly classes: number;
  /** The label of rows that do not count. Default: −100. */
  readonly ignoreIndex?: number;
}

/** A column, ready for upload. */
export interface Column {
  /** [rows, …row] */
  readonly shape: Shape;
  readonly dtype: Dtype;
  /** The elements in the device's format. */
  readonly elements: ArrayBufferView;
}

/** A row of a `TensorDataset`: an array for each column. */
export type TensorSample<Sources extends readonly ColumnSource[]> = {
  readonly [Index in keyof Sources]: HostArray;
};

/**
 * Rows of one or more columns, such as inputs and labels. Rejects a NaN or an infinity, with its row. Pass labels as an
 * Int32Array, which stays i32.
 *
 * @example
 * ```ts
 * import { TensorDataset } from "holdfast";
 * const data = new TensorDataset([[0, 0], [0, 1], [1, 0], [1, 1]], new Int32Array([0, 1, 1, 0]));
 * console.log(data.rows, data.columns.map(({ dtype }) => dtype)); // → 4 [ 'f32', 'i32' ]
 * ```
 */
export class TensorDataset<Sources extends readonly ColumnSource[] = readonly ColumnSource[]> extends Dataset<
  TensorSample<Sources>
> {
  readonly rows: number;
  readonly columns: readonly Column[];
  readonly #placed = new WeakMap<Device, Region>();

  constructor(...sources: Sources) {
    super();
    this.columns = sources.map(readColumn);
    this.rows = this.columns[0]?.shape[0] ?? 0;
    if (this.rows === 0) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        "A data set needs at least one column with at least one row. Pass the inputs, then the labels.",
      );
    }
    for (const [index, { shape }] of this.columns.entries()) {
      if (shape[0] === this.rows) continue;
      throw new HoldfastError(
        "BAD_SHAPE",
        `Column ${index} has shape ${formatShape(shape)} and column 0 has ${this.rows} rows; all columns need the same number.`,
        { numbers: { column: index, rows: this.rows } },
      );
    }
  }

  /**
   * The number of rows, for samplers and data sets made of others.
   *
   * @example
   * ```ts
   * import { TensorDataset } from "holdfast";
   * console.log(new TensorDataset([[1], [2], [3]]).length); // → 3
   * ```
   */
  get length(): number {
    return this.rows;
  }

  /**
   * A row as a sample: an array for each column. Half floats are widened.
   *
   * @example
   * ```ts
   * import { TensorDataset } from "holdfast";
   * const [x, y] = new TensorDataset([[1, 2], [3, 4]], new Int32Array([5, 6])).get(1);
   * console.log(x.values, y.values, y.shape); // → Float32Array(2) [ 3, 4 ] Int32Array(1) [ 6 ] []
   * ```
   */
  override get(row: number): TensorSample<Sources> {
    requireIndex("TensorDataset", row, this.rows);
    const sample = this.columns.map(({ shape: [, ...shape], dtype, elements }): HostArray => {
      const width = sizeOf(shape);
      const all = elements as Float32Array | Uint16Array;
      const values = all.subarray(row * width, (row + 1) * width);
      if (!(values instanceof Uint16Array)) return { values, shape, dtype };
      return { values: dtype === "bf16" ? widenBf16(values) : widenF16(values), shape, dtype };
    });
    return sample as unknown as TensorSample<Sources>;
  }

  /**
   * The size of all columns, in bytes.
   *
   * @example
   * ```ts
   * import { TensorDataset } from "holdfast";
   * console.log(new TensorDataset([[1, 2], [3, 4]], new Int32Array([0, 1])).bytes); // → 24
   * ```
   */
  get bytes(): number {
    return this.columns.reduce((sum, { elements }) => sum + elements.byteLength, 0);
  }

  /**
   * Places the columns in a device's persistent memory; uploads them at the first call.
   *
   * @example
   * ```ts
   * import { device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset([[1, 2], [3, 4]]);
   * const [column] = data.placeOn(cpu);
   * console.log(column?.shape, data.placeOn(cpu)[0]?.storage === column?.storage); // → [ 2, 2 ] true
   * cpu.close();
   * ```
   */
  placeOn(device: Device): readonly DeviceArray[] {
    const region = this.#placed.get(device) ?? this.#upload(device);
    return this.columns.map(({ shape, dtype }, index) => ({
      shape,
      strides: contiguousStrides(shape),
      dtype,
      storage: region.storages[index],
    }));
  }

  /**
   * Frees the data set's memory on a device; loaders there can no longer be used. Does nothing if it was not placed.
   *
   * @example
   * ```ts
   * import { device, TensorDataset } from "holdfast";
   * const cpu = await device("cpu");
   * const data = new TensorDataset([[1, 2], [3, 4]]);
   * data.placeOn(cpu);
   * data.release(cpu);
   * console.log(cpu.diagnostics().budget.usedByLabel["data set"]); // → 0
   * cpu.close();
   * ```
   */
  release(device: Device): void {
    const region = this.#placed.get(device);
    if (!region) return;
    this.#placed.delete(device);
    if (device.isOpen) device.runtime.persistent.release(region);
  }

  #upload(device: Device): Region {
    device.requireOpen();
    const { runtime } = device;
    const sizes = this.columns.map(({ elements }, index) => ({
      name: `column ${index}`,
      size: elements.byteLength,
    }));
    const region = runtime.persistent.place("data set", "data set", sizes);
    runtime.upload(
      region.storages.flatMap((target, index) => {
        const source = this.columns[index]?.elements;
        return source ? [{ source, target }] : [];
      }),
    );
    this.#placed.set(device, region);
    return region;
  }
}

function readColumn(source: ColumnSource, column: number): Column {
  const { values, shape, dtype, labels } = readSource(source);
  if (shape.length === 0 || values.length !== sizeOf(shape) || values.length === 0) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `Column ${column} has ${values.length} elements and shape ${formatShape(shape)}; a column is [rows, …row], with at ` +
        "least one element, and as many elements as its shape says.",
      { numbers: { column, elements: values.length } },
    );
  }
  const elements = encodeElements(values, dtype);
  requireFinite({ shape, dtype, elements }, values, column);
  if (labels) requireLabels(values, labels, sizeOf(shape.slice(1)), column);
  return { shape, dtype, elements };
}

interface ReadSource {
  readonly values: ArrayLike<number>;
  readonly shape: Shape;
  readonly dtype: Dtype;
  readonly labels?: LabelRange | undefined;
}

function readSource(source: ColumnSource): ReadSource {
  if (source instanceof Tensor) {
    return { values: source.dataSync(), shape: source.shape, dtype: source.dtype };
  }
  const { values, shape, dtype, labels } = isFlat(source)
    ? source
    : { values: source, shape: undefined, dtype: undefined, labels: undefined };
  const nested = readNested(values);
  const requested = dtype ?? (ArrayBuffer.isView(values) ? dtypeOfArray(values) : undefined);
  return {
    values: nested.values,
    shape: shape ?? nested.shape,
    dtype: chooseDtype(nested, requested),
    labels,
  };
}

function isFlat(source: NestedArray | FlatColumn): source is FlatColumn {
  return typeof source === "object" && !Array.isArray(source) && !ArrayBuffer.isView(source);
}

/**
 * Training on a NaN puts NaN into every weight after one step, with no trace of its origin. Checks the device's
 * elements, because a number too large for its dtype has become an infinity there.
 */
function requireFinite({ shape, dtype, elements }: Column, values: ArrayLike<number>, column: number): void {
  const stored = viewFloats(dtype, elements);
  const index = stored ? firstNotFinite(stored) : -1;
  if (index < 0) return;
  const width = sizeOf(shape.slice(1));
  const [row, element] = [Math.floor(index / width), index % width];
  const value = values[index];
  throw new HoldfastError(
    "NOT_FINITE",
    `Row ${row} of column ${column} has ${value} as element ${element}${Number.isFinite(value) ? `, outside the range of ${dtype}` : ""}. ` +
      "Leave the row out, or replace the number.",
    { numbers: { row, column, element } },
  );
}

function requireLabels(
  values: ArrayLike<number>,
  { classes, ignoreIndex = defaultIgnoreIndex }: LabelRange,
  width: number,
  column: number,
): void {
  for (let index = 0; index < values.length; index++) {
    const label = values[index] ?? Number.NaN;
    if (label === ignoreIndex || (Number.isInteger(label) && label >= 0 && label < classes)) continue;
    const row = Math.floor(index / width);
    throw new HoldfastError(
      "BAD_INDEX",
      `Row ${row} of column ${column} has the label ${label}; the ${classes} classes are 0 to ${classes - 1}. Correct the ` +
        `label, or set it to ${ignoreIndex} to ignore the row.`,
      { numbers: { row, column, label, classes } },
    );
  }
}

/** Data may have half a billion elements: a plain loop takes a quarter of the time of findIndex. */
function firstNotFinite(values: ArrayLike<number>): number {
  for (let index = 0; index < values.length; index++) if (!Number.isFinite(values[index])) return index;
  return -1;
}

function viewFloats(dtype: Dtype, elements: ArrayBufferView): Float32Array | Float64Array | undefined {
  if (elements instanceof Float32Array || elements instanceof Float64Array) return elements;
  if (!(elements instanceof Uint16Array)) return undefined;
  return dtype === "bf16" ? widenBf16(elements) : widenF16(elements);
}
