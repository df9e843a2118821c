/**
 * Nested arrays: the argument of `tensor([[1, 2], [3, 4]])`, and the result of `tolist()`. Invalid data is rejected with its
 * index. Arrays are processed axis by axis, without recursion, so a million elements take well under a second in any shape.
 */

import { HoldfastError } from "../../errors/index.js";
import type { Dtype, DtypeKind } from "../../ir/index.js";

export type NumberArray =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | Uint8Array
  | Uint8ClampedArray
  | Uint16Array
  | Uint32Array;

/** Every typed array, those of bigints included. */
export type TypedNumbers = NumberArray | BigInt64Array | BigUint64Array;

/** Numbers or booleans in arrays of any depth; the innermost may be typed arrays. */
export type NestedArray = number | boolean | NumberArray | readonly NestedArray[];

/** The result of `tolist()`: plain arrays only. */
export type NestedList = number | boolean | NestedList[];

export interface NestedValues {
  readonly shape: readonly number[];
  /** Row-major, booleans as 0 and 1. Data that is one typed array is not copied. */
  readonly values: NumberArray;
  /** `boolean` or `integer` if all elements are; booleans among numbers count as 0 and 1. */
  readonly kind: DtypeKind;
}

/** The depth at which data is rejected: an array may contain itself. */
const maxAxes = 64;

/** The shape and the elements of nested arrays: `[[1, 2, 3], [4, 5, 6]]` is 1, 2, 3, 4, 5, 6 in shape [2, 3]. */
export function readNested(data: NestedArray): NestedValues {
  const shape = shapeOf(data);
  const rows = innermostRows(data, shape);
  const [only] = rows;
  if (rows.length === 1 && isNumberArray(only)) {
    return { shape, values: only, kind: isWhole(only) ? "integer" : "float" };
  }
  const rowLength = shape.at(-1) ?? 1;
  const values = new Float64Array(rows.length * rowLength);
  let booleans = 0;
  for (const [index, row] of rows.entries()) {
    if (isNumberArray(row)) values.set(row, index * rowLength);
    else booleans += readRow(row, values, index * rowLength, shape);
  }
  const isBoolean = values.length > 0 && booleans === values.length;
  return { shape, values, kind: isBoolean ? "boolean" : isWhole(values) ? "integer" : "float" };
}

/**
 * The dtype for data that was read: the requested one, if it can hold every element. The default is bool for booleans and f32
 * for numbers: JavaScript can't tell 1 from 1.0, and most tensors are for training.
 */
export function chooseDtype({ shape, values, kind }: NestedValues, requested?: Dtype): Dtype {
  if (requested === undefined) return kind === "boolean" ? "bool" : "f32";
  const range = integerRanges[requested];
  if (range === undefined) return requested;
  const [min, max] = range;
  for (let index = 0; index < values.length; index++) {
    const value = values[index] ?? 0;
    if (Number.isInteger(value) && value >= min && value <= max) continue;
    throw new HoldfastError(
      "BAD_DTYPE",
      `${pathOf(index, shape)} is ${value}, but ${requested} holds whole numbers from ${min} to ${max}. ` +
        `Correct the data, or use another dtype${requested === "i64" ? ". Larger numbers come in a BigInt64Array" : ""}.`,
      { numbers: { index, value, min, max, dtype: requested } },
    );
  }
  return requested;
}

/** Those of i64 are what a JavaScript number holds exactly. */
const integerRanges: Partial<Record<Dtype, readonly [min: number, max: number]>> = {
  i64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  i32: [-(2 ** 31), 2 ** 31 - 1],
  i8: [-128, 127],
  u8: [0, 255],
  bool: [0, 1],
};

/** The inverse of `readNested`: row-major elements as nested arrays, as booleans if the kind is boolean. */
export function toNested(
  shape: readonly number[],
  values: ArrayLike<number | boolean>,
  kind: DtypeKind = "float",
): NestedList {
  const size = product(shape);
  if (values.length !== size) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `Got ${values.length} values for shape [${shape.join(", ")}], which has ${size} elements. Pass one value per element.`,
      { numbers: { values: values.length, size } },
    );
  }
  let items: NestedList[] =
    kind === "boolean" ? Array.from(values, (value) => Boolean(value)) : Array.from<number | boolean>(values);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const [inner, length] = [items, shape[axis] ?? 0];
    const count = product(shape.slice(0, axis));
    items = Array.from({ length: count }, (_, index) => inner.slice(index * length, (index + 1) * length));
  }
  return items[0] ?? [];
}

/** A row of the data. Its items may be anything, because JavaScript callers are not type-checked. */
type Row = NumberArray | readonly unknown[];

