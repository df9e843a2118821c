/** Interval analysis of i32 expressions: which elements can an indexed load read? */

import { subexpressionsOf } from "./expression-walk.js";
import type { CompareOp, Expression, RowKernel } from "./kernels.js";

/** The values from `min` to `max`, both included. */
interface Range {
  readonly min: number;
  readonly max: number;
}

const anything: Range = { min: -Infinity, max: Infinity };

/**
 * True if every indexed load of an input reads an element of the current row, which begins at the load's element and has so many elements
 * up to its last one. Only loads of outputs per row begin at the row's start; others are not analysed.
 */
export function staysInRow(
  { stages, outputs }: RowKernel,
  input: number,
  rowExtent: number,
  scalars: readonly number[],
): boolean {
  return stages.every((stage) =>
    subexpressionsOf(stage.value).every((node) => {
      if (node.kind !== "load" || node.input !== input || !node.at) return true;
      if (stage.kind !== "store" || outputs[stage.output]?.per !== "row") return false;
      const { min, max } = rangeOf(node.at, scalars);
      return min >= 0 && max < rowExtent;
    }),
  );
}

function rangeOf(expression: Expression, scalars: readonly number[]): Range {
  switch (expression.kind) {
    case "constant":
      return { min: expression.value, max: expression.value };
    case "scalar": {
      const value = scalars[expression.index];
      return value === undefined ? anything : { min: value, max: value };
    }
    case "binary": {
      const [a, b] = [rangeOf(expression.a, scalars), rangeOf(expression.b, scalars)];
      return rangeOfBinary(expression.op, a, b);
    }
    case "select": {
      const { condition, a, b } = expression;
      const guarded = intersect(rangeOf(a, scalars), rangeIf(condition, a, scalars));
      const other = rangeOf(b, scalars);
      return { min: Math.min(guarded.min, other.min), max: Math.max(guarded.max, other.max) };
    }
    default:
      return anything;
  }
}

/** i32 arithmetic wraps around, so a result outside its range may be anything. */
function rangeOfBinary(op: string, a: Range, b: Range): Range {
  const corners = (combine: (x: number, y: number) => number): Range => {
    const values = [
      combine(a.min, b.min),
      combine(a.min, b.max),
      combine(a.max, b.min),
      combine(a.max, b.max),
    ];
    const range = { min: Math.min(...values), max: Math.max(...values) };
    return range.min >= -(2 ** 31) && range.max < 2 ** 31 ? range : anything;
  };
  if (op === "add") return corners((x, y) => x + y);
  if (op === "sub") return corners((x, y) => x - y);
  if (op === "mul") return corners((x, y) => x * y);
  if (op === "min") return { min: Math.min(a.min, b.min), max: Math.min(a.max, b.max) };
  if (op === "max") return { min: Math.max(a.min, b.min), max: Math.max(a.max, b.max) };
  return anything;
}

/** The values that an expression can have if a condition holds. Booleans are 0 or 1, so `min` is the logical and. */
function rangeIf(condition: Expression, of: Expression, scalars: readonly number[]): Range {
  if (condition.kind === "binary" && condition.op === "min")
    return intersect(rangeIf(condition.a, of, scalars), rangeIf(condition.b, of, scalars));
  if (condition.kind !== "compare") return anything;
  const { op, a, b } = condition;
  // Conversions are monotonic, so a comparison of converted values holds for the values themselves.
  const isMeant = a === of || (a.kind === "convert" && a.a === of);
  return isMeant ? rangeCompared(op, rangeOf(b, scalars)) : anything;
}

/** The integers that compare so with some value of a range. */
function rangeCompared(op: CompareOp, { min, max }: Range): Range {
  switch (op) {
    case "eq":
      return { min, max };
    case "lt":
      return { min: -Infinity, max: Math.ceil(max) - 1 };
    case "le":
      return { min: -Infinity, max: Math.floor(max) };
    case "gt":
      return { min: Math.floor(min) + 1, max: Infinity };
    case "ge":
      return { min: Math.ceil(min), max: Infinity };
    default:
      return anything;
  }
}

function intersect(a: Range, b: Range): Range {
  return { min: Math.max(a.min, b.min), max: Math.min(a.max, b.max) };
}
