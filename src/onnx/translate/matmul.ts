/** Matrix products. */

import type { CallContext, Translation } from "./call-context.js";

/** Adds a leading axis. */
function unsqueeze(at: CallContext, name: string, axis = 0): string {
  return at.node("Unsqueeze", [name, at.ints([axis])]);
}

/** Operands as one tensor with a new first axis. */
function stacked(at: CallContext, first: number, count: number): string {
  const parts = Array.from({ length: count }, (_, index) => unsqueeze(at, at.operand(first + index)));
  return parts.length === 1 ? (parts[0] as string) : at.node("Concat", parts, { axis: { int: 0 } });
}

/** A product times the attribute `scale`. */
function scaled(at: CallContext, product: string): string {
  return at.number("scale", 1) === 1 ? product : at.node("Mul", [product, at.scalar(at.number("scale", 1))]);
}

export const matmulTranslations: Readonly<Record<string, Translation>> = {
  /** log |det A|, and the sign. */
  logAbsDeterminant: (at) => {
    const determinant = at.node("Det", [at.operand(0)]);
    const log = at.node("Log", [at.node("Abs", [determinant])]);
    return [at.result(log), at.result(at.node("Sign", [determinant]))];
  },
  determinant: (at) => at.result(at.node("Det", [at.operand(0)])),
  matmul: (at) => at.result(at.node("MatMul", [at.operand(0), at.operand(1)])),
  linear: (at) => {
    const isOutIn = at.text("layout") !== "inOut";
    const [x, weight] = [at.operand(0), at.operand(1)];
    const bias = at.hasOperand(2) ? [at.operand(2)] : [];
    if (at.value(0).shape.length === 2 && !at.has("scale"))
      return at.result(at.node("Gemm", [x, weight, ...bias], { transB: { int: isOutIn ? 1 : 0 } }));
    const matrix = isOutIn ? at.transpose(weight, [1, 0]) : weight;
    const product = scaled(at, at.node("MatMul", [x, matrix]));
    return at.result(bias.length > 0 ? at.node("Add", [product, ...bias]) : product);
  },
  /** x, W, A, B, a bias, and what A multiplies instead of x: x·Wᵀ + scale·x·Aᵀ·Bᵀ + bias. */
  loraLinear: (at) => {
    const inputOfA = at.number("inputOfA", 0);
    const bias = inputOfA === 4 ? 5 : 4;
    const isOutIn = at.text("layout") !== "inOut";
    const [weight, a, b] = [1, 2, 3].map((index) =>
      isOutIn ? at.transpose(at.operand(index), [1, 0]) : at.operand(index),
    ) as [string, string, string];
    const narrow = scaled(at, at.node("MatMul", [at.operand(inputOfA), a]));
    const product = at.node("MatMul", [narrow, b]);
    const sum = at.node("Add", [at.node("MatMul", [at.operand(0), weight]), product]);
    const hasBias = at.hasOperand(bias) && bias !== inputOfA;
    return at.result(hasBias ? at.node("Add", [sum, at.operand(bias)]) : sum);
  },
  /** x [rows, groups, in], a weight [in, out] and a bias [out] for each group. */
  batchedLinear: (at) => {
    const groups = (at.operandCount - 1) / 2;
    const byGroup = at.transpose(at.operand(0), [1, 0, 2]);
    const product = at.node("MatMul", [byGroup, stacked(at, 1, groups)]);
    const biases = unsqueeze(at, stacked(at, 1 + groups, groups), 1);
    return at.result(at.transpose(at.node("Add", [product, biases]), [1, 0, 2]));
  },
  /** x [rows…, in], then a weight [in, out] for each layer; the result is [rows…, layers, out]. */
  fusedProjections: (at) => {
    const weights = at.call.operands.slice(1).map((_, layer) => at.operand(1 + layer));
    const matrix =
      weights.length === 1 ? (weights[0] as string) : at.node("Concat", weights, { axis: { int: 1 } });
    return at.result(at.reshape(at.node("MatMul", [at.operand(0), matrix]), at.output.shape));
  },
};
