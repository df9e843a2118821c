/**
 * The definition of a case of the op table: an op, how its operands and attributes are generated, and which operands have a gradient.
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
 * An operand's layout in memory.
 * - contiguous: row by row;
 * - transposed: the first axis fastest;
 * - offset: a slice, which begins three elements after its memory's first and has gaps between its rows;
 * - stepped: every second element along the last axis;
 * - broadcast: stride 0 along the first axis that has more than one element (they all have the same value).
 */
export type LayoutName = "contiguous" | "transposed" | "offset" | "stepped" | "broadcast";

/** A tensor of a case, as data: tests create it, on the device under test. */
export interface TensorOperand {
  readonly shape: Shape;
  /** In row-major order, whatever the layout. */
  readonly values: readonly number[];
  /** "float": f64, f32 or a half float, as the test selects. */
  readonly dtype: Dtype | "float";
  readonly layout: LayoutName;
}

/** A tensor, a literal number, or the device's random state, which the test resets before every call. */
export type CaseOperand = TensorOperand | number | "randomState";

export interface CaseCall<A extends Attributes = Attributes> {
  readonly operands: readonly CaseOperand[];
  readonly attributes: A;
}

export interface OpCase<A extends Attributes = Attributes> {
  readonly op: Op<A>;
  /** The name of this case among those of the op. */
  readonly what?: string;
  /**
   * Generates operands and attributes, with at most about this many elements in any array. The values stay
   * away from kinks of the op, by more than the step of a central difference (1e-5): use `awayFrom` and
   * `isDistinct`.
   */
  readonly draw: (elements: number) => fc.Arbitrary<CaseCall<A>>;
  /**
   * The indices of the operands that have a gradient; "none" for an op that rejects gradients or returns no
   * float.
   */
  readonly gradients: readonly number[] | "none";
}

/**
 * Checks the attributes of a case against its op's, and then erases their type, so that cases of all ops fit
 * one list.
 */
export function opCase<A extends Attributes>(definition: OpCase<A>): OpCase {
  return definition as unknown as OpCase;
}

export function nameOf({ op, what }: OpCase): string {
  return what === undefined ? op.name : `${op.name}, ${what}`;
}
