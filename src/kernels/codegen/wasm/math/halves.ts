/**
 * Computes on four floats as two vectors of two doubles. A formula in doubles needs no error compensation for a float result, and a
 * subnormal float is a normal double. The single rounding at the end follows IEEE 754, also for subnormals.
 */

import type { Code, Local } from "../../../../driver/index.js";
import { type Expression, keep, read } from "./expression.js";

/** A function in doubles. It may print statements to `code` before it returns its result. */
export type WideFormula = (code: Code, ...inputs: Expression[]) => Expression;

/** The upper two floats of a vector, moved to the lower lanes. */
function upperPair(vector: Local): Expression {
  return (code) => code.get(vector).lane("f64x2.extract_lane", 1).op("f64x2.splat");
}

function promote(code: Code, pair: Expression): Expression {
  return keep(code, (inner) => {
    pair(inner);
    inner.op("f64x2.promote_low_f32x4");
  });
}

function demote(code: Code, wide: Expression): Expression {
  return keep(code, (inner) => {
    wide(inner);
    inner.op("f32x4.demote_f64x2_zero");
  });
}

/** Applies a formula in doubles to vectors of four floats, lane by lane. */
export function inDoubles(code: Code, inputs: readonly Local[], formula: WideFormula): Expression {
  const lower = inputs.map((input) => promote(code, read(input)));
  const lowerResult = demote(code, formula(code, ...lower));
  const upper = inputs.map((input) => promote(code, upperPair(input)));
  const upperResult = demote(code, formula(code, ...upper));
  return (inner) => {
    lowerResult(inner);
    upperResult(inner);
    inner.lane("f64x2.extract_lane", 0).lane("f64x2.replace_lane", 1);
  };
}
