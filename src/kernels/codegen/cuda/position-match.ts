/**
 * Values that differ at one position of the row, such as the gradient of a cross entropy at its label. In a long row, the position is
 * tested once per vector: other vectors compute the value without the test. The bits are the same.
 */

import {
  type Expression,
  isUniform,
  operandsOf,
  replaceIn,
  subexpressionsOf,
  term,
} from "../../../ir/index.js";

export interface PositionMatch {
  /** The position, the same for the whole row. */
  readonly at: Expression;
  /** The value of elements at other positions. */
  readonly elsewhere: Expression;
}

/** The test for a position, if the value uses the position nowhere else. `isInvariant` says whether an input is constant along the row. */
export function positionMatchIn(
  value: Expression,
  isInvariant: (input: number) => boolean,
): PositionMatch | undefined {
  const [match, ...others] = subexpressionsOf(value).filter((node) =>
    operandsOf(node).some(({ kind }) => kind === "position"),
  );
  if (match?.kind !== "compare" || match.op !== "eq" || others.length > 0) return undefined;
  const at = match.a.kind === "position" ? match.b : match.a;
  if (!isUniform(at, isInvariant)) return undefined;
  return { at, elsewhere: replaceIn(value, match, term.constant(0, "i32")) };
}
