/** Looks into expressions of the loop IR: what they are made of, what they read, and whether a row changes them. */

import type { Expression } from "./kernels.js";

export type Load = Extract<Expression, { kind: "load" }>;

/** What an expression is made of: a select's branches before its condition. */
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

/** How often each part of some expressions is used in them; each whole counts as used once. */
export function countUses(...roots: readonly Expression[]): ReadonlyMap<Expression, number> {
  const uses = new Map<Expression, number>();
  const visit = (expression: Expression): void => {
    const seen = uses.get(expression) ?? 0;
    uses.set(expression, seen + 1);
    if (seen === 0) for (const operand of operandsOf(expression)) visit(operand);
  };
  for (const root of roots) visit(root);
  return uses;
}

/** An expression and all its parts, each once. */
export function subexpressionsOf(root: Expression): readonly Expression[] {
  return [...countUses(root).keys()];
}

export function loadsOf(root: Expression): readonly Load[] {
  return subexpressionsOf(root).filter((part) => part.kind === "load");
}

/** Has the expression one value for the whole row? `isInvariant` tells whether a load of an input has. */
export function isUniform(root: Expression, isInvariant: (input: number) => boolean): boolean {
  return subexpressionsOf(root).every(
    (part) => part.kind !== "position" && (part.kind !== "load" || isInvariant(part.input)),
  );
}

/**
 * The largest parts of a value that don't change along the row, loads at an index aside: what can be computed once,
 * before the row's elements. Leaves are left out.
 */
export function invariantNodesOf(
  root: Expression,
  isInvariant: (input: number) => boolean,
): readonly Expression[] {
  const found = new Set<Expression>();
  const visit = (part: Expression): void => {
    if (found.has(part) || operandsOf(part).length === 0) return;
    const isInvariantNode = isUniform(part, isInvariant) && loadsOf(part).every(({ at }) => !at);
    if (isInvariantNode) found.add(part);
    else for (const operand of operandsOf(part)) visit(operand);
  };
  visit(root);
  return [...found];
}

/** Is anything in it computed in 64 bits? */
export function usesF64(root: Expression): boolean {
  return subexpressionsOf(root).some(({ type }) => type === "f64");
}
