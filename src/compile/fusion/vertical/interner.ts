/** Hash-consing of expressions: equal ones are one object, which generated code computes once. */

import {
  type Compute,
  type Dtype,
  dtypes,
  type Expression,
  type InputDtype,
  isFloat8,
  type UnaryOp,
} from "../../../ir/index.js";
import { literalKey } from "../../../units/index.js";

/** The replacements of an expression's leaves and loads. */
export interface Leaves {
  load(input: number, type: Expression["type"], at: Expression | undefined): Expression;
  scalar(index: number, type: Compute): Expression;
  reduced(stage: number, type: Expression["type"]): Expression;
}

export class Interner {
  readonly #known = new Map<string, Expression>();
  readonly #numbers = new Map<Expression, number>();

  /** All expressions so far as text: each line is one expression over earlier lines. */
  get text(): string {
    return [...this.#known.keys()].join("\n");
  }

  numberOf(expression: Expression): number {
    return this.#numbers.get(this.intern(expression)) ?? -1;
  }

  /** The interned expression that equals this one; its operands are interned already. */
  intern(expression: Expression): Expression {
    if (this.#numbers.has(expression)) return expression;
    const key = this.#keyOf(expression);
    const known = this.#known.get(key);
    if (known) return known;
    this.#known.set(key, expression);
    this.#numbers.set(expression, this.#numbers.size);
    return expression;
  }

  /** The expression with other leaves. */
  rewrite(root: Expression, leaves: Leaves): Expression {
    const done = new Map<Expression, Expression>();
    const visit = (one: Expression): Expression => {
      const known = done.get(one);
      if (known) return known;
      const made = this.intern(rewriteOne(one, visit, leaves));
      done.set(one, made);
      return made;
    };
    return visit(root);
  }

  #keyOf(one: Expression): string {
    const n = (slice: Expression): string => `${this.#numbers.get(slice)}`;
    switch (one.kind) {
      case "load":
        return `load ${one.type} ${one.input}${one.at ? ` at ${n(one.at)}` : ""}`;
      case "scalar":
        return `scalar ${one.type} ${one.index}`;
      case "constant":
        return `constant ${one.type} ${literalKey(one.value)}`;
      case "reduced":
        return `reduced ${one.type} ${one.stage}`;
      case "position":
      case "row":
        return one.kind;
      case "unary":
        return `${one.op} ${one.type} ${n(one.a)}`;
      case "binary":
      case "compare":
        return `${one.op} ${one.type} ${n(one.a)} ${n(one.b)}`;
      case "select":
        return `select ${one.type} ${n(one.condition)} ${n(one.a)} ${n(one.b)}`;
      case "convert":
        return `convert ${one.type} ${n(one.a)}`;
    }
  }
}

function rewriteOne(one: Expression, visit: (slice: Expression) => Expression, leaves: Leaves): Expression {
  switch (one.kind) {
    case "load":
      return leaves.load(one.input, one.type, one.at && visit(one.at));
    case "scalar":
      return leaves.scalar(one.index, one.type);
    case "reduced":
      return leaves.reduced(one.stage, one.type);
    case "constant":
    case "position":
    case "row":
      return one;
    case "unary":
    case "convert":
      return { ...one, a: visit(one.a) };
    case "binary":
    case "compare":
      return { ...one, a: visit(one.a), b: visit(one.b) };
    case "select":
      return { ...one, a: visit(one.a), b: visit(one.b), condition: visit(one.condition) };
  }
}

/**
 * Store-to-load forwarding: the value that a load gives after a store in a dtype; undefined if no expression has it: none rounds to 8-bit
 * floats.
 */
export function forwardedValue(
  interner: Interner,
  value: Expression,
  dtype: Dtype,
  dtypeOfInput: (input: number) => InputDtype | undefined,
): Expression | undefined {
  // No expression sign-extends the low byte.
  if (isFloat8(dtype) || dtype === "i8") return undefined;
  if (dtype === "bf16" || dtype === "f16") {
    if (isOfDtype(value, dtype, dtypeOfInput)) return value;
    return interner.intern({ kind: "unary", op: roundingTo[dtype], a: value, type: "f32" });
  }
  if (dtypes[dtype].bytes > 1 || isByte(value, dtypeOfInput)) return value;
  const low = interner.intern({ kind: "constant", value: 255, type: "i32" });
  return interner.intern({ kind: "binary", op: "and", a: value, b: low, type: "i32" });
}

const roundingTo = { bf16: "roundBf16", f16: "roundF16" } as const satisfies Partial<Record<Dtype, UnaryOp>>;

/** True if a store in the dtype keeps every bit of the value. */
function isOfDtype(
  value: Expression,
  dtype: keyof typeof roundingTo,
  dtypeOfInput: (input: number) => InputDtype | undefined,
): boolean {
  if (value.kind === "load") return dtypeOfInput(value.input) === dtype;
  return value.kind === "unary" && value.op === roundingTo[dtype];
}

/** The value to store, without a rounding that the store does anyway. */
export function withoutRounding(value: Expression, dtype: Dtype): Expression {
  const rounds = value.kind === "unary" && (dtype === "bf16" || dtype === "f16");
  return rounds && value.op === roundingTo[dtype] ? value.a : value;
}

/** True if the value is always an integer from 0 to 255. */
function isByte(value: Expression, dtypeOfInput: (input: number) => InputDtype | undefined): boolean {
  switch (value.kind) {
    case "compare":
      return true;
    case "constant":
      return Number.isInteger(value.value) && value.value >= 0 && value.value <= 255;
    case "load": {
      const dtype = dtypeOfInput(value.input);
      return dtype === "u8" || dtype === "bool";
    }
    case "select":
      return isByte(value.a, dtypeOfInput) && isByte(value.b, dtypeOfInput);
    case "binary":
      return value.op === "and" && (isByte(value.a, dtypeOfInput) || isByte(value.b, dtypeOfInput));
    default:
      return false;
  }
}
