/** Prints checked expressions of the loop IR as CUDA C++. */

import type { BinaryOp, CompareOp, Compute, Expression, UnaryOp } from "../../../ir/index.js";
import { countUses, type Load } from "../../../ir/index.js";
import { computeTypes } from "./element-types.js";
import { findFastForm } from "./fast-forms.js";
import type { KernelText } from "./kernel-text.js";

/** Prints the leaves of an expression, each as an operand that needs no parentheses. */
export interface Leaves {
  /** `at` is the printed index of an indexed load. */
  load(load: Load, at: string | undefined): string;
  scalar(index: number): string;
  reduced(stage: number): string;
  position(): string;
  row(): string;
}

/** Longer expressions become locals, so that the code stays readable and parentheses don't pile up. */
const maxInlineLength = 60;

/** Prints an expression. Common subexpressions become locals; those in `computed` already are. */
export function printExpression(
  text: KernelText,
  root: Expression,
  leaves: Leaves,
  computed: ReadonlyMap<Expression, string> = new Map(),
): string {
  return expressionPrinter(text, [root], leaves, computed)(root);
}

/** Prints several expressions in one scope, with common subexpressions computed once. */
export function expressionPrinter(
  text: KernelText,
  roots: readonly Expression[],
  leaves: Leaves,
  computed: ReadonlyMap<Expression, string> = new Map(),
): (root: Expression) => string {
  const uses = countUses(...roots);
  const locals = new Map(computed);

  function print(expression: Expression): string {
    const name = locals.get(expression);
    if (name !== undefined) return name;
    const value = compute(expression);
    const needsLocal = (uses.get(expression) ?? 0) > 1 || value.length > maxInlineLength;
    // Names and literals need no local.
    if (!needsLocal || /^\w+$/.test(value) || expression.kind === "constant") return value;
    const local = text.keep(computeTypes[expression.type], value);
    locals.set(expression, local);
    return local;
  }

  function compute(expression: Expression): string {
    const form = text.usesFastMath ? findFastForm(expression) : undefined;
    if (form) return text.call(form.name, print(form.of));
    switch (expression.kind) {
      case "load":
        return leaves.load(expression, expression.at && print(expression.at));
      case "scalar":
        return expression.type === "i64"
          ? text.call("truncate64_f64", leaves.scalar(expression.index))
          : leaves.scalar(expression.index);
      case "reduced":
        return leaves.reduced(expression.stage);
      case "position":
        return leaves.position();
      case "row":
        return leaves.row();
      case "constant":
        return literal(expression.type, expression.value);
      case "unary": {
        const power = text.usesFastMath ? scaledPower(expression) : undefined;
        if (power) return text.call("ex2Approx", `${print(power.of)} * ${literal("f32", power.scale)}`);
        return unary(text, expression.op, expression.type, print(expression.a));
      }
      case "binary": {
        return binary(text, expression.op, expression.type, print(expression.a), print(expression.b));
      }
      case "compare":
        return comparison(expression.op, expression.a.type, print(expression.a), print(expression.b));
      case "select": {
        const [a, b] = [print(expression.a), print(expression.b)];
        return `(${condition(expression.condition)} ? ${a} : ${b})`;
      }
      case "convert":
        return conversion(text, expression.a.type, expression.type, print(expression.a));
    }
  }

  /** Tests for not 0. Of two comparisons it prints a disjunction, which can be one instruction; the maximum of their results is five. */
  function condition(expression: Expression): string {
    const isOfTwo =
      expression.kind === "binary" &&
      (expression.op === "max" || expression.op === "min") &&
      expression.a.kind === "compare" &&
      expression.b.kind === "compare";
    if (!isOfTwo || locals.has(expression) || (uses.get(expression) ?? 0) > 1)
      return `${print(expression)} != 0`;
    return `(${print(expression.a)} ${expression.op === "max" ? "||" : "&&"} ${print(expression.b)})`;
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
  // Compilers warn about an integer that is compared with itself; only a NaN differs from itself.
  if ((type === "i32" || type === "i64") && a === b)
    return op === "eq" || op === "le" || op === "ge" ? "1" : "0";
  return `(int)(${a} ${comparisons[op]} ${b})`;
}

/** A literal of a compute type: the shortest decimal that reads back as the same value. */
export function literal(type: Compute, value: number): string {
  if (type === "i32") {
    const whole = value | 0;
    if (whole === -(2 ** 31)) return "(-2147483647 - 1)";
    return whole < 0 ? `(${whole})` : `${whole}`;
  }
  if (type === "i64") {
    if (value <= -(2 ** 63)) return "(-9223372036854775807ll - 1)";
    if (value >= 2 ** 63) return "9223372036854775807ll";
    const whole = BigInt(Math.trunc(value));
    return whole < 0n ? `(${whole}ll)` : `${whole}ll`;
  }
  const rounded = type === "f32" ? Math.fround(value) : value;
  if (!Number.isFinite(rounded)) return notFinite(type, rounded);
  const decimal = Object.is(rounded, -0) ? "-0" : `${rounded}`;
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

/** Functions of the C++ library, by their names for doubles. */
const functions: Partial<Record<UnaryOp, string>> = {
  abs: "fabs",
  sqrt: "sqrt",
  floor: "floor",
  ceil: "ceil",
  round: "rint",
  trunc: "trunc",
  exp: "exp",
  exp2: "exp2",
  expm1: "expm1",
  log: "log",
  log2: "log2",
  log10: "log10",
  log1p: "log1p",
  sin: "sin",
  cos: "cos",
  tan: "tan",
  asin: "asin",
  acos: "acos",
  atan: "atan",
  sinh: "sinh",
  cosh: "cosh",
  tanh: "tanh",
  asinh: "asinh",
  acosh: "acosh",
  atanh: "atanh",
  erf: "erf",
  erfc: "erfc",
  lgamma: "lgamma",
};

function unary(text: KernelText, op: UnaryOp, type: Compute, a: string): string {
  if (type === "i64") {
    return op === "abs" ? text.call("abs_i64", a) : `(long long)(0ull - (unsigned long long)${a})`;
  }
  if (type === "i32") return op === "abs" ? text.call("abs_i32", a) : `(int)(0u - (unsigned)${a})`;
  if (op === "neg") return `(-${a})`;
  if (text.usesFastMath && type === "f32" && (op === "exp" || op === "tanh" || op === "sigmoid"))
    return text.call(`fast_${op}_f32`, a);
  if (op === "roundTf32") return text.call("roundTf32", a);
  if (op === "roundBf16") return text.call("widen_bf16", text.call("narrow_bf16", a));
  if (op === "roundF16") return text.call("widen_f16", text.call("narrow_f16", a));
  if (op === "sigmoid" || op === "softplus" || op === "rsqrt") return text.call(`${op}_${type}`, a);
  return `${functions[op]}${type === "f32" ? "f" : ""}(${a})`;
}

/** exp(c · x) in f32 as 2 to the power of scale · x, which saves a product; undefined for other expressions. */
function scaledPower(expression: Expression): { of: Expression; scale: number } | undefined {
  if (expression.kind !== "unary" || expression.op !== "exp" || expression.type !== "f32") return undefined;
  const { a } = expression;
  if (a.kind !== "binary" || a.op !== "mul") return undefined;
  const [constant, of] = a.a.kind === "constant" ? [a.a, a.b] : [a.b, a.a];
  return constant.kind === "constant" ? { of, scale: constant.value * Math.LOG2E } : undefined;
}

const operators = { add: "+", sub: "-", mul: "*", div: "/" } as const;

/** Prints a binary operation. Integers wrap, which C++ guarantees for unsigned types only. */
export function binary(text: KernelText, op: BinaryOp, type: Compute, a: string, b: string): string {
  switch (op) {
    case "min":
    case "max":
      return text.call(`${op}_${type}`, a, b);
    case "pow":
    case "atan2":
    case "fmod":
      return `${op}${type === "f32" ? "f" : ""}(${a}, ${b})`;
    case "and":
      return `(${a} & ${b})`;
    case "shr":
      return type === "i64"
        ? `(long long)((unsigned long long)${a} >> ${b})`
        : `(int)((unsigned)${a} >> ${b})`;
    default:
      if (type === "i64") {
        return `(long long)((unsigned long long)${a} ${operators[op]} (unsigned long long)${b})`;
      }
      return type === "i32"
        ? `(int)((unsigned)${a} ${operators[op]} (unsigned)${b})`
        : `(${a} ${operators[op]} ${b})`;
  }
}

function conversion(text: KernelText, from: Compute, to: Compute, a: string): string {
  if (from === to) return a;
  if (to === "i64" && (from === "f32" || from === "f64")) return text.call(`truncate64_${from}`, a);
  if (to === "i32" && from !== "i64") return text.call(from === "f32" ? "truncate_f32" : "truncate_f64", a);
  return `(${computeTypes[to]})${a}`;
}
