/** Plain arrays for the reference interpreter of ONNX files. Integers of 64 bits are numbers too. */

import assert from "node:assert/strict";
import { type Dtype, dtypes, viewElements } from "holdfast";
import { narrowToBf16, narrowToF16, widenBf16, widenF16 } from "../../../src/ir/index.js";
import type { AttributeContent, ReadTensor } from "./read-model.js";

export interface PlainArray {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly data: readonly number[];
}

export type AttributeKind = "int" | "float" | "text" | "ints" | "floats" | "texts";

export interface OperatorCall {
  readonly inputs: readonly (PlainArray | undefined)[];
  readonly attributes: Readonly<Record<string, AttributeContent>>;
  readonly outputCount: number;
}

/** An operator of opset 20: what a node may have, and what it computes. */
export interface Operator {
  readonly inputs: readonly [min: number, max: number];
  /** Default: exactly one. */
  readonly outputs?: readonly [min: number, max: number];
  readonly attributes?: Readonly<Record<string, AttributeKind>>;
  run(call: OperatorCall): PlainArray | readonly PlainArray[];
}

export const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

export function stridesOf(shape: readonly number[]): number[] {
  return shape.map((_, axis) => sizeOf(shape.slice(axis + 1)));
}

/** The coordinates of each element in row-major order. */
export function* coordinatesOf(shape: readonly number[]): Generator<readonly number[]> {
  const at = shape.map(() => 0);
  for (let count = sizeOf(shape); count > 0; count--) {
    yield at;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      at[axis]! += 1;
      if (at[axis]! < shape[axis]!) break;
      at[axis] = 0;
    }
  }
}

/** An array with an element for each coordinate. */
export function generate(
  dtype: Dtype,
  shape: readonly number[],
  value: (at: readonly number[]) => number,
): PlainArray {
  assert.ok(
    shape.every((size) => Number.isSafeInteger(size) && size >= 0),
    `the shape [${shape}]`,
  );
  const data: number[] = [];
  for (const at of coordinatesOf(shape)) data.push(rounded(dtype, value(at)));
  return { dtype, shape: [...shape], data };
}

/** The nearest number of the dtype. Integers wrap around; those of 64 bits must hold it. */
export function rounded(dtype: Dtype, value: number): number {
  switch (dtype) {
    case "f64":
      return value;
    case "f32":
      return Math.fround(value);
    case "bf16":
      return widenBf16(narrowToBf16(Float32Array.of(value)))[0]!;
    case "f16":
      return widenF16(narrowToF16(Float32Array.of(value)))[0]!;
    case "i32":
      return value | 0;
    case "i8":
      return (value << 24) >> 24;
    case "u8":
      return value & 255;
    case "bool":
      return Number(value !== 0);
    default:
      return Math.trunc(value);
  }
}

export function elementAt({ shape, data }: PlainArray, at: readonly number[]): number {
  let index = 0;
  for (const [axis, size] of shape.entries()) {
    const place = at[axis] ?? -1;
    assert.ok(place >= 0 && place < size, `element [${at}] of [${shape}]`);
    index = index * size + place;
  }
  return data[index]!;
}

/** An element of an array that is broadcast to coordinates. */
export function broadcastAt(array: PlainArray, at: readonly number[]): number {
  const added = at.length - array.shape.length;
  return elementAt(
    array,
    array.shape.map((size, axis) => (size === 1 ? 0 : at[axis + added]!)),
  );
}

export function broadcastShape(...shapes: readonly (readonly number[])[]): number[] {
  const rank = Math.max(...shapes.map(({ length }) => length));
  return Array.from({ length: rank }, (_, axis) => {
    const sizes = shapes.map((shape) => shape[axis - rank + shape.length] ?? 1);
    const size = sizes.find((each) => each !== 1) ?? 1;
    assert.ok(
      sizes.every((each) => each === 1 || each === size),
      `${JSON.stringify(shapes)} do not broadcast`,
    );
    return size;
  });
}

export function requireDtypes(arrays: readonly PlainArray[], allowed: readonly Dtype[]): void {
  for (const { dtype } of arrays) {
    assert.ok(allowed.includes(dtype), `${dtype} is none of ${allowed}`);
    assert.equal(dtype, arrays[0]!.dtype, "operands of different dtypes");
  }
}

export const floats: readonly Dtype[] = ["f32", "f64", "f16", "bf16"];
export const numeric: readonly Dtype[] = [...floats, "i32", "i64"];
export const everyDtype: readonly Dtype[] = [...numeric, "i8", "u8", "bool"];

/** A vector of i64, as numbers. */
export function intsOf(array: PlainArray | undefined): readonly number[] {
  assert.equal(array?.dtype, "i64");
  assert.equal(array.shape.length, 1);
  return array.data;
}

export function plainArray({ dtype, shape, bytes }: ReadTensor): PlainArray {
  const copy = bytes.slice();
  if (dtype === "bf16" || dtype === "f16") {
    const halves = new Uint16Array(copy.buffer);
    return { dtype, shape, data: Array.from(dtype === "bf16" ? widenBf16(halves) : widenF16(halves)) };
  }
  assert.equal(copy.byteLength, sizeOf(shape) * dtypes[dtype].bytes);
  return { dtype, shape, data: Array.from(viewElements(dtype, copy) as unknown as number[], Number) };
}
