/** How far results are from expected values, in units of the tolerance: 1 is exactly at the tolerance. */

import type { FloatDtype, Tolerance } from "../../test/tolerances.js";

/** A dtype, or f32 with the operands of GEMMs rounded to TF32. */
export type ErrorColumn = FloatDtype | "tf32";

export const errorColumns: readonly ErrorColumn[] = ["f32", "tf32", "f16", "bf16", "f64"];

/** A result that a process with op cases prints, as JSON. */
export interface OpErrorLine extends Omit<Deviation, "share"> {
  readonly name: string;
  readonly column: ErrorColumn;
  /** A text, because JSON has no infinity. */
  readonly share: string;
}

export interface Deviation {
  /** In units of the tolerance. */
  readonly share: number;
  /** The difference itself. */
  readonly error: number;
  readonly what: string;
}

export const noDeviation: Deviation = { share: 0, error: 0, what: "" };

export function worseOf(a: Deviation, other: Deviation): Deviation {
  return other.share > a.share ? other : a;
}

/**
 * The element that is farthest off. NaN for NaN and an infinity for itself are exact; any other value for
 * them is infinitely far off. `scale` is the magnitude that sums of large terms may cancel from, as in the
 * tests.
 */
export function deviationOf(
  actual: ArrayLike<number>,
  expected: ArrayLike<number>,
  { relative, absolute }: Tolerance,
  scale: number,
  what: string,
): Deviation {
  const infinitely = (text: string): Deviation => ({ share: Infinity, error: Infinity, what: text });
  if (actual.length !== expected.length)
    return infinitely(`${what}: ${actual.length} elements instead of ${expected.length}`);
  let worst = { share: 0, error: 0, at: -1 };
  for (let at = 0; at < expected.length; at++) {
    const [value, target] = [actual[at]!, expected[at]!];
    if (Object.is(value, target) || value === target) continue;
    const error = Math.abs(value - target);
    if (!Number.isFinite(error)) return infinitely(`${what}[${at}] is ${value} instead of ${target}`);
    const share = error / (relative * Math.abs(target) + absolute * scale);
    if (share > worst.share) worst = { share, error, at };
  }
  const { share, error, at } = worst;
  return at < 0
    ? noDeviation
    : { share, error, what: `${what}[${at}] is ${actual[at]} instead of ${expected[at]}` };
}

/** The largest of them, at least 1. */
export function scaleOf(values: ArrayLike<number>): number {
  let scale = 1;
  for (let at = 0; at < values.length; at++) {
    const size = Math.abs(values[at]!);
    if (Number.isFinite(size) && size > scale) scale = size;
  }
  return scale;
}
