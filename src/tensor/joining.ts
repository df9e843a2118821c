/** Functions of several tensors that join, broadcast and combine them. */

import { checkOptions, HoldfastError } from "../errors/index.js";
import { broadcastShapes as broadcast, formatShape, type Shape } from "../ops/index.js";
import { arange, tensor } from "./creation.js";
import { cat, stack } from "./functions.js";
import type { Tensor } from "./tensor.js";

/**
 * The shape to which shapes broadcast.
 *
 * @example
 * ```ts
 * import { broadcastShapes, device } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(broadcastShapes([3, 1], [4])); // → [ 3, 4 ]
 * cpu.close();
 * ```
 */
export function broadcastShapes(...shapes: readonly Shape[]): Shape {
  return broadcast("broadcastShapes", shapes);
}

/**
 * Views of tensors with the shape to which they broadcast.
 *
 * @example
 * ```ts
 * import { broadcastTensors, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [a, b] = broadcastTensors(tensor([[1], [2]]), tensor([3, 4]));
 * console.log(a?.tolist(), b?.tolist()); // → [ [ 1, 1 ], [ 2, 2 ] ] [ [ 3, 4 ], [ 3, 4 ] ]
 * cpu.close();
 * ```
 */
export function broadcastTensors(...tensors: readonly Tensor[]): Tensor[] {
  const shape = broadcastShapes(...tensors.map((x) => x.shape));
  return tensors.map((x) => x.expand(shape));
}

/**
 * The tensor with one axis or more.
 *
 * @example
 * ```ts
 * import { atleast1d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(atleast1d(tensor(5)).shape); // → [ 1 ]
 * cpu.close();
 * ```
 */
export function atleast1d(x: Tensor): Tensor {
  return x.ndim === 0 ? x.reshape([1]) : x;
}

/**
 * The tensor with two axes or more: a vector becomes a row.
 *
 * @example
 * ```ts
 * import { atleast2d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(atleast2d(tensor([1, 2])).shape); // → [ 1, 2 ]
 * cpu.close();
 * ```
 */
export function atleast2d(x: Tensor): Tensor {
  return x.ndim >= 2 ? x : x.reshape([1, -1]);
}

/**
 * The tensor with three axes or more: a matrix gets a last axis, and a vector one on both sides.
 *
 * @example
 * ```ts
 * import { atleast3d, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(atleast3d(tensor([1, 2])).shape); // → [ 1, 2, 1 ]
 * cpu.close();
 * ```
 */
export function atleast3d(x: Tensor): Tensor {
  if (x.ndim >= 3) return x;
  return x.ndim === 2 ? x.unsqueeze(-1) : x.reshape([1, -1, 1]);
}

/**
 * Concatenates along axis 1; vectors along axis 0.
 *
 * @example
 * ```ts
 * import { device, hstack, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(hstack([tensor([[1], [2]]), tensor([[3], [4]])]).tolist()); // → [ [ 1, 3 ], [ 2, 4 ] ]
 * cpu.close();
 * ```
 */
export function hstack(tensors: readonly Tensor[]): Tensor {
  const parts = tensors.map(atleast1d);
  return cat(parts, parts[0]?.ndim === 1 ? 0 : 1);
}

/**
 * Concatenates rows: along axis 0, where a vector is a row.
 *
 * @example
 * ```ts
 * import { device, tensor, vstack } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(vstack([tensor([1, 2]), tensor([3, 4])]).tolist()); // → [ [ 1, 2 ], [ 3, 4 ] ]
 * cpu.close();
 * ```
 */
export function vstack(tensors: readonly Tensor[]): Tensor {
  return cat(tensors.map(atleast2d), 0);
}

/**
 * Concatenates along axis 2, which vectors and matrices get.
 *
 * @example
 * ```ts
 * import { device, dstack, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(dstack([tensor([1, 2]), tensor([3, 4])]).tolist()); // → [ [ [ 1, 3 ], [ 2, 4 ] ] ]
 * cpu.close();
 * ```
 */
export function dstack(tensors: readonly Tensor[]): Tensor {
  return cat(tensors.map(atleast3d), 2);
}

