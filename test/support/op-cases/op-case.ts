/**
 * What a case of the op table is: an op, how its operands and attributes are drawn, and which operands have a gradient.
 * Every entry of the table has at least one; the tests of gradients and of memory run them all.
 *
 * A family's file is a list of these:
 *
 *   export const activationCases: readonly OpCase[] = [
 *     opCase({
 *       op: activations.relu,
 *       gradients: [0],
 *       draw: (elements) =>
 *         anyShape({ elements }).chain((shape) =>
 *           call([operand(shape, { values: awayFrom([0], between(-2, 2)) })]),
 *         ),
 *     }),
 *   ];
 */

import type fc from "fast-check";
import type { Dtype } from "../../../src/ir/index.js";
import type { Attributes, Op, Shape } from "../../../src/ops/index.js";

/**
 * How an operand's elements lie in memory.
 * - contiguous: row by row;
 * - transposed: the first axis fastest;
 * - offset: a slice, which begins three elements behind its memory's first and has gaps between its rows;
 * - stepped: every second element along the last axis;
 * - stretched: one step of 0, along the first axis that has more than one element (they all have the same value).
 */
export type LayoutName = "contiguous" | "transposed" | "offset" | "stepped" | "stretched";

/** A tensor that a case wants, as data: tests make it, on whatever device they test. */
export interface TensorOperand {
  readonly shape: Shape;
  /** In row-major order, whatever the layout. */
  readonly values: readonly number[];
  /** "float": f64, f32 or a half, as the test likes. */
  readonly dtype: Dtype | "float";
  readonly layout: LayoutName;
}

/** A tensor, a literal number, or the device's random state, which the test sets back before every call. */
export type CaseOperand = TensorOperand | number | "randomState";

export interface CaseCall<A extends Attributes = Attributes> {
  readonly operands: readonly CaseOperand[];
  readonly attributes: A;
}

export interface OpCase<A extends Attributes = Attributes> {
  readonly op: Op<A>;
  /** Which of several cases of one op this is. */
  readonly what?: string;
  /**
   * Draws operands and attributes, with at most about this many elements in any array. The values keep away from where
   * the op has a kink, by more than the step of a central difference (1e-5): use `awayFrom` and `isDistinct`.
   */
  readonly draw: (elements: number) => fc.Arbitrary<CaseCall<A>>;
  /** The operands that have a gradient, by their place; "none" for an op that rejects or gives no float. */
  readonly gradients: readonly number[] | "none";
}

/** Ties the attributes of a case to its op's, and then forgets them, so that cases of all ops fit one list. */
export function opCase<A extends Attributes>(definition: OpCase<A>): OpCase {
  return definition as unknown as OpCase;
}

export function nameOf({ op, what }: OpCase): string {
  return what === undefined ? op.name : `${op.name}, ${what}`;
}
