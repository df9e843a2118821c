/** tril and triu: the lower and the upper triangle of matrices, with zeros elsewhere. */

import { dtypes, iterateRows, type RowKernel, term } from "../../ir/index.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { cacheByDtypes } from "../row-lowering.js";
import { badShape, formatShape, sizeOf } from "../shape.js";

/** The main diagonal is 0; those above it are positive. */
export type TriangleAttributes = { readonly diagonal: number };

function triangle(name: "tril" | "triu", isKept: "le" | "ge"): KernelOp<TriangleAttributes> {
  /** Scalars: the rows of a matrix, and the diagonal. */
  const kernelFor = cacheByDtypes((dtype = "f32"): RowKernel => {
    const { compute } = dtypes[dtype];
    const [rows, diagonal] = [term.scalar(0, "i32"), term.scalar(1, "i32")];
    // The quotient in f64 is rounded to the right matrix, because it is at least 1/rows away from any other.
    const quotient = term.div(term.convert(term.row, "f64"), term.convert(rows, "f64"));
    const row = term.sub(term.row, term.mul(rows, term.convert(quotient, "i32")));
    const x = term.load(0, compute);
    const value = term.select(
      term[isKept](term.sub(term.position, row), diagonal),
      x,
      term.constant(0, compute),
    );
    return {
      name,
      inputs: [dtype],
      outputs: [{ dtype, per: "element" }],
      scalars: ["i32", "i32"],
      stages: [{ kind: "store", output: 0, value }],
    };
  });
  const op: KernelOp<TriangleAttributes> = {
    kind: "kernel",
    name,
    infer(operands) {
      const { shape, dtype } = typeAt(name, operands, 0);
      if (shape.length >= 2) return [{ shape, dtype }];
      throw badShape(name, `shape ${formatShape(shape)}: a matrix has two axes or more.`);
    },
    gradient: (rule) => [rule.apply(op, [rule.upstream], rule.attributes)],
    lower(lowering, operands, [output], { diagonal }) {
      const { shape, strides, dtype, storage } = arrayAt(operands, 0);
      if (!storage || !output?.storage || sizeOf(shape) === 0) return;
      lowering.row({
        kernel: kernelFor(dtype),
        iteration: iterateRows(shape, [strides, output.strides], 1),
        operands: [storage, output.storage],
        scalars: [shape.at(-2) ?? 1, diagonal],
      });
    },
  };
  return op;
}

export const tril = triangle("tril", "le");
export const triu = triangle("triu", "ge");
