/** Functions that create tensors: from data, constants and ranges. */

import { checkOptions, HoldfastError, type OptionNames } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { formatShape, requireDtype, requireShape, type Shape, sizeOf } from "../ops/index.js";
import { type Device, deviceFor } from "./device.js";
import { chooseDtype, isBigInts, type NestedArray, readNested, type TypedNumbers } from "./format/nested.js";
import { dtypeOfArray, type HostValues } from "./host-values.js";
import type { Tensor } from "./tensor.js";

/** Options of the functions that create tensors. */
export interface TensorOptions {
  readonly dtype?: Dtype;
  /** Default: the first device that was opened. */
  readonly device?: Device;
  readonly requiresGrad?: boolean;
}

export const tensorOptionNames: OptionNames<TensorOptions> = {
  dtype: true,
  device: true,
  requiresGrad: true,
};

/**
 * A tensor from nested arrays, a number or a boolean. Default dtype of numbers: f32. A typed array implies its dtype: the elements of
 * a BigInt64Array are i64.
 *
 * @example
 * ```ts
 * import { device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(String(tensor([[1, 2.5], [3, 4]])));
 * // → tensor([[1.  2.5]
 * // →         [3.  4. ]], shape [2, 2], f32, cpu)
 * cpu.close();
 * ```
 */
export function tensor(data: NestedArray | BigInt64Array, options: TensorOptions = {}): Tensor {
  checkOptions("tensor", options, tensorOptionNames);
  if (data instanceof BigInt64Array) return fromTyped(data, [data.length], options);
  const nested = readNested(data);
  // A typed array implies its dtype.
  const dtype = options.dtype ?? (ArrayBuffer.isView(data) ? dtypeOfArray(data) : undefined);
  return fromValues(nested.values, nested.shape, chooseDtype(nested, dtype), options);
}

/**
 * A tensor from a typed array, in row-major order: the fast path for flat data. Float arrays, BigInt64Array, Int32Array,
 * Int8Array and Uint8Array keep their dtype. The default dtype of other integer arrays, BigUint64Array included, is i32. A number that
 * the dtype can't hold is rejected with its index.
 *
 * @example
 * ```ts
 * import { device, fromTyped } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(fromTyped(new Float32Array([1, 2, 3, 4]), [2, 2]).tolist()); // → [ [ 1, 2 ], [ 3, 4 ] ]
 * console.log(fromTyped(new BigInt64Array([5n, -7n]), [2]).dtype); // → i64
 * cpu.close();
 * ```
 */
export function fromTyped(values: TypedNumbers, shape: Shape, options: TensorOptions = {}): Tensor {
  checkOptions("fromTyped", options, tensorOptionNames);
  requireShape("fromTyped", shape);
  requireTyped(values);
  if (values.length !== sizeOf(shape)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `fromTyped got ${values.length} elements for shape ${formatShape(shape)}, which has ${sizeOf(shape)}.`,
    );
  }
  const arrayDtype = dtypeOfArray(values);
  const dtype = options.dtype ?? arrayDtype ?? "i32";
  if (dtype === "i64" && values instanceof BigInt64Array) return fromValues(values, shape, dtype, options);
  const numbers = isBigInts(values) ? Float64Array.from(values, Number) : values;
  // An array of this dtype has no number out of range, and bool takes any number except 0 as true.
  if (dtype !== arrayDtype && dtype !== "bool")
    chooseDtype({ shape, values: numbers, kind: "integer" }, dtype);
  return fromValues(numbers, shape, dtype, options);
}

/** JavaScript callers are not type-checked. */
function requireTyped(values: unknown): asserts values is TypedNumbers {
  if (ArrayBuffer.isView(values) && !(values instanceof DataView)) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `fromTyped got ${Array.isArray(values) ? "a plain array" : `a value of type ${typeof values}`}. Pass a typed array, or use tensor() for nested arrays.`,
  );
}

/**
 * A tensor whose elements all have one value.
 *
 * @example
 * ```ts
 * import { device, full } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(full([2, 2], 7).tolist()); // → [ [ 7, 7 ], [ 7, 7 ] ]
 * cpu.close();
 * ```
 */
export function full(shape: Shape, value: number, options: TensorOptions = {}): Tensor {
  checkCreation("full", shape, options);
  return fullOf(shape, value, options);
}

/**
 * A tensor of zeros.
 *
 * @example
 * ```ts
 * import { device, zeros } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(zeros([3]).tolist()); // → [ 0, 0, 0 ]
 * cpu.close();
 * ```
 */
export function zeros(shape: Shape, options: TensorOptions = {}): Tensor {
  checkCreation("zeros", shape, options);
  return fullOf(shape, 0, options);
}

/**
 * A tensor of ones.
 *
 * @example
 * ```ts
 * import { device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(ones([2]).tolist()); // → [ 1, 1 ]
 * cpu.close();
 * ```
 */
