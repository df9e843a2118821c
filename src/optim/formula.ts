/**
 * Formulas that a user writes as method calls, such as `m.mul(0.9).add(gradient)`. They are recorded as nodes: equal formulas are one
 * node. `define-optimizer.ts` turns them into expressions of the loop IR.
 */

import { HoldfastError } from "../errors/index.js";
import { type BinaryOp, type CompareOp, type Expression, term, type UnaryOp } from "../ir/index.js";

/** A number in a formula, or a formula. */
export type FormulaOperand = Formula | number;

/** A value in an optimizer's update. If it depends only on lr, weightDecay, step and options, it is one number per step, in f64. */
export interface Formula {
  add(other: FormulaOperand): Formula;
  sub(other: FormulaOperand): Formula;
  mul(other: FormulaOperand): Formula;
  div(other: FormulaOperand): Formula;
  pow(exponent: FormulaOperand): Formula;
  minimum(other: FormulaOperand): Formula;
  maximum(other: FormulaOperand): Formula;
  clamp(min: FormulaOperand, max: FormulaOperand): Formula;
  neg(): Formula;
  abs(): Formula;
  square(): Formula;
  sqrt(): Formula;
  rsqrt(): Formula;
  exp(): Formula;
  log(): Formula;
  tanh(): Formula;
  sigmoid(): Formula;
  /** −1, 0 or 1. */
  sign(): Formula;
  eq(other: FormulaOperand): FormulaCondition;
  ne(other: FormulaOperand): FormulaCondition;
  lt(other: FormulaOperand): FormulaCondition;
  le(other: FormulaOperand): FormulaCondition;
  gt(other: FormulaOperand): FormulaCondition;
  ge(other: FormulaOperand): FormulaCondition;
}

/** The result of a comparison: it selects one of two values. */
export interface FormulaCondition {
  where(ifTrue: FormulaOperand, ifFalse: FormulaOperand): Formula;
}

export type FormulaNode = {
  /** Nodes with the same key are the same node. */
  readonly key: string;
  /** False if all elements of a step share the value. */
  readonly isElement: boolean;
} & (
  | { readonly kind: "input"; readonly name: string }
  | { readonly kind: "constant"; readonly value: number }
  | { readonly kind: "unary"; readonly op: UnaryOp; readonly args: readonly [FormulaNode] }
  | { readonly kind: "binary"; readonly op: BinaryOp; readonly args: readonly [FormulaNode, FormulaNode] }
  | { readonly kind: "compare"; readonly op: CompareOp; readonly args: readonly [FormulaNode, FormulaNode] }
  | { readonly kind: "select"; readonly args: readonly [FormulaNode, FormulaNode, FormulaNode] }
);

export function argsOf(node: FormulaNode): readonly FormulaNode[] {
  return "args" in node ? node.args : [];
}

type Bare<Node = FormulaNode> = Node extends FormulaNode ? Omit<Node, "key" | "isElement"> : never;

/** Records the nodes of one definition. */
export class FormulaBook {
  readonly #nodes = new Map<string, FormulaNode>();
  readonly #ids = new Map<FormulaNode, number>();

  input(name: string, isElement: boolean): Formula {
    return new Recorded(this, this.#record({ kind: "input", name }, `input ${name}`, isElement));
  }

  /** All nodes in the order in which they were made: operands come first. */
  get key(): string {
    return [...this.#nodes.keys()].join("; ");
  }

  idOf(node: FormulaNode): number {
    return this.#ids.get(node) ?? -1;
  }

  operand(value: FormulaOperand): FormulaNode | undefined {
    if (typeof value === "number")
      return this.#record({ kind: "constant", value }, `constant ${value}`, false);
    return value instanceof Recorded && value.book === this ? value.node : undefined;
  }

  make(bare: Bare, op: string): FormulaNode {
    const args = "args" in bare ? bare.args : [];
    const key = `${op} ${args.map((arg) => this.#ids.get(arg)).join(" ")}`;
    return this.#record(
      bare,
      key,
      args.some(({ isElement }) => isElement),
    );
  }

  #record(bare: Bare, key: string, isElement: boolean): FormulaNode {
    const known = this.#nodes.get(key);
    if (known) return known;
    const node = { ...bare, key, isElement } as FormulaNode;
    this.#ids.set(node, this.#nodes.size);
    this.#nodes.set(key, node);
    return node;
  }
}

