/** renormRows: scales the rows of a table that an index selects down to a maximum norm, for embeddings. */

import { HoldfastError } from "../../errors/index.js";
import { dtypes, type Expression, type ReduceOp, type RowKernel, term } from "../../ir/index.js";
import { copyArray } from "../copy.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { fillWith } from "../reduction/reduce.js";
import { requireFloat } from "../reduction/rule.js";
import { cacheByDtypes, lowerRows } from "../row-lowering.js";
import { badShape, formatShape, sizeOf } from "../shape.js";
import { asIndexList } from "./index-list.js";
import { indexTypeAt, requireIndicesInside } from "./index-values.js";
import { lowerScatter } from "./scatter.js";

/** `p`: the norm is (Σ |x|^p)^(1/p); the largest |x| for ∞. */
export type RenormRowsAttributes = { readonly maxNorm: number; readonly p: number };

const name = "renormRows";

interface NormExpression {
  readonly op: ReduceOp;
  readonly value: (x: Expression) => Expression;
  readonly finish: (total: Expression) => Expression;
}

/** Inputs: the table, and for each row how often the index has it. Other rows are neither changed nor stored. */
function kernelOf(dtype: keyof typeof dtypes, { op, value, finish }: NormExpression): RowKernel {
  const { compute } = dtypes[dtype];
  const [x, count] = [term.load(0, compute), term.load(1, "i32")];
  const norm = finish(term.reduced(0, compute));
  const maxNorm = term.scalar(0, compute);
  // As in PyTorch, a little less than the maximum.
  const scaled = term.mul(x, term.div(maxNorm, term.add(norm, 1e-7)));
  return {
    name,
    inputs: [dtype, "i32"],
    outputs: [{ dtype, per: "element" }],
    scalars: [compute, compute, compute],
    stages: [
      { kind: "reduce", op, value: value(x) },
      {
        kind: "store",
        output: 0,
        value: term.select(term.gt(count, 0), term.select(term.gt(norm, maxNorm), scaled, x), x),
      },
    ],
  };
}

const kernels = {
  sum: cacheByDtypes((dtype = "f32") =>
    kernelOf(dtype, { op: "add", value: term.abs, finish: (total) => total }),
  ),
  euclidean: cacheByDtypes((dtype = "f32") =>
    kernelOf(dtype, { op: "add", value: (x) => term.mul(x, x), finish: term.sqrt }),
  ),
  largest: cacheByDtypes((dtype = "f32") =>
    kernelOf(dtype, { op: "max", value: term.abs, finish: (total) => total }),
  ),
  power: cacheByDtypes((dtype = "f32") => {
    const { compute } = dtypes[dtype];
    return kernelOf(dtype, {
      op: "add",
      value: (x) => term.pow(term.abs(x), term.scalar(1, compute)),
      finish: (total) => term.pow(total, term.scalar(2, compute)),
    });
  }),
};

function kernelFor(dtype: keyof typeof dtypes, p: number): RowKernel {
  if (p === 1) return kernels.sum(dtype);
  if (p === 2) return kernels.euclidean(dtype);
  return p === Number.POSITIVE_INFINITY ? kernels.largest(dtype) : kernels.power(dtype);
}

/** Operands: a table [rows, width], and an index of any shape. */
export const renormRows: KernelOp<RenormRowsAttributes> = {
  kind: "kernel",
  name,
  inPlace: 0,
  noGradient: "it changes a table in place",
  infer(operands, { maxNorm, p }) {
    const { shape, dtype } = typeAt(name, operands, 0);
    indexTypeAt(name, operands, 1);
    requireFloat(name, dtype);
    if (shape.length !== 2)
      throw badShape(name, `a table of shape ${formatShape(shape)}; it must be [rows, width].`);
    if (maxNorm >= 0 && p > 0) return [{ shape, dtype }];
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `embedding: maxNorm is ${maxNorm} and normType ${p}. Pass a maxNorm of 0 or more and a normType above 0.`,
      { numbers: { maxNorm, normType: p } },
    );
  },
  check(context, operands) {
    const [rows = 0] = arrayAt(operands, 0).shape;
    requireIndicesInside(context, arrayAt(operands, 1), rows, `the table has ${rows} rows`);
  },
  lower(lowering, operands, [output], { maxNorm, p }) {
    const [table, index] = [arrayAt(operands, 0), arrayAt(operands, 1)];
    const [rows = 0, width = 0] = table.shape;
    const entries = sizeOf(index.shape);
    if (!output?.storage || rows * width === 0) return;
    const isInPlace = output.storage.span.address === table.storage?.span.address;
    if (!isInPlace) copyArray(lowering, table, output);
    if (entries === 0) return;
    const counts = lowering.scratchArray([rows], "i32");
    const ones = lowering.scratchArray([entries], "i32");
    fillWith(lowering, ones, 1);
    const list = { ...asIndexList(lowering, index), shape: [entries], strides: [1] };
    lowerScatter(lowering, {
      ...{ target: counts, axis: 0, index: list, isIndexShared: true, source: ones },
      overwrites: true,
    });
    lowerRows(lowering, {
      kernel: kernelFor(table.dtype, p),
      shape: table.shape,
      axes: [1],
      inputs: [output, { ...counts, shape: [rows, 1], strides: [1, 0] }],
      outputs: [output],
      scalars: [maxNorm, p, 1 / p],
    });
  },
};
