/** Checked expressions of the loop IR as CUDA C++. */

import type { BinaryOp, CompareOp, Compute, Expression, UnaryOp } from "../../../ir/index.js";
import { countUses, type Load } from "../../../ir/index.js";
import { computeTypes } from "./element-types.js";
import type { KernelText } from "./kernel-text.js";

/** Where the leaves of an expression come from: each as text that can stand beside any operator. */
export interface Leaves {
  /** With an index, `at` is its text. */
  load(load: Load, at: string | undefined): string;
  scalar(index: number): string;
  reduced(stage: number): string;
  position(): string;
  row(): string;
}

/** Longer text becomes a local, so that lines can be read and braces don't pile up. */
const longestText = 60;

/** The text of an expression's value; what it uses more than once is computed once, and what is known not at all. */
export function printExpression(
  text: KernelText,
  root: Expression,
  leaves: Leaves,
  known: ReadonlyMap<Expression, string> = new Map(),
): string {
  return expressionPrinter(text, [root], leaves, known)(root);
}

/** Prints expressions one after the other in the same braces: what they have in common is computed once. */
export function expressionPrinter(
  text: KernelText,
  roots: readonly Expression[],
  leaves: Leaves,
  known: ReadonlyMap<Expression, string> = new Map(),
): (root: Expression) => string {
  const uses = countUses(...roots);
  const kept = new Map(known);

  function print(expression: Expression): string {
    const name = kept.get(expression);
    if (name !== undefined) return name;
    const value = compute(expression);
    const isWorthKeeping = (uses.get(expression) ?? 0) > 1 || value.length > longestText;
    // A name, a number or a leaf that is one already needs no other.
    if (!isWorthKeeping || /^\w+$/.test(value) || expression.kind === "constant") return value;
    const local = text.keep(computeTypes[expression.type], value);
    kept.set(expression, local);
    return local;
  }

  function compute(expression: Expression): string {
    switch (expression.kind) {
      case "load":
        return leaves.load(expression, expression.at && print(expression.at));
      case "scalar":
        return leaves.scalar(expression.index);
      case "reduced":
        return leaves.reduced(expression.stage);
      case "position":
        return leaves.position();
      case "row":
        return leaves.row();
      case "constant":
        return literal(expression.type, expression.value);
      case "unary":
        return unary(text, expression.op, expression.type, print(expression.a));
      case "binary":
        return binary(text, expression.op, expression.type, print(expression.a), print(expression.b));
      case "compare":
        return comparison(expression.op, expression.a.type, print(expression.a), print(expression.b));
      case "select": {
        const [a, b] = [print(expression.a), print(expression.b)];
        return `(${print(expression.condition)} != 0 ? ${a} : ${b})`;
      }
      case "convert":
        return conversion(text, expression.a.type, expression.type, print(expression.a));
    }
  }

  return print;
}

const comparisons: Readonly<Record<CompareOp, string>> = {
  eq: "==",
  ne: "!=",
  lt: "<",
  le: "<=",
  gt: ">",
  ge: ">=",
};

function comparison(op: CompareOp, type: Compute, a: string, b: string): string {
  // Compilers point at a whole number that is compared with itself; only a NaN differs from itself.
  if (type === "i32" && a === b) return op === "eq" || op === "le" || op === "ge" ? "1" : "0";
  return `(int)(${a} ${comparisons[op]} ${b})`;
}

/** A number as its type holds it: the shortest decimal of a rounded value reads back as that very value. */
export function literal(type: Compute, value: number): string {
  if (type === "i32") {
    const whole = value | 0;
    if (whole === -(2 ** 31)) return "(-2147483647 - 1)";
    return whole < 0 ? `(${whole})` : `${whole}`;
  }
  const held = type === "f32" ? Math.fround(value) : value;
  if (!Number.isFinite(held)) return notFinite(type, held);
  const decimal = Object.is(held, -0) ? "-0" : `${held}`;
  const digits = `${decimal}${/[.e]/.test(decimal) ? "" : ".0"}${type === "f32" ? "f" : ""}`;
  return digits.startsWith("-") ? `(${digits})` : digits;
}

function notFinite(type: "f32" | "f64", value: number): string {
  const sign = value < 0 ? "f" : "7";
  const nan = Number.isNaN(value);
  if (type === "f32") return `__uint_as_float(0x${sign}f${nan ? "c" : "8"}00000u)`;
  const bits = `0x${sign}ff${nan ? "8" : "0"}000000000000ull`;
  return `__longlong_as_double((long long)${bits})`;
}

/** Functions that the language has for both floats, under the name for doubles. */
const functions: Partial<Record<UnaryOp, string>> = {
  abs: "fabs",
  sqrt: "sqrt",
  floor: "floor",
  ceil: "ceil",
  exp: "exp",
  expm1: "expm1",
  log: "log",
  log1p: "log1p",
  sin: "sin",
  cos: "cos",
  tanh: "tanh",
  erf: "erf",
};

function unary(text: KernelText, op: UnaryOp, type: Compute, a: string): string {
  if (type === "i32") return op === "abs" ? text.call("abs_i32", a) : `(int)(0u - (unsigned)${a})`;
  if (op === "neg") return `(-${a})`;
  if (text.isQuick && type === "f32" && (op === "tanh" || op === "sigmoid"))
    return text.call(`quick_${op}_f32`, a);
  if (op === "sigmoid" || op === "softplus" || op === "rsqrt") return text.call(`${op}_${type}`, a);
  return `${functions[op]}${type === "f32" ? "f" : ""}(${a})`;
}

const operators = { add: "+", sub: "-", mul: "*", div: "/" } as const;

/** The text of two values joined; whole numbers wrap round, which C++ leaves to unsigned ones. */
export function binary(text: KernelText, op: BinaryOp, type: Compute, a: string, b: string): string {
  switch (op) {
    case "min":
    case "max":
      return text.call(`${op}_${type}`, a, b);
    case "pow":
      return `${type === "f32" ? "powf" : "pow"}(${a}, ${b})`;
    case "and":
      return `(${a} & ${b})`;
    case "shr":
      return `(int)((unsigned)${a} >> ${b})`;
    default:
      return type === "i32"
        ? `(int)((unsigned)${a} ${operators[op]} (unsigned)${b})`
        : `(${a} ${operators[op]} ${b})`;
  }
}

function conversion(text: KernelText, from: Compute, to: Compute, a: string): string {
  if (from === to) return a;
  if (to === "i32") return text.call(from === "f32" ? "truncate_f32" : "truncate_f64", a);
  return `(${computeTypes[to]})${a}`;
}
