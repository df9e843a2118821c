/**
 * Attention with dropout of its probabilities, composed of plain ops, each with a result in memory. Without dropout,
 * scaledDotProductAttention computes the same in one kernel.
 */

import { type Dtype, dtypes, iterateRows, term } from "../../ir/index.js";
import { add, mul } from "../elementwise/arithmetic.js";
import { where } from "../elementwise/comparisons.js";
import { matmul } from "../matmul/matmul.js";
import { permute } from "../movement/reshape.js";
import { softmax } from "../normalisation/softmax.js";
import type { CompositeOp, KernelOp } from "../op.js";
import { dropout } from "../random/dropout.js";
import { cacheByDtypes } from "../row-lowering.js";
import type { AttentionAttributes } from "./attention.js";
import { scaledDotProductAttention } from "./scaled-dot-product.js";

type CausalMaskAttributes = { readonly rows: number; readonly columns: number; readonly dtype: Dtype };

const causalKernel = cacheByDtypes((dtype = "f32") => {
  const { compute } = dtypes[dtype];
  const hidden = term.constant(Number.NEGATIVE_INFINITY, compute);
  const value = term.select(term.le(term.position, term.row), term.constant(0, compute), hidden);
  return {
    name: "causalMask",
    inputs: [],
    outputs: [{ dtype, per: "element" as const }],
    scalars: [],
    stages: [{ kind: "store" as const, output: 0, value }],
  };
});

/** Row i is 0 from column 0 to column i, and −Infinity after it. */
export const causalMask: KernelOp<CausalMaskAttributes> = {
  kind: "kernel",
  name: "causalMask",
  noGradient: "it has no operands",
  infer: (_, { rows, columns, dtype }) => [{ shape: [rows, columns], dtype }],
  lower(lowering, _, [output]) {
    if (!output?.storage) return;
    lowering.row({
      kernel: causalKernel(output.dtype),
      iteration: iterateRows(output.shape, [output.strides], 1),
      operands: [output.storage],
    });
  },
};

export type AttentionDropoutAttributes = AttentionAttributes & {
  /** The probability that a probability is dropped. */
  readonly p: number;
};

/** Operands: query, key and value, the device's random state, and an optional mask, as in scaledDotProductAttention. */
export const attentionWithDropout: CompositeOp<AttentionDropoutAttributes> = {
  kind: "composite",
  name: "attentionWithDropout",
  infer: ([query = 0, key = 0, value = 0, , ...mask], attributes) =>
    scaledDotProductAttention.infer([query, key, value, ...mask], attributes),
  compose({ apply, typeOf }, [query = 0, key = 0, value = 0, state = 0, mask], attributes) {
    const { isCausal = false, p } = attributes;
    const { shape } = typeOf(key);
    const { scale = 1 / Math.sqrt(shape.at(-1) ?? 1) } = attributes;
    const outer = Array.from({ length: shape.length - 2 }, (_, axis) => axis);
    const transposed = apply(permute, [key], { axes: [...outer, outer.length + 1, outer.length] });
    let scores = apply(mul, [apply(matmul, [query, transposed]), scale]);
    if (isCausal) {
      const { shape: scoreShape, dtype } = typeOf(scores);
      const [rows = 1, columns = 1] = scoreShape.slice(-2);
      scores = apply(add, [scores, apply(causalMask, [], { rows, columns, dtype })]);
    }
    if (mask !== undefined) {
      scores =
        typeOf(mask).dtype === "bool"
          ? apply(where, [mask, scores, Number.NEGATIVE_INFINITY])
          : apply(add, [scores, mask]);
    }
    const kept = apply(dropout, [apply(softmax, [scores], { axis: -1 }), state], { p });
    return [apply(matmul, [kept, value])];
  },
};