/** The shape of the data according to its first elements; the others must match it. */
function shapeOf(data: unknown): number[] {
  const shape: number[] = [];
  for (let inner = data; isRow(inner); inner = inner[0]) {
    if (shape.length === maxAxes) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `data nests more than ${maxAxes} arrays. Pass fewer axes; an array must not contain itself.`,
        { numbers: { maxAxes } },
      );
    }
    shape.push(inner.length);
    if (inner.length === 0) break;
  }
  return shape;
}

/** The rows of the last axis in order, each as long as the shape says. */
function innermostRows(data: unknown, shape: readonly number[]): Row[] {
  if (shape.length === 0) return [[data]];
  let items: readonly unknown[] = [data];
  for (const [axis, length] of shape.entries()) {
    const rows = items.map((item, index) => {
      if (isRow(item) && item.length === length) return item;
      throw misfit(item, pathOf(index, shape.slice(0, axis)), length, axis);
    });
    if (axis === shape.length - 1) return rows;
    // Array.from, not flat(): a hole must become an element, so that it is rejected with its index.
    items = rows.flatMap((row) => Array.from<unknown>(row));
  }
  return [];
}

/** Writes the elements of one row from index `start` on, and counts the booleans among them. */
function readRow(
  row: readonly unknown[],
  values: Float64Array,
  start: number,
  shape: readonly number[],
): number {
  let booleans = 0;
  for (let index = 0; index < row.length; index++) {
    const item = row[index];
    if (typeof item === "boolean") booleans++;
    else if (typeof item !== "number")
      throw misfit(item, pathOf(start + index, shape), undefined, shape.length);
    values[start + index] = Number(item);
  }
  return booleans;
}

/** The error for an item that should be a row of this length or, without a length, a number or a boolean. */
function misfit(item: unknown, path: string, length: number | undefined, axis: number): HoldfastError {
  const isElement = typeof item === "number" || typeof item === "boolean";
  if (!isElement && !isRow(item)) {
    return new HoldfastError(
      "BAD_ARGUMENT",
      `${path} is ${nameOf(item)}, but a tensor holds numbers and booleans. ${remedyFor(item)}`,
      { numbers: { path } },
    );
  }
  const first = `data${"[0]".repeat(axis)}`;
  const rule = "every row needs the same length.";
  if (isRow(item) && length !== undefined) {
    const count = `${item.length} ${item.length === 1 ? "element" : "elements"}`;
    return new HoldfastError("BAD_SHAPE", `${path} has ${count} where ${first} has ${length}; ${rule}`, {
      numbers: { path, length: item.length, expected: length },
    });
  }
  const actual = isRow(item) ? `an array of ${item.length}` : nameOf(item);
  const expected = length === undefined ? "one element" : `an array of ${length}`;
  return new HoldfastError("BAD_SHAPE", `${path} is ${actual} where ${first} is ${expected}; ${rule}`, {
    numbers: { path },
  });
}

function nameOf(item: unknown): string {
  if (item === undefined) return "undefined, or a hole in its array";
  if (item === null) return "null";
  if (typeof item === "object") return `an object of class ${item.constructor?.name ?? "null"}`;
  if (typeof item === "function") return "a function";
  if (typeof item === "string") return `the string ${JSON.stringify(item)}`;
  return `the ${typeof item} ${typeof item === "bigint" ? `${item}n` : String(item)}`;
}

function remedyFor(item: unknown): string {
  if (isBigInts(item))
    return "Pass it alone to tensor() or fromTyped(), or convert it with Float64Array.from(data, Number).";
  if (item === undefined || item === null) return "Put NaN or a number where a value is missing.";
  if (typeof item === "string" || typeof item === "bigint") return "Convert it with Number().";
  return "Pass nested arrays of numbers, or typed arrays.";
}

/** A flat index as a path: `data[1][0][2]`. */
function pathOf(index: number, shape: readonly number[]): string {
  let path = "";
  let rest = index;
  for (const length of shape.toReversed()) {
    path = `[${rest % length}]${path}`;
    rest = Math.floor(rest / length);
  }
  return `data${path}`;
}

function isRow(item: unknown): item is Row {
  return Array.isArray(item) || isNumberArray(item);
}

function isNumberArray(item: unknown): item is NumberArray {
  return ArrayBuffer.isView(item) && !(item instanceof DataView) && !isBigInts(item);
}

export function isBigInts(item: unknown): item is BigInt64Array | BigUint64Array {
  return item instanceof BigInt64Array || item instanceof BigUint64Array;
}

function isWhole(values: ArrayLike<number>): boolean {
  for (let index = 0; index < values.length; index++) if (!Number.isInteger(values[index])) return false;
  return values.length > 0;
}

function product(shape: readonly number[]): number {
  return shape.reduce((result, length) => result * length, 1);
}
