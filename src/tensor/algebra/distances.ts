/** Distances between the rows of matrices. */

import { checkOptions, HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape } from "../../ops/index.js";
import { cat } from "../functions.js";
import type { Tensor } from "../tensor.js";

/** `p`: default: 2, the Euclidean distance. */
export type DistanceOptions = { readonly p?: number };

const distanceOptionNames: OptionNames<DistanceOptions> = { p: true };

/**
 * The distance between each row of `a` [..., P, M] and each row of `b` [..., R, M]: [..., P, R].
 *
 * @example
 * ```ts
 * import { cdist, device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const points = tensor([[0, 0], [3, 4]]);
 * console.log(cdist(points, tensor([[0, 0], [3, 0]])).tolist()); // → [ [ 0, 3 ], [ 5, 4 ] ]
 * cpu.close();
 * ```
 */
export function cdist(a: Tensor, b: Tensor, options: DistanceOptions = {}): Tensor {
  const { p = 2 } = checkOptions("cdist", options, distanceOptionNames);
  if (a.ndim < 2 || b.ndim < 2 || a.size(-1) !== b.size(-1)) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `cdist of ${formatShape(a.shape)} and ${formatShape(b.shape)}: both are matrices, or batches of matrices, with rows of one length.`,
      { numbers: { op: "cdist" } },
    );
  }
  return normOf(a.unsqueeze(-2).sub(b.unsqueeze(-3)), -1, p);
}

/**
 * The distances between all pairs of different rows, in the order (0, 1), (0, 2), …, (1, 2), ….
 *
 * @example
 * ```ts
 * import { device, pdist, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(pdist(tensor([[0, 0], [3, 4], [3, 0]])).tolist()); // → [ 5, 3, 4 ]
 * cpu.close();
 * ```
 */
export function pdist(x: Tensor, options: DistanceOptions = {}): Tensor {
  const { p = 2 } = checkOptions("pdist", options, distanceOptionNames);
  if (x.ndim !== 2) {
    throw new HoldfastError(
      "BAD_SHAPE",
      `pdist of ${formatShape(x.shape)}: pass a matrix, one row for each point.`,
      {
        numbers: { op: "pdist" },
      },
    );
  }
  const rows = x.size(0);
  if (rows < 2) return x.slice([0, 0], [0, 0]).reshape([0]);
  const differences = Array.from({ length: rows - 1 }, (_, row) =>
    x.narrow(0, row + 1, rows - row - 1).sub(x.select(0, row)),
  );
  return normOf(cat(differences), -1, p);
}

/** The p-norm along an axis or of all elements; for p = 0 the number of elements that are not 0. */
export function normOf(x: Tensor, axis: number | undefined, p: number): Tensor {
  return p === 0 ? x.ne(0).sum(axis).to(x.dtype) : x.norm(axis, { p });
}
