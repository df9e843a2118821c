/** Shapes of batches of matrices, and the products and views of them that gradients use. */

import { HoldfastError } from "../../errors/index.js";
import { type Dtype, dtypes } from "../../ir/index.js";
import { matmul } from "../matmul/matmul.js";
import { permute, reshape } from "../movement/reshape.js";
import { slice } from "../movement/slice.js";
import type { GradientRule, OperandType } from "../op.js";
import { typeAt } from "../op.js";
import { badShape, formatShape, type Shape, sizeOf } from "../shape.js";

/** A batch of matrices: the leading axes, the rows and the columns. */
export interface Matrices {
  readonly leading: Shape;
  readonly rows: number;
  readonly columns: number;
  readonly batch: number;
  readonly dtype: Dtype;
}

export function splitMatrices({ shape, dtype }: { readonly shape: Shape; readonly dtype: Dtype }): Matrices {
  const leading = shape.slice(0, -2);
  return { leading, rows: shape.at(-2) ?? 1, columns: shape.at(-1) ?? 1, batch: sizeOf(leading), dtype };
}

/** An operand that must be a float matrix or a batch of them. */
export function matricesAt(op: string, operands: readonly OperandType[], index: number): Matrices {
  const type = typeAt(op, operands, index);
  if (type.shape.length < 2)
    throw badShape(op, `${formatShape(type.shape)} is no matrix; pass [..., rows, columns].`);
  if (dtypes[type.dtype].kind !== "float") {
    throw new HoldfastError("BAD_DTYPE", `${op} of ${type.dtype}: it needs floats. Convert with to("f64").`, {
      numbers: { op },
    });
  }
  return splitMatrices(type);
}

export function squareAt(op: string, operands: readonly OperandType[], index: number): Matrices {
  const matrices = matricesAt(op, operands, index);
  if (matrices.rows === matrices.columns) return matrices;
  const { shape } = typeAt(op, operands, index);
  throw badShape(op, `${formatShape(shape)}: the matrices must be square.`);
}

/** The products and views of a gradient rule, for short formulas. */
export function matrixAlgebra<V, A>({ apply, valueType }: GradientRule<V, A>) {
  const rankOf = (value: V): number => valueType(value).shape.length;
  return {
    /** [..., m, n] → [..., n, m]. */
    t(value: V): V {
      const rank = rankOf(value);
      const axes = Array.from({ length: rank - 2 }, (_, axis) => axis);
      return apply(permute, [value], { axes: [...axes, rank - 1, rank - 2] });
    },
    product(first: V, ...factors: readonly V[]): V {
      return factors.reduce((product, factor) => apply(matmul, [product, factor]), first);
    },
    /** Columns of a matrix, from one index to another. */
    columns: (value: V, start: number, end: number): V =>
      apply(slice, [value], { ranges: [...new Array<null>(rankOf(value) - 1).fill(null), [start, end]] }),
    /** Rows of a matrix, from one index to another. */
    rows: (value: V, start: number, end: number): V =>
      apply(slice, [value], { ranges: [...new Array<null>(rankOf(value) - 2).fill(null), [start, end]] }),
    /** [..., n] → [..., n, 1]. */
    asColumn: (value: V): V => apply(reshape, [value], { shape: [...valueType(value).shape, 1] }),
    /** [..., n] → [..., 1, n]. */
    asRow(value: V): V {
      const { shape } = valueType(value);
      return apply(reshape, [value], { shape: [...shape.slice(0, -1), 1, shape.at(-1) ?? 1] });
    },
    /** [..., 1, n] → [..., n]. */
    fromRow(value: V): V {
      const { shape } = valueType(value);
      return apply(reshape, [value], { shape: [...shape.slice(0, -2), shape.at(-1) ?? 1] });
    },
    /** [..., n, 1] → [..., n]. */
    fromColumn: (value: V): V => apply(reshape, [value], { shape: valueType(value).shape.slice(0, -1) }),
  };
}
