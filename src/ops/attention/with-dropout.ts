/**
 * Attention with dropout of its probabilities: in one kernel where the device keeps statistics of rows, otherwise composed of plain
 * ops, each with a result in memory. Both drop the same probabilities.
 */

import { add, mul } from "../elementwise/arithmetic.js";
import { where } from "../elementwise/comparisons.js";
import { matmul } from "../matmul/matmul.js";
import { softmax } from "../normalisation/softmax.js";
import type { CompositeOp } from "../op.js";
import { dropout } from "../random/dropout.js";
import type { AttentionDropoutAttributes } from "./attention.js";
import { causalMask } from "./causal-mask.js";
import { fusedDropoutAttention } from "./fused-dropout.js";
import { composeRowsFirst, repeatHeads, scaledDotProductAttention, swapAxes } from "./scaled-dot-product.js";

/** Operands: query, key and value, the device's random state, and an optional mask, as in scaledDotProductAttention. */
export const attentionWithDropout: CompositeOp<
  AttentionDropoutAttributes & { readonly rowsFirst?: boolean }
> = {
  kind: "composite",
  name: "attentionWithDropout",
  infer: ([query = 0, key = 0, value = 0, , ...mask], attributes) =>
    scaledDotProductAttention.infer([query, key, value, ...mask], attributes),
  compose(build, [query = 0, key = 0, value = 0, state = 0, mask], { rowsFirst = false, ...attributes }) {
    const { apply, typeOf } = build;
    if (attributes.keeps === "statistics") {
      return [
        composeRowsFirst(build, { query, key, value, mask, rowsFirst }, attributes, (inputs, masks) =>
          apply(fusedDropoutAttention, [...inputs, state, ...masks], attributes),
        ),
      ];
    }
    if (rowsFirst) {
      const swapped = [query, key, value].map((operand) => swapAxes(build, operand, -3, -2));
      const out = apply(
        attentionWithDropout,
        [...swapped, state, ...(mask === undefined ? [] : [mask])],
        attributes,
      );
      return [swapAxes(build, out, -3, -2)];
    }
    const { enableGqa = false, isCausal = false, p } = attributes;
    if (enableGqa) {
      const repeated = [
        ...repeatHeads(build, [query, key, value], -3),
        state,
        ...(mask === undefined ? [] : [mask]),
      ];
      return [apply(attentionWithDropout, repeated, { ...attributes, enableGqa: false })];
    }
    const { shape } = typeOf(key);
    const { scale = 1 / Math.sqrt(shape.at(-1) ?? 1) } = attributes;
    let scores = apply(mul, [apply(matmul, [query, swapAxes(build, key, -2, -1)]), scale]);
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
    const kept = apply(dropout, [apply(softmax, [scores], { axis: -1 }), state], { p, alignsRows: true });
    return [apply(matmul, [kept, value])];
  },
};
