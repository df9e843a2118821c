/** A linear layer and a low-rank product beside it, as LoRA has them: the product is added in the GEMM of the layer. */

import { promote } from "../../ir/index.js";
import { transposed } from "../device-array.js";
import { fitToOperand } from "../gradients.js";
import { arrayAt, type KernelOp, typeAt } from "../op.js";
import { badShape, formatShape, isSameShape, sizeOf } from "../shape.js";
import { lowerGemmSum } from "./gemm.js";
import { asRows, biasGradient, gemmDtype, linear, weightGradient } from "./matmul.js";

/**
 * `layout`: the axes of the three weights. "inOut": a weight [in, out], A [in, rank] and B [rank, out]. `inputOfA`: the operand that A
 * multiplies, such as x after dropout: the last one, after the bias. Default: 0, x itself.
 */
export type LoraLinearAttributes = {
  readonly scale: number;
  readonly layout?: "outIn" | "inOut";
  readonly inputOfA?: 0 | 4 | 5;
};

/** The index of the bias, which may be absent. */
export const biasOfLora = ({ inputOfA }: LoraLinearAttributes): number => (inputOfA === 4 ? 5 : 4);

/**
 * Operands: x [rows…, in], W [out, in], A [rank, in], B [out, rank], and an optional bias [out]. `result = x·Wᵀ + scale·x·Aᵀ·Bᵀ + bias`, with
 * the dtype of a linear layer without A and B.
 *
 * The gradient of x has the same form, with the roles of A and B exchanged.
 */
export const loraLinear: KernelOp<LoraLinearAttributes> = {
  kind: "kernel",
  name: "loraLinear",
  infer(operands, attributes) {
    const { layout, inputOfA = 0 } = attributes;
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
    const input = typeAt("loraLinear", operands, inputOfA);
    gemmDtype("loraLinear", input, { shape: [], dtype: a.dtype });
    if (!isSameShape(input.shape, x.shape))
      throw badShape(
        "loraLinear",
        `the input of A is ${formatShape(input.shape)}; pass the shape of x, ${formatShape(x.shape)}.`,
      );
    const bias = operands[biasOfLora(attributes)];
    if (typeof bias === "object" && (bias.shape.length !== 1 || bias.shape[0] !== out))
      throw badShape(
        "loraLinear",
        `bias ${formatShape(bias.shape)}: it must be [${out}], one for each output.`,
      );
    return [{ shape: [...x.shape.slice(0, -1), out], dtype: gemmDtype("loraLinear", x, weight) }];
  },
  saves(needs, { inputOfA = 0 }) {
    const [x = false, weight = false, a = false, b = false] = needs;
    const input = needs[inputOfA] ?? false;
    const needed = [weight, x, input || b, input || a, false, false];
    needed[inputOfA] ||= a || b;
    return { operands: [...needed.keys()].filter((index) => needed[index]) };
  },
  gradient(rule) {
    const { apply, upstream } = rule;
    const { scale, layout = "outIn", inputOfA = 0 } = rule.attributes;
    const isInOut = layout === "inOut";
    const flipped = isInOut ? "outIn" : "inOut";
    const [a, b] = [2, 3] as const;
    type Operand = ReturnType<typeof rule.operand>;
    const ofWeight = (input: Operand, output: Operand) =>
      apply(weightGradient, isInOut ? [input, output] : [output, input]);
    // Equal to the calls inside this op and inside the gradient of x: a compiled step computes them once.
    const narrow = () => apply(linear, [rule.operand(inputOfA), rule.operand(a)], { layout, scale });
    const narrowGradient = () => apply(linear, [upstream, rule.operand(b)], { layout: flipped, scale });
    const isVector = rule.typeOf(0).shape.length === 1;
    const gradients: Record<number, () => ReturnType<typeof apply>> = {
      0: () =>
        inputOfA === 0
          ? apply(loraLinear, [upstream, rule.operand(1), rule.operand(b), rule.operand(a)], {
              scale,
              layout: flipped,
            })
          : apply(linear, [upstream, rule.operand(1)], { layout: flipped }),
      1: () => ofWeight(rule.operand(0), upstream),
      [a]: () => ofWeight(rule.operand(inputOfA), narrowGradient()),
      [b]: () => ofWeight(narrow(), upstream),
      [biasOfLora(rule.attributes)]: () => (isVector ? upstream : apply(biasGradient, [upstream])),
      ...(inputOfA !== 0 && {
        [inputOfA]: () => apply(linear, [narrowGradient(), rule.operand(a)], { layout: flipped }),
      }),
    };
    return Array.from({ length: rule.operandCount }, (_, index) => {
      const gradient = rule.needs(index) ? gradients[index]?.() : undefined;
      return gradient && fitToOperand(rule, gradient, index);
    });
  },
  lower(lowering, operands, [output], attributes) {
    const { scale, layout, inputOfA = 0 } = attributes;
    if (!output) return;
    const [x, weight, a, b] = [0, 1, 2, 3].map((index) => arrayAt(operands, index)) as Arrays;
    const bias = operands[biasOfLora(attributes)];
    const rows = asRows(lowering, x);
    const inputRows = inputOfA === 0 ? rows : asRows(lowering, arrayAt(operands, inputOfA));
    const [count = 1] = rows.shape;
    const out = output.shape.at(-1) ?? 1;
    const target = { ...output, shape: [count, out], strides: [out, 1] };
    const right = (matrix: typeof weight) => (layout === "inOut" ? matrix : transposed(matrix));
    const rank = right(a).shape[1] ?? 0;
    const narrow = lowering.scratchArray([count, rank], promote(inputRows.dtype, a.dtype));
    if (sizeOf(narrow.shape) > 0)
      lowerGemmSum(lowering, [{ left: inputRows, right: right(a), scale }], narrow);
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