class Recorded implements Formula {
  readonly book: FormulaBook;
  readonly node: FormulaNode;

  constructor(book: FormulaBook, node: FormulaNode) {
    this.book = book;
    this.node = node;
  }

  add = (other: FormulaOperand): Formula => this.#binary("add", other);
  sub = (other: FormulaOperand): Formula => this.#binary("sub", other);
  mul = (other: FormulaOperand): Formula => this.#binary("mul", other);
  div = (other: FormulaOperand): Formula => this.#binary("div", other);
  pow = (exponent: FormulaOperand): Formula => this.#binary("pow", exponent);
  minimum = (other: FormulaOperand): Formula => this.#binary("min", other);
  maximum = (other: FormulaOperand): Formula => this.#binary("max", other);
  clamp = (min: FormulaOperand, max: FormulaOperand): Formula => this.maximum(min).minimum(max);
  neg = (): Formula => this.#unary("neg");
  abs = (): Formula => this.#unary("abs");
  square = (): Formula => this.mul(this);
  sqrt = (): Formula => this.#unary("sqrt");
  rsqrt = (): Formula => this.#unary("rsqrt");
  exp = (): Formula => this.#unary("exp");
  log = (): Formula => this.#unary("log");
  tanh = (): Formula => this.#unary("tanh");
  sigmoid = (): Formula => this.#unary("sigmoid");
  sign = (): Formula => this.gt(0).where(1, this.lt(0).where(-1, this));
  eq = (other: FormulaOperand): FormulaCondition => this.#compare("eq", other);
  ne = (other: FormulaOperand): FormulaCondition => this.#compare("ne", other);
  lt = (other: FormulaOperand): FormulaCondition => this.#compare("lt", other);
  le = (other: FormulaOperand): FormulaCondition => this.#compare("le", other);
  gt = (other: FormulaOperand): FormulaCondition => this.#compare("gt", other);
  ge = (other: FormulaOperand): FormulaCondition => this.#compare("ge", other);

  #operand(value: FormulaOperand): FormulaNode {
    const node = this.book.operand(value);
    if (node) return node;
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `An operand of a formula is ${String(value)}. Use numbers, and formulas of the same update.`,
    );
  }

  #unary(op: UnaryOp): Formula {
    return new Recorded(this.book, this.book.make({ kind: "unary", op, args: [this.node] }, op));
  }

  #binary(op: BinaryOp, other: FormulaOperand): Formula {
    const args = [this.node, this.#operand(other)] as const;
    return new Recorded(this.book, this.book.make({ kind: "binary", op, args }, op));
  }

  #compare(op: CompareOp, other: FormulaOperand): FormulaCondition {
    const condition = this.book.make(
      { kind: "compare", op, args: [this.node, this.#operand(other)] as const },
      op,
    );
    return {
      where: (ifTrue, ifFalse) => {
        const args = [condition, this.#operand(ifTrue), this.#operand(ifFalse)] as const;
        return new Recorded(this.book, this.book.make({ kind: "select", args }, "select"));
      },
    };
  }
}

/** The expression of a node in a type. `known` gives that of inputs, and of nodes that have been computed already. */
export function lowerFormula(
  node: FormulaNode,
  type: "f32" | "f64",
  known: (node: FormulaNode) => Expression | undefined,
): Expression {
  const done = new Map<FormulaNode, Expression>();
  const lower = (one: FormulaNode): Expression => {
    const expression = done.get(one) ?? known(one) ?? build(one);
    done.set(one, expression);
    return expression;
  };
  const build = (one: FormulaNode): Expression => {
    switch (one.kind) {
      case "constant":
        return term.constant(one.value, type);
      case "unary":
        return term[one.op](lower(one.args[0]));
      case "binary":
        return term[one.op](lower(one.args[0]), lower(one.args[1]));
      case "compare":
        return term[one.op](lower(one.args[0]), lower(one.args[1]));
      case "select": {
        const [condition, a, b] = one.args;
        return term.select(lower(condition), lower(a), lower(b));
      }
      case "input":
        throw new HoldfastError("BAD_ARGUMENT", `The formula's input "${one.name}" has no value.`);
    }
  };
  return lower(node);
}
