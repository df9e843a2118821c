/**
 * Random expressions of the loop IR, with exactly rounded ops only, so that every device must give the same
 * bits.
 */

import fc from "fast-check";
import type { Compute, Expression } from "../../src/ir/index.js";
import { term } from "../../src/ir/index.js";

/** The inputs of the expressions: two f32 and one i32 at the current element, and one f32 at indices. */
export const inputDtypes = ["f32", "f32", "i32", "f32"] as const;
/** The expressions' only scalar, an f32. */
export const scalarValue = 2.5;
/** How far an index may be from the current element of the indexed input. */
export const reach = 9;

const ops = <Op extends string>(...names: readonly Op[]): fc.Arbitrary<Op> => fc.constantFrom(...names);

function binaryOf<Op extends "add" | "sub" | "mul" | "div" | "min" | "max" | "and">(
  operand: fc.Arbitrary<Expression>,
  type: Compute,
  ...names: readonly Op[]
): fc.Arbitrary<Expression> {
  return fc.record({
    kind: fc.constant("binary" as const),
    op: ops(...names),
    a: operand,
    b: operand,
    type: fc.constant(type),
  });
}

const expressions = fc.letrec<{ f32: Expression; i32: Expression }>((tie) => ({
  f32: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constantFrom(term.load(0, "f32"), term.load(1, "f32"), term.scalar(0, "f32")),
    fc.float({ noNaN: true, noDefaultInfinity: true }).map((value) => term.constant(value, "f32")),
    fc.record({
      kind: fc.constant("unary" as const),
      op: ops("neg", "abs", "floor", "ceil", "sqrt"),
      a: tie("f32"),
      type: fc.constant("f32" as const),
    }),
    binaryOf(tie("f32"), "f32", "add", "sub", "mul", "div", "min", "max"),
    fc.tuple(tie("i32"), tie("f32"), tie("f32")).map(([condition, a, b]) => term.select(condition, a, b)),
    tie("i32").map((a) => term.convert(a, "f32")),
    // An index from any integer, wrapped into that range.
    tie("i32").map((a) => term.load(3, "f32", term.max(term.min(a, reach), 0))),
  ),
  i32: fc.oneof(
    { depthSize: "small", withCrossShrink: true },
    fc.constant(term.load(2, "i32")),
    fc.integer({ min: -9, max: 9 }).map((value) => term.constant(value, "i32")),
    fc.record({
      kind: fc.constant("compare" as const),
      op: ops("eq", "ne", "lt", "le", "gt", "ge"),
      a: tie("f32"),
      b: tie("f32"),
      type: fc.constant("i32" as const),
    }),
    binaryOf(tie("i32"), "i32", "add", "sub", "mul", "min", "max", "and"),
    fc.tuple(tie("i32"), fc.nat(31)).map(([a, by]) => term.shr(a, by)),
    tie("f32").map((a) => term.convert(a, "i32")),
  ),
}));

export const f32Expressions: fc.Arbitrary<Expression> = expressions.f32;
export const i32Expressions: fc.Arbitrary<Expression> = expressions.i32;