export function ones(shape: Shape, options: TensorOptions = {}): Tensor {
  checkCreation("ones", shape, options);
  return fullOf(shape, 1, options);
}

/**
 * Numbers from `start` (default: 0) up to but not including `end`, in steps of `step` (default: 1). Default dtype: i32, or f32
 * if one of the three is fractional.
 *
 * @example
 * ```ts
 * import { arange, device } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(arange(4).tolist(), arange(1, 2, 0.5).tolist()); // → [ 0, 1, 2, 3 ] [ 1, 1.5 ]
 * cpu.close();
 * ```
 */
export function arange(startOrEnd: number, end?: number, step = 1, options: TensorOptions = {}): Tensor {
  checkOptions("arange", options, tensorOptionNames);
  const [from, to] = end === undefined ? [0, startOrEnd] : [startOrEnd, end];
  const count = Math.max(0, Math.ceil((to - from) / step));
  if (!Number.isFinite(count)) {
    throw new HoldfastError("BAD_ARGUMENT", `arange from ${from} to ${to} in steps of ${step} has no end.`);
  }
  const isWhole = [from, to, step].every(Number.isInteger);
  const values = (): Float64Array => Float64Array.from({ length: count }, (_, index) => from + index * step);
  return make(values, [count], options.dtype ?? (isWhole ? "i32" : "f32"), options);
}

/**
 * `count` numbers from `start` to `end`, both included.
 *
 * @example
 * ```ts
 * import { device, linspace } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linspace(0, 1, 5).tolist()); // → [ 0, 0.25, 0.5, 0.75, 1 ]
 * cpu.close();
 * ```
 */
export function linspace(start: number, end: number, count: number, options: TensorOptions = {}): Tensor {
  checkOptions("linspace", options, tensorOptionNames);
  requireShape("linspace", [count]);
  const step = count > 1 ? (end - start) / (count - 1) : 0;
  const values = (): Float64Array => Float64Array.from({ length: count }, (_, index) => start + index * step);
  return make(values, [count], options.dtype ?? "f32", options);
}

/**
 * The identity matrix.
 *
 * @example
 * ```ts
 * import { device, eye } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(eye(2).tolist()); // → [ [ 1, 0 ], [ 0, 1 ] ]
 * cpu.close();
 * ```
 */
export function eye(rows: number, columns = rows, options: TensorOptions = {}): Tensor {
  checkOptions("eye", options, tensorOptionNames);
  requireShape("eye", [rows, columns]);
  const values = (): Float64Array => {
    const zeros = new Float64Array(rows * columns);
    for (let row = 0; row < Math.min(rows, columns); row++) zeros[row * columns + row] = 1;
    return zeros;
  };
  return make(values, [rows, columns], options.dtype ?? "f32", options);
}

/**
 * Zeros with the shape, dtype and device of another tensor.
 *
 * @example
 * ```ts
 * import { device, tensor, zerosLike } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(zerosLike(tensor([[1, 2]], { dtype: "i32" })).tolist()); // → [ [ 0, 0 ] ]
 * cpu.close();
 * ```
 */
export function zerosLike(like: Tensor, options: TensorOptions = {}): Tensor {
  checkOptions("zerosLike", options, tensorOptionNames);
  return fullOf(like.shape, 0, { dtype: like.dtype, device: like.device, ...options });
}

/**
 * Ones with the shape, dtype and device of another tensor.
 *
 * @example
 * ```ts
 * import { device, onesLike, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(onesLike(tensor([[1, 2]])).tolist()); // → [ [ 1, 1 ] ]
 * cpu.close();
 * ```
 */
export function onesLike(like: Tensor, options: TensorOptions = {}): Tensor {
  checkOptions("onesLike", options, tensorOptionNames);
  return fullOf(like.shape, 1, { dtype: like.dtype, device: like.device, ...options });
}

/** Checks a shape and options. In `zeros(2, 3)`, as PyTorch has it, the second size is in the place of the options. */
export function checkCreation(caller: string, shape: Shape, options: TensorOptions): void {
  if (typeof options === "object") checkOptions(caller, options, tensorOptionNames);
  requireShape(caller, shape);
  checkOptions(caller, options, tensorOptionNames);
}

function fullOf(shape: Shape, value: number, options: TensorOptions): Tensor {
  const { dtype = "f32" } = options;
  const Elements = dtype === "f32" ? Float32Array : Float64Array;
  return make(() => new Elements(sizeOf(shape)).fill(value), shape, dtype, options);
}

function fromValues(values: HostValues, shape: Shape, dtype: Dtype, options: TensorOptions): Tensor {
  return make(() => values, shape, dtype, options);
}

/** Allocates device memory before the values are computed, because either may fail for lack of memory. */
function make(values: () => HostValues, shape: Shape, dtype: Dtype, options: TensorOptions): Tensor {
  requireDtype("A new tensor", dtype);
  const result = deviceFor(options.device).make(values, shape, dtype);
  if (options.requiresGrad) result.requiresGrad = true;
  return result;
}
