/** More functions that create tensors: by another tensor's shape, on a logarithmic scale, and the indices of triangles. */

import { checkOptions } from "../errors/index.js";
import type { Shape } from "../ops/index.js";
import { requireShape } from "../ops/index.js";
import { checkCreation, fromTyped, full, type TensorOptions, tensorOptionNames } from "./creation.js";
import type { Tensor } from "./tensor.js";

/**
 * One value in the shape of another tensor, with its dtype and device.
 *
 * @example
 * ```ts
 * import { device, fullLike, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(fullLike(tensor([1, 2]), 7).tolist()); // → [ 7, 7 ]
 * cpu.close();
 * ```
 */
export function fullLike(like: Tensor, value: number, options: TensorOptions = {}): Tensor {
  checkOptions("fullLike", options, tensorOptionNames);
  return full(like.shape, value, { dtype: like.dtype, device: like.device, ...options });
}

/**
 * A tensor to be written. Its elements are 0: no tensor has unwritten memory.
 *
 * @example
 * ```ts
 * import { device, empty } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(empty([2, 3]).shape); // → [ 2, 3 ]
 * cpu.close();
 * ```
 */
export function empty(shape: Shape, options: TensorOptions = {}): Tensor {
  checkCreation("empty", shape, options);
  return full(shape, 0, options);
}

/**
 * A tensor to be written in the shape of another one, with its dtype and device. Its elements are 0.
 *
 * @example
 * ```ts
 * import { device, emptyLike, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(emptyLike(tensor([1, 2])).shape); // → [ 2 ]
 * cpu.close();
 * ```
 */
export function emptyLike(like: Tensor, options: TensorOptions = {}): Tensor {
  checkOptions("emptyLike", options, tensorOptionNames);
  return fullLike(like, 0, options);
}

/**
 * `count` powers of a base (default: 10), with exponents from `start` to `end`, both included.
 *
 * @example
 * ```ts
 * import { device, logspace } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(logspace(0, 2, 3).tolist()); // → [ 1, 10, 100 ]
 * cpu.close();
 * ```
 */
export function logspace(
  start: number,
  end: number,
  count: number,
  given: TensorOptions & { readonly base?: number } = {},
): Tensor {
  const { base = 10, ...options } = checkOptions("logspace", given, {
    dtype: true,
    device: true,
    requiresGrad: true,
    base: true,
  });
  requireShape("logspace", [count]);
  const step = count > 1 ? (end - start) / (count - 1) : 0;
  const values = Float64Array.from({ length: count }, (_, index) => base ** (start + index * step));
  return fromTyped(values, [count], { dtype: "f32", ...options });
}

/**
 * The rows and columns of the elements of a lower triangle, row by row: i32 [2, count].
 *
 * @example
 * ```ts
 * import { device, trilIndices } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(trilIndices(2, 2).tolist()); // → [ [ 0, 1, 1 ], [ 0, 0, 1 ] ]
 * cpu.close();
 * ```
 */
export function trilIndices(
  rows: number,
  columns: number,
  given: TensorOptions & { readonly offset?: number } = {},
): Tensor {
  const { offset = 0, ...options } = checkOptions("trilIndices", given, {
    dtype: true,
    device: true,
    requiresGrad: true,
    offset: true,
  });
  return triangleIndices("trilIndices", [rows, columns], options, (row, column) => column - row <= offset);
}

/**
 * The rows and columns of the elements of an upper triangle, row by row: i32 [2, count].
 *
 * @example
 * ```ts
 * import { device, triuIndices } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(triuIndices(2, 2).tolist()); // → [ [ 0, 0, 1 ], [ 0, 1, 1 ] ]
 * cpu.close();
 * ```
 */
export function triuIndices(
  rows: number,
  columns: number,
  given: TensorOptions & { readonly offset?: number } = {},
): Tensor {
  const { offset = 0, ...options } = checkOptions("triuIndices", given, {
    dtype: true,
    device: true,
    requiresGrad: true,
    offset: true,
  });
  return triangleIndices("triuIndices", [rows, columns], options, (row, column) => column - row >= offset);
}

function triangleIndices(
  op: string,
  shape: readonly [number, number],
  options: TensorOptions,
  isInside: (row: number, column: number) => boolean,
): Tensor {
  requireShape(op, shape);
  const [rowList, columnList]: [number[], number[]] = [[], []];
  for (let row = 0; row < shape[0]; row++) {
    for (let column = 0; column < shape[1]; column++) {
      if (!isInside(row, column)) continue;
      rowList.push(row);
      columnList.push(column);
    }
  }
  return fromTyped(Int32Array.from([...rowList, ...columnList]), [2, rowList.length], {
    dtype: "i32",
    ...options,
  });
}
