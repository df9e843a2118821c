/**
 * The single table of tolerances, for each dtype and use. A number a is near an expected e if
 * |a − e| ≤ relative · |e| + absolute.
 *
 * The dtype can meet each of them: a unit in the last place is 2⁻⁵³ of a value in f64 (1.1e-16), 2⁻²⁴ in f32
 * (6e-8), 2⁻¹¹ in f16 (4.9e-4) and 2⁻⁸ in bf16 (3.9e-3), and every test compares sums of a few dozen products
 * of numbers of order 1. A tolerance below the dtype's resolution would always fail, or be switched off and
 * prove nothing.
 */

import type { Dtype } from "holdfast";

export interface Tolerance {
  readonly relative: number;
  readonly absolute: number;
}

export type FloatDtype = Extract<Dtype, "f64" | "f32" | "f16" | "bf16">;

export type ToleranceUse =
  | "oracle value"
  | "oracle gradient"
  | "trajectory"
  | "against f64"
  | "model gradient";

const same = (size: number): Tolerance => ({ relative: size, absolute: size });

export const tolerances: Readonly<Record<ToleranceUse, Readonly<Record<FloatDtype, Tolerance>>>> = {
  // PyTorch computed the oracle in f64: differences in f64 come from another order of summation and another
  // exp. In f32 each value is a dozen roundings away from it, and six inputs of the oracle are rounded to
  // f32.
  "oracle value": {
    f64: same(1e-10),
    f32: { relative: 2e-6, absolute: 2e-6 },
    f16: same(4e-3),
    bf16: same(3e-2),
  },
  // Backward uses the forward's rounded values and adds its own roundings: twice as many.
  "oracle gradient": {
    f64: same(1e-10),
    f32: { relative: 5e-6, absolute: 5e-6 },
    f16: same(8e-3),
    bf16: same(6e-2),
  },
  // Ten steps of AdamW: each divides by √v, which makes a rounding error in a small gradient as large as the
  // gradient itself.
  trajectory: {
    f64: same(1e-9),
    f32: same(1e-5),
    f16: same(1e-2),
    bf16: same(1e-1),
  },
  // The same op on the same numbers, computed in the dtype and in f64, forward or backward.
  "against f64": {
    f64: same(1e-12),
    f32: { relative: 1e-5, absolute: 1e-5 },
    f16: same(1e-2),
    bf16: same(8e-2),
  },
  // The gradient of a parameter through a whole model, as a distance relative to its norm. Roundings of many elements
  // average out; but a ReLU or a max pool may choose another element than in f64, if two are as near as a rounding.
  "model gradient": {
    f64: same(1e-10),
    f32: same(5e-6),
    f16: same(5e-3),
    bf16: same(6e-2),
  },
};

/**
 * Central differences, in f64 only: in f32 the difference of two results of order 1 that are 1e-5 apart has
 * two right digits. With a step of 1e-5 the method's own error is h²/6 of the third derivative, up to 1e-7
 * where the cases come nearest to a pole, and rounding adds 1e-16/1e-5 for each result.
 */
export const centralDifferences = { step: 1e-5, f64: { relative: 2e-6, absolute: 2e-6 } } as const;

/**
 * True if it is near. NaN is near NaN, and an infinity near itself. The absolute term is for numbers of order
 * 1; `scale` is that order where sums of large terms may cancel.
 */
export function isNear(
  actual: number,
  expected: number,
  { relative, absolute }: Tolerance,
  scale = 1,
): boolean {
  if (Object.is(actual, expected) || actual === expected) return true;
  // A fraction of an infinity is infinite, and everything would be within it.
  if (!Number.isFinite(expected)) return false;
  return Math.abs(actual - expected) <= relative * Math.abs(expected) + absolute * scale;
}
