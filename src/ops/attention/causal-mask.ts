/** causalMask: what is added to the scores of attention, so that a row sees no later columns. */

import { type Dtype, dtypes, iterateRows, term } from "../../ir/index.js";
import type { KernelOp } from "../op.js";
import { cacheByDtypes } from "../row-lowering.js";

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
