/** Traversals of expressions: operands, uses, loads, and loop invariance. */

import type { Expression } from "./kernels.js";

export type Load = Extract<Expression, { kind: "load" }>;

/** The operands of an expression; a select's values come before its condition. */
export function operandsOf(expression: Expression): readonly Expression[] {
  switch (expression.kind) {
    case "load":
      return expression.at ? [expression.at] : [];
    case "unary":
    case "convert":
      return [expression.a];
    case "binary":
    case "compare":
      return [expression.a, expression.b];
    case "select":
      return [expression.a, expression.b, expression.condition];
    default:
      return [];
  }
}

/** How often each subexpression is used; each root counts as one use. */
export function countUses(...roots: readonly Expression[]): ReadonlyMap<Expression, number> {
  const uses = new Map<Expression, number>();
  const visit = (expression: Expression): void => {
    const count = uses.get(expression) ?? 0;
    uses.set(expression, count + 1);
    if (count === 0) for (const operand of operandsOf(expression)) visit(operand);
  };
  for (const root of roots) visit(root);
  return uses;
}

/** An expression and all its subexpressions, each once. */
export function subexpressionsOf(root: Expression): readonly Expression[] {
  return [...countUses(root).keys()];
}

export function loadsOf(root: Expression): readonly Load[] {
  return subexpressionsOf(root).filter((node) => node.kind === "load");
}

/** True if the expression has the same value for the whole row. `isInvariant` says so for loads of an input. */
export function isUniform(root: Expression, isInvariant: (input: number) => boolean): boolean {
  return subexpressionsOf(root).every(
    (node) => node.kind !== "position" && (node.kind !== "load" || isInvariant(node.input)),
  );
}

/**
 * The largest loop-invariant subexpressions of a value, which can be computed once before the row's elements. Leaves and indexed loads
 * are not included.
 */
export function invariantNodesOf(
  root: Expression,
  isInvariant: (input: number) => boolean,
): readonly Expression[] {
  const invariant = new Set<Expression>();
  // Expressions share nodes, and a binary search shares almost all of them: each is visited once.
  const visited = new Set<Expression>();
  const visit = (node: Expression): void => {
    if (visited.has(node) || operandsOf(node).length === 0) return;
    visited.add(node);
    const isInvariantNode = isUniform(node, isInvariant) && loadsOf(node).every(({ at }) => !at);
    if (isInvariantNode) invariant.add(node);
    else for (const operand of operandsOf(node)) visit(operand);
  };
  visit(root);
  return [...invariant];
}

/** The expression with one of its nodes replaced. Parts without that node stay the same objects. */
export function replaceIn(root: Expression, node: Expression, by: Expression): Expression {
  const replaced = new Map<Expression, Expression>([[node, by]]);
  const visit = (expression: Expression): Expression => {
    const known = replaced.get(expression);
    if (known) return known;
    const result = operandsOf(expression).some((operand) => visit(operand) !== operand)
      ? withOperands(expression, visit)
      : expression;
    replaced.set(expression, result);
    return result;
  };
  return visit(root);
}

function withOperands(expression: Expression, to: (operand: Expression) => Expression): Expression {
  switch (expression.kind) {
    case "load":
      return expression.at ? { ...expression, at: to(expression.at) } : expression;
    case "unary":
    case "convert":
      return { ...expression, a: to(expression.a) };
    case "binary":
    case "compare":
      return { ...expression, a: to(expression.a), b: to(expression.b) };
    case "select": {
      const { a, b, condition } = expression;
      return { ...expression, a: to(a), b: to(b), condition: to(condition) };
    }
    default:
      return expression;
  }
}

/** True if any subexpression is computed in 64 bits. */
export function uses64Bits(root: Expression): boolean {
  return subexpressionsOf(root).some(({ type }) => type === "f64" || type === "i64");
}
