/** Attention as matrix products and a softmax, which ONNX runtimes fuse again. */

import type { Size } from "../sizes.js";
import type { CallContext, Translation } from "./call-context.js";

interface Heads {
  readonly name: string;
  /** [batch…, heads, rows, width] */
  readonly shape: readonly Size[];
}

function swap(at: CallContext, { name, shape }: Heads, a: number, b: number): Heads {
  const axes = shape.map((_, axis) => axis);
  const [first, second] = [shape.length + a, shape.length + b];
  const order = axes.with(first, second).with(second, first);
  return { name: at.transpose(name, order), shape: order.map((axis) => shape[axis] ?? 1) };
}

/** Each head as often as heads of the query share it. */
function repeatHeads(at: CallContext, operand: Heads, heads: number): Heads {
  const { name, shape } = operand;
  const [own = 1] = at.fixed([shape.at(-3) ?? 1], "the number of heads");
  if (own === heads) return operand;
  const apart = at.node("Unsqueeze", [name, at.ints([-3])]);
  const ones = [...shape.slice(0, -2).map(() => 1), heads / own, 1, 1];
  const repeated = shape.with(shape.length - 3, heads);
  return { name: at.reshape(at.node("Expand", [apart, at.ints(ones)]), repeated), shape: repeated };
}

/** −∞ above the diagonal, and 0 elsewhere. [rows, columns] */
export function causalMask(at: CallContext, rows: Size, columns: Size): string {
  const hidden = at.node("Expand", [at.scalar(Number.NEGATIVE_INFINITY), at.ints([rows, columns])]);
  return at.node("Trilu", [hidden, at.graph.scalar("i64", 1)], { upper: { int: 1 } });
}

/** The result is [batch…, heads, rows, width]. `mask`: the operand. */
function attend(at: CallContext, query: Heads, key: Heads, value: Heads, mask: number): string {
  const [heads = 1] =
    query.shape.length >= 3 ? at.fixed([query.shape.at(-3) ?? 1], "the number of heads") : [1];
  const isGrouped = at.flag("enableGqa");
  const [keys, values] = isGrouped
    ? [repeatHeads(at, key, heads), repeatHeads(at, value, heads)]
    : [key, value];
  const [width = 1] = at.fixed([query.shape.at(-1) ?? 1], "the width of heads");
  const scaled = at.node("Mul", [query.name, at.scalar(at.number("scale", 1 / Math.sqrt(width)))]);
  let scores = at.node("MatMul", [scaled, swap(at, keys, -2, -1).name]);
  if (at.flag("isCausal")) {
    const causal = causalMask(at, query.shape.at(-2) ?? 1, keys.shape.at(-2) ?? 1);
    scores = at.node("Add", [scores, causal]);
  }
  if (at.hasOperand(mask)) {
    const isBool = at.value(mask).dtype === "bool";
    const additive = isBool
      ? at.node("Where", [at.input(mask), at.scalar(0), at.scalar(Number.NEGATIVE_INFINITY)])
      : at.operand(mask);
    scores = at.node("Add", [scores, additive]);
  }
  return at.node("MatMul", [at.node("Softmax", [scores], { axis: { int: -1 } }), values.name]);
}

function operandAt(at: CallContext, index: number): Heads {
  return { name: at.operand(index), shape: at.value(index).shape };
}

/** Operands with rows before heads, [batch…, rows, heads, width]; so is the result. */
function attendRowsFirst(at: CallContext, operands: readonly Heads[], mask: number): string {
  const [query, key, value] = operands.map((operand) => swap(at, operand, -3, -2)) as [Heads, Heads, Heads];
  const result = attend(at, query, key, value, mask);
  return at.result(swap(at, { name: result, shape: at.output.shape }, -3, -2).name);
}

export const attentionTranslations: Readonly<Record<string, Translation>> = {
  scaledDotProductAttention: (at) => {
    const operands = [0, 1, 2].map((index) => operandAt(at, index)) as [Heads, Heads, Heads];
    if (at.flag("rowsFirst")) return attendRowsFirst(at, operands, 3);
    return at.result(attend(at, ...operands, 3));
  },
  attention: (at) =>
    attendRowsFirst(
      at,
      [0, 1, 2].map((index) => operandAt(at, index)),
      3,
    ),
  /** Query, key and value as [batch…, rows, 3, heads, width]. */
  packedAttention: (at) => {
    const { shape } = at.value(0);
    const axis = shape.length - 3;
    const operands = [0, 1, 2].map((index) => ({
      name: at.node("Gather", [at.operand(0), at.graph.scalar("i64", index)], { axis: { int: axis } }),
      shape: shape.toSpliced(axis, 1),
    }));
    return attendRowsFirst(at, operands, 1);
  },
  causalMask: (at) => {
    const [rows = 1, columns = 1] = at.output.shape;
    return at.result(causalMask(at, rows, columns));
  },
};
