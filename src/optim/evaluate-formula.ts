/** Computes a formula on the host, in f64. */

import type { BinaryOp, CompareOp, UnaryOp } from "../ir/index.js";
import type { FormulaNode } from "./formula.js";

const unary: Partial<Record<UnaryOp, (a: number) => number>> = {
  neg: (a) => -a,
  abs: Math.abs,
  sqrt: Math.sqrt,
  rsqrt: (a) => 1 / Math.sqrt(a),
  exp: Math.exp,
  log: Math.log,
  tanh: Math.tanh,
  sigmoid: (a) => 1 / (1 + Math.exp(-a)),
};

const binary: Partial<Record<BinaryOp, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  pow: (a, b) => a ** b,
  min: Math.min,
  max: Math.max,
};

const compare: Record<CompareOp, (a: number, b: number) => boolean> = {
  eq: (a, b) => a === b,
  ne: (a, b) => a !== b,
  lt: (a, b) => a < b,
  le: (a, b) => a <= b,
  gt: (a, b) => a > b,
  ge: (a, b) => a >= b,
};

/** The value of a node; a comparison is 0 or 1. Inputs without a value are NaN. */
export function evaluateFormula(root: FormulaNode, inputs: Readonly<Record<string, number>>): number {
  const done = new Map<FormulaNode, number>();
  const numberOf = (node: FormulaNode): number => {
    const value = done.get(node) ?? compute(node);
    done.set(node, value);
    return value;
  };
  const compute = (node: FormulaNode): number => {
    switch (node.kind) {
      case "input":
        return inputs[node.name] ?? Number.NaN;
      case "constant":
        return node.value;
      case "unary":
        return unary[node.op]?.(numberOf(node.args[0])) ?? Number.NaN;
      case "binary":
        return binary[node.op]?.(numberOf(node.args[0]), numberOf(node.args[1])) ?? Number.NaN;
      case "compare":
        return compare[node.op](numberOf(node.args[0]), numberOf(node.args[1])) ? 1 : 0;
      case "select":
        return numberOf(numberOf(node.args[0]) === 0 ? node.args[2] : node.args[1]);
    }
  };
  return numberOf(root);
}
