/** A linear layer and a low-rank product beside it, as LoRA has them: the product is added in the GEMM of the layer. */

import { promote } from "../../ir/index.js";
import { transposed } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { badShape, formatShape, sizeOf } from "../shape.js";
import { lowerGemmSum } from "./gemm.js";
import { asRows, biasGradient, gemmDtype, linear, weightGradient } from "./matmul.js";

/** `layout`: the axes of the three weights. "inOut": a weight [in, out], A [in, rank] and B [rank, out]. */
export type LoraLinearAttributes = { readonly scale: number; readonly layout?: "outIn" | "inOut" };

/**
 * Operands: x [rows…, in], W [out, in], A [rank, in], B [out, rank], and an optional bias [out]. `result = x·Wᵀ + scale·x·Aᵀ·Bᵀ + bias`, with
 * the dtype of a linear layer without A and B.
 *
 * The gradient of x has the same form, with the roles of A and B exchanged.
 */
export const loraLinear: KernelOp<LoraLinearAttributes> = {
  kind: "kernel",
  name: "loraLinear",
  infer(operands, { layout }) {
    const [x, weight, a, b] = [0, 1, 2, 3].map((index) => typeAt("loraLinear", operands, index)) as Types;
    for (const { dtype } of [a, b]) gemmDtype("loraLinear", x, { shape: [], dtype });
    const shapes = [weight, a, b].map(({ shape }) => (layout === "inOut" ? shape.toReversed() : shape));
    const [[out = 0, width = 0] = [], [rank = 0, widthA = 0] = [], [outB = 0, rankB = 0] = []] = shapes;
    const isMatrix = shapes.every(({ length }) => length === 2);
    const fits = x.shape.at(-1) === width && width === widthA && out === outB && rank === rankB;
    if (!isMatrix || x.shape.length === 0 || !fits) {
      const found = [x, weight, a, b].map(({ shape }) => formatShape(shape)).join(", ");
      throw badShape("loraLinear", `${found}: pass x […, in], W [out, in], A [rank, in] and B [out, rank].`);
    }
    const bias = operands[4];
    if (typeof bias === "object" && (bias.shape.length !== 1 || bias.shape[0] !== out))
      throw badShape(
        "loraLinear",
        `bias ${formatShape(bias.shape)}: it must be [${out}], one for each output.`,
      );
    return [{ shape: [...x.shape.slice(0, -1), out], dtype: gemmDtype("loraLinear", x, weight) }];
  },
  saves([x = false, weight = false, a = false, b = false]) {
    const needed = [weight || a || b, x, x || b, x || a];
    return { operands: [0, 1, 2, 3].filter((index) => needed[index]) };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    const { scale, layout = "outIn" } = rule.attributes;
    const isInOut = layout === "inOut";
    const flipped = isInOut ? "outIn" : "inOut";
    const [a, b] = [2, 3] as const;
    type Operand = ReturnType<typeof rule.operand>;
    const ofWeight = (input: Operand, output: Operand) =>
      apply(weightGradient, isInOut ? [input, output] : [output, input]);
    // Equal to the calls inside this op and inside the gradient of x: a compiled step computes them once.
    const narrow = () => apply(linear, [rule.operand(0), rule.operand(a)], { layout, scale });
    const narrowGradient = () => apply(linear, [upstream, rule.operand(b)], { layout: flipped, scale });
    const isVector = rule.typeOf(0).shape.length === 1;
    const inputGradient = () =>
      apply(loraLinear, [upstream, rule.operand(1), rule.operand(b), rule.operand(a)], {
        scale,
        layout: flipped,
      });
    return [
      rule.needs(0) ? fitToOperand(rule, inputGradient(), 0) : undefined,
      rule.needs(1) ? fitToOperand(rule, ofWeight(rule.operand(0), upstream), 1) : undefined,
      rule.needs(a) ? fitToOperand(rule, ofWeight(rule.operand(0), narrowGradient()), a) : undefined,
      rule.needs(b) ? fitToOperand(rule, ofWeight(narrow(), upstream), b) : undefined,
      rule.needs(4)
        ? fitToOperand(rule, isVector ? upstream : apply(biasGradient, [upstream]), 4)
        : undefined,
    ];
  },
  lower(lowering, operands, [output], { scale, layout }) {
    if (!output) return;
    const [x, weight, a, b] = [0, 1, 2, 3].map((index) => arrayAt(operands, index)) as Arrays;
    const bias = operands[4];
    const rows = asRows(lowering, x);
    const [count = 1] = rows.shape;
    const out = output.shape.at(-1) ?? 1;
    const target = { ...output, shape: [count, out], strides: [out, 1] };
    const right = (matrix: typeof weight) => (layout === "inOut" ? matrix : transposed(matrix));
    const rank = right(a).shape[1] ?? 0;
    const narrow = lowering.scratchArray([count, rank], promote(x.dtype, a.dtype));
    if (sizeOf(narrow.shape) > 0) lowerGemmSum(lowering, [{ left: rows, right: right(a), scale }], narrow);
    // The wide product last: its GEMM takes long enough to read what it adds to.
    const products = [
      { left: narrow, right: right(b) },
      { left: rows, right: right(weight) },
    ];
    lowerGemmSum(lowering, products, target, typeof bias === "object" ? bias : undefined);
  },
};

type Types = [x: Type, weight: Type, a: Type, b: Type];
type Type = ReturnType<typeof typeAt>;
type Arrays = [x: Array, weight: Array, a: Array, b: Array];
type Array = ReturnType<typeof arrayAt>;