/**
 * Concatenates columns: along axis 1, where a vector is a column.
 *
 * @example
 * ```ts
 * import { columnStack, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(columnStack([tensor([1, 2]), tensor([3, 4])]).tolist()); // → [ [ 1, 3 ], [ 2, 4 ] ]
 * cpu.close();
 * ```
 */
export function columnStack(tensors: readonly Tensor[]): Tensor {
  return hstack(tensors.map((x) => (x.ndim < 2 ? x.reshape([-1, 1]) : x)));
}

/**
 * The coordinates of a grid: one view for each vector, along an axis of its own. `indexing: "xy"` exchanges the first two axes. Default: "ij".
 *
 * @example
 * ```ts
 * import { device, meshgrid, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const [rows, columns] = meshgrid([tensor([1, 2]), tensor([3, 4])]);
 * console.log(rows?.tolist(), columns?.tolist()); // → [ [ 1, 1 ], [ 2, 2 ] ] [ [ 3, 4 ], [ 3, 4 ] ]
 * cpu.close();
 * ```
 */
export function meshgrid(
  tensors: readonly Tensor[],
  options: { readonly indexing?: "ij" | "xy" } = {},
): Tensor[] {
  const { indexing = "ij" } = checkOptions("meshgrid", options, { indexing: true });
  const vectors = tensors.map(atleast1d);
  const isExchanged = indexing === "xy" && vectors.length > 1;
  const axisAt = (index: number): number => (isExchanged && index < 2 ? 1 - index : index);
  const shape = vectors.map((_, axis) => vectors[axisAt(axis)]?.numel ?? 1);
  return vectors.map((x, index) =>
    x.reshape(shape.map((_, axis) => (axis === axisAt(index) ? -1 : 1))).expand(shape),
  );
}

/**
 * All combinations of one element of each vector, as rows.
 *
 * @example
 * ```ts
 * import { cartesianProd, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(cartesianProd(tensor([1, 2]), tensor([3, 4])).tolist()); // → [ [ 1, 3 ], [ 1, 4 ], [ 2, 3 ], [ 2, 4 ] ]
 * cpu.close();
 * ```
 */
export function cartesianProd(...tensors: readonly Tensor[]): Tensor {
  const [first] = tensors;
  if (first && tensors.length === 1) return first;
  return stack(
    meshgrid(tensors).map((x) => x.flatten()),
    1,
  );
}

/**
 * All combinations of `length` (default: 2) elements of a vector in its order, as rows.
 *
 * @example
 * ```ts
 * import { combinations, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(combinations(tensor([1, 2, 3])).tolist()); // → [ [ 1, 2 ], [ 1, 3 ], [ 2, 3 ] ]
 * cpu.close();
 * ```
 */
export function combinations(
  x: Tensor,
  length = 2,
  options: { readonly withReplacement?: boolean } = {},
): Tensor {
  const { withReplacement = false } = checkOptions("combinations", options, { withReplacement: true });
  if (x.ndim !== 1 || !Number.isInteger(length) || length < 0) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `combinations of ${length} of shape ${formatShape(x.shape)}: pass a vector and a whole length.`,
    );
  }
  const rows: number[][] = [];
  const extend = (row: readonly number[], from: number): void => {
    if (row.length === length) rows.push([...row]);
    else
      for (let index = from; index < x.numel; index++)
        extend([...row, index], withReplacement ? index : index + 1);
  };
  extend([], 0);
  if (rows.length === 0 || length === 0) return x.newZeros([0]);
  return x
    .indexSelect(0, tensor(rows.flat(), { dtype: "i32", device: x.device }))
    .reshape([rows.length, length]);
}

/**
 * The Vandermonde matrix: the columns are the powers of a vector, from the highest to 1. Default: as many columns as elements.
 *
 * @example
 * ```ts
 * import { device, tensor, vander } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(vander(tensor([2, 3]), 3).tolist()); // → [ [ 4, 2, 1 ], [ 9, 3, 1 ] ]
 * cpu.close();
 * ```
 */
export function vander(
  x: Tensor,
  columns = x.numel,
  options: { readonly increasing?: boolean } = {},
): Tensor {
  const { increasing = false } = checkOptions("vander", options, { increasing: true });
  const powers = arange(columns, undefined, 1, { dtype: x.dtype, device: x.device });
  return x.unsqueeze(1).pow(increasing ? powers : powers.flip(0));
}
