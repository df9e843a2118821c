/** Norms of vectors and matrices, and condition numbers. */

import { checkOptions, HoldfastError } from "../../errors/index.js";
import { axisOf } from "../../ops/index.js";
import type { Tensor } from "../tensor.js";
import { requireDecomposable, requireMatrix } from "./checks.js";
import { inv } from "./solvers.js";
import { svdvals } from "./spectral.js";

/** `ord`: default: 2; any number, or an infinity. `axes`: default: all. */
export interface VectorNormOptions {
  readonly ord?: number;
  readonly axes?: number | readonly number[];
  readonly keepdim?: boolean;
}

/**
 * The norm (Σ |x|^ord)^(1/ord) over axes, or over all elements. An order of 0 counts the elements that are not 0.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[3, -4], [0, 6]]);
 * console.log(linalg.vectorNorm(x, { axes: 1 }).tolist(), linalg.vectorNorm(x, { ord: 0 }).item()); // → [ 5, 6 ] 3
 * cpu.close();
 * ```
 */
export function vectorNorm(x: Tensor, options: VectorNormOptions = {}): Tensor {
  const {
    ord = 2,
    axes,
    keepdim = false,
  } = checkOptions("linalg.vectorNorm", options, { ord: true, axes: true, keepdim: true });
  if (ord === 0) return x.ne(0).sum(axes, { keepdim }).to(x.dtype);
  return x.norm(axes, { p: ord, keepdim });
}

/** An order of a matrix norm. */
export type MatrixOrder = "fro" | "nuc" | 1 | -1 | 2 | -2 | number;

/** `ord`: default: "fro". `axes`: those of the rows and the columns; default: the last two. */
export interface MatrixNormOptions {
  readonly ord?: MatrixOrder;
  readonly axes?: readonly [number, number];
  readonly keepdim?: boolean;
}

/**
 * A norm of matrices: "fro", the root of the sum of squares; "nuc", the sum of the singular values; 2 and −2, the largest and the smallest of them; 1
 * and −1, the largest and the smallest sum of magnitudes of a column; ±Infinity, the same of a row.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const a = tensor([[3, 0], [0, -4]]);
 * console.log(linalg.matrixNorm(a).item(), linalg.matrixNorm(a, { ord: "nuc" }).item()); // → 5 7
 * cpu.close();
 * ```
 */
export function matrixNorm(a: Tensor, options: MatrixNormOptions = {}): Tensor {
  const {
    ord = "fro",
    axes = [-2, -1],
    keepdim = false,
  } = checkOptions("linalg.matrixNorm", options, { ord: true, axes: true, keepdim: true });
  const needsValues = ord === "nuc" || ord === 2 || ord === -2;
  (needsValues ? requireDecomposable : requireMatrix)("linalg.matrixNorm", a);
  const [row, column] = [
    axisOf("linalg.matrixNorm", axes[0], a.ndim),
    axisOf("linalg.matrixNorm", axes[1], a.ndim),
  ];
  const matrices = a.movedim([row, column], [-2, -1]);
  const norm = normOfMatrices(matrices, ord);
  if (!keepdim) return norm;
  const [first, last] = [Math.min(row, column), Math.max(row, column)];
  return norm.unsqueeze(first).unsqueeze(last);
}

function normOfMatrices(a: Tensor, ord: MatrixOrder): Tensor {
  switch (ord) {
    case "fro":
      return a.norm([-2, -1]);
    case "nuc":
      return svdvals(a).sum(-1);
    case 2:
      return svdvals(a).amax(-1);
    case -2:
      return svdvals(a).amin(-1);
    case 1:
      return a.norm(-2, { p: 1 }).amax(-1);
    case -1:
      return a.norm(-2, { p: 1 }).amin(-1);
    case Number.POSITIVE_INFINITY:
      return a.norm(-1, { p: 1 }).amax(-1);
    case Number.NEGATIVE_INFINITY:
      return a.norm(-1, { p: 1 }).amin(-1);
    default:
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `linalg.matrixNorm: the order is ${ord}. Pass "fro", "nuc", 1, -1, 2, -2, Infinity or -Infinity.`,
        { numbers: { ord } },
      );
  }
}

/** Options of `norm`. */
export interface NormOptions {
  readonly ord?: MatrixOrder;
  readonly axes?: number | readonly number[];
  readonly keepdim?: boolean;
}

/**
 * `matrixNorm` if an order is given, and two axes or a matrix without axes; otherwise `vectorNorm`.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const a = tensor([[3, 0], [0, -4]]);
 * console.log(linalg.norm(a).item(), linalg.norm(a, { ord: 1 }).item(), linalg.norm(a, { axes: 0 }).tolist()); // → 5 4 [ 3, 4 ]
 * cpu.close();
 * ```
 */
export function norm(x: Tensor, options: NormOptions = {}): Tensor {
  const {
    ord,
    axes,
    keepdim = false,
  } = checkOptions("linalg.norm", options, { ord: true, axes: true, keepdim: true });
  const pair = axes === undefined && x.ndim === 2 ? [0, 1] : axes;
  const isMatrix = typeof pair === "object" && pair.length === 2;
  if (ord !== undefined && isMatrix) {
    const [row = 0, column = 1] = pair;
    return matrixNorm(x, { ord, axes: [row, column], keepdim });
  }
  if (typeof ord === "string") {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `linalg.norm: the order "${ord}" is for matrices. Pass two axes.`,
      {
        numbers: { ord },
      },
    );
  }
  return vectorNorm(x, { ...(ord !== undefined && { ord }), ...(axes !== undefined && { axes }), keepdim });
}

/**
 * The condition numbers ‖A‖ · ‖A⁻¹‖ of matrices in an order of `matrixNorm`. Default: 2, for which they need not be square.
 *
 * @example
 * ```ts
 * import { device, linalg, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * console.log(linalg.cond(tensor([[8, 0], [0, 2]])).item()); // → 4
 * cpu.close();
 * ```
 */
export function cond(a: Tensor, options: { readonly ord?: MatrixOrder } = {}): Tensor {
  const { ord = 2 } = checkOptions("linalg.cond", options, { ord: true });
  requireDecomposable("linalg.cond", a);
  if (ord !== 2 && ord !== -2) return matrixNorm(a, { ord }).mul(matrixNorm(inv(a), { ord }));
  const values = svdvals(a);
  const [largest, smallest] = [values.select(-1, 0), values.select(-1, -1)];
  return ord === 2 ? largest.div(smallest) : smallest.div(largest);
}
