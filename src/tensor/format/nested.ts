/**
 * Nested arrays in and out: what `tensor([[1, 2], [3, 4]])` is given, and what `tolist()` gives back. What can't be a
 * tensor is rejected with its place in the data. Axis by axis, not row by row: nothing here is recursive, and a million
 * elements take well under a second in any shape.
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

/** Every typed array: those of bigints too. */
export type TypedNumbers = NumberArray | BigInt64Array | BigUint64Array;

/** Numbers or booleans in arrays of any depth; the innermost may be typed arrays. */
export type NestedArray = number | boolean | NumberArray | readonly NestedArray[];

/** What comes out again: plain arrays only. */
export type NestedList = number | boolean | NestedList[];

export interface NestedValues {
  readonly shape: readonly number[];
  /** Row-major, booleans as 0 and 1. Data that is one typed array is not copied. */
  readonly values: NumberArray;
  /** `boolean` and `integer` where every element is one; booleans among numbers count as 0 and 1. */
  readonly kind: DtypeKind;
}

/** Deeper than any tensor, and where arrays that contain themselves are found out. */
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
  for (const [at, row] of rows.entries()) {
    if (isNumberArray(row)) values.set(row, at * rowLength);
    else booleans += readRow(row, values, at * rowLength, shape);
  }
  const isBoolean = values.length > 0 && booleans === values.length;
  return { shape, values, kind: isBoolean ? "boolean" : isWhole(values) ? "integer" : "float" };
}

/**
 * The dtype for data that was read: the one asked for, if it holds every element. Without one, booleans are bool and
 * numbers f32: JavaScript can't tell 1 from 1.0, and `tensor([1, 2, 3])` is meant for training more often than not.
 */
export function chooseDtype({ shape, values, kind }: NestedValues, asked?: Dtype): Dtype {
  if (asked === undefined) return kind === "boolean" ? "bool" : "f32";
  const range = integerRanges[asked];
  if (range === undefined) return asked;
  const [least, most] = range;
  for (let index = 0; index < values.length; index++) {
    const value = values[index] ?? 0;
    if (Number.isInteger(value) && value >= least && value <= most) continue;
    throw new HoldfastError(
      "BAD_DTYPE",
      `${pathOf(index, shape)} is ${value}, but ${asked} holds whole numbers from ${least} to ${most}. ` +
        "Correct the data, or ask for another dtype.",
      { numbers: { index, value, least, most, dtype: asked } },
    );
  }
  return asked;
}

const integerRanges: Partial<Record<Dtype, readonly [least: number, most: number]>> = {
  i32: [-(2 ** 31), 2 ** 31 - 1],
  u8: [0, 255],
  bool: [0, 1],
};

/** The inverse of `readNested`: row-major elements as nested arrays, 0 and 1 as booleans where the kind says so. */
export function toNested(
  shape: readonly number[],
  values: ArrayLike<number | boolean>,
  kind: DtypeKind = "float",
): NestedList {
  const size = product(shape);
  if (values.length !== size) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${values.length} values were given for shape [${shape.join(", ")}], which has ${size}. Give one value an element.`,
      { numbers: { values: values.length, size } },
    );
  }
  let items: NestedList[] =
    kind === "boolean" ? Array.from(values, (value) => Boolean(value)) : Array.from<number | boolean>(values);
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    const [inner, length] = [items, shape[axis] ?? 0];
    const count = product(shape.slice(0, axis));
    items = Array.from({ length: count }, (_, at) => inner.slice(at * length, (at + 1) * length));
  }
  return items[0] ?? [];
}

/** What stands at a place in data: anything, as JavaScript callers are not held to the types. */
type Row = NumberArray | readonly unknown[];

/** The shape that the first elements promise; the others are held to it. */
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
    // Array.from, not flat(): a hole must become an element, to be rejected with its place.
    items = rows.flatMap((row) => Array.from<unknown>(row));
  }
  return [];
}

/** Writes one row's elements behind `start` and counts the booleans among them. */
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

/** What is wrong with an item that should be a row of this length, or, without a length, a number or a boolean. */
function misfit(item: unknown, path: string, length: number | undefined, axis: number): HoldfastError {
  const isElement = typeof item === "number" || typeof item === "boolean";
  if (!isElement && !isRow(item)) {
    return new HoldfastError(
      "BAD_ARGUMENT",
      `${path} is ${nameOf(item)}, but a tensor holds numbers and booleans. ${wayOut(item)}`,
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
  const found = isRow(item) ? `an array of ${item.length}` : nameOf(item);
  const expected = length === undefined ? "one element" : `an array of ${length}`;
  return new HoldfastError("BAD_SHAPE", `${path} is ${found} where ${first} is ${expected}; ${rule}`, {
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

function wayOut(item: unknown): string {
  if (isBigInts(item)) return "Pass it to fromTyped(), or convert it with Int32Array.from(data, Number).";
  if (item === undefined || item === null) return "Put NaN or a number where a value is missing.";
  if (typeof item === "string" || typeof item === "bigint") return "Convert it with Number().";
  return "Pass nested arrays of numbers, or typed arrays.";
}

/** Where a flat index lies: `data[1][0][2]`. */
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
