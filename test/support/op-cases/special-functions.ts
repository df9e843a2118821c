/** Cases of rounding, trigonometric and special functions, of selections, and of bitwise ops. */

import fc from "fast-check";
import {
  type Attributes,
  bitwise,
  divisors,
  type Op,
  rounding,
  selections,
  special,
  trigonometric,
} from "../../../src/ops/index.js";
import { awayFrom, between, broadcastShapesOf, call, operand, type Values, whole } from "./arbitraries.js";
import { type OpCase, opCase } from "./op-case.js";

const anything = between(-2, 2);
const positive = between(0.3, 3);
const awayFromZero = awayFrom([0], anything, 0.2);
const insideOne = between(-0.8, 0.8);
const fractions = awayFrom([-2, -1, 0, 1, 2], anything);
const hundredths: Values = (random) => whole(-200, 200)(random) / 100;
const between100ths: Values = (random) => whole(-200, 200)(random) / 100 + 0.005;

/** An op of operands that broadcast, with values for each. */
function ofValues<A extends Attributes>(
  op: Op<A>,
  values: readonly Values[],
  gradients: OpCase["gradients"] = values.map((_, index) => index),
  attributes: fc.Arbitrary<Attributes> = fc.constant({}),
): OpCase {
  return opCase({
    op: op as unknown as Op,
    gradients,
    draw: (elements) =>
      broadcastShapesOf(values.length, { elements }).chain((shapes) =>
        call(
          shapes.map((shape, index) => operand(shape, { values: values[index] ?? anything })),
          attributes,
        ),
      ),
  });
}

function ofIntegers(op: Op, operands: 1 | 2, what: string): OpCase {
  return opCase({
    op,
    what,
    gradients: "none",
    draw: (elements) =>
      broadcastShapesOf(operands, { elements }).chain(([a = [], b]) =>
        call([
          operand(a, { values: whole(-99, 99), dtype: "i32" }),
          ...(b ? [operand(b, { values: whole(1, 9), dtype: "u8" })] : []),
        ]),
      ),
  });
}

/** The divisor is far from 0, and no quotient of these is near a whole number. */
const dividends: Values = (random) => whole(-40, 40)(random) / 8 + 0.05;
const divisorValues: Values = (random) => [-1.5, 0.75, 1.25, 2.5][whole(0, 3)(random)] ?? 1;

const { bitwiseNot, ...bitwiseOfTwo } = bitwise;
const { round, trunc, frac, remainder, fmod, floorDivide } = rounding;
const { acosh, asin, acos, atanh, sinc, atan2, hypot, tan, ...entire } = trigonometric;
const { copysign, signbit, heaviside, fmax, fmin, lerp, addcmul, addcdiv, nanToNum } = selections;

export const specialFunctionCases: readonly OpCase[] = [
  ...[round, trunc, frac].map((op) => ofValues(op, [awayFrom([-1.5, -0.5, 0.5, 1.5], fractions)])),
  ...[remainder, fmod, floorDivide].map((op) => ofValues(op, [dividends, divisorValues])),
  ...[remainder, fmod, floorDivide].map((op) => ofIntegers(op, 2, "of integers")),
  ...Object.values(entire).map((op) => ofValues(op, [anything])),
  ...[asin, acos, atanh, tan].map((op) => ofValues(op, [insideOne])),
  ofValues(acosh, [between(1.2, 4)]),
  ofValues(sinc, [awayFromZero]),
  ...[atan2, hypot].map((op) => ofValues(op, [awayFromZero, awayFromZero])),
  ...[special.exp2, special.erfc].map((op) => ofValues(op, [anything])),
  ...[special.log2, special.log10, special.lgamma, special.digamma].map((op) => ofValues(op, [positive])),
  ofValues(special.i0, [between(-12, 12)]),
  ofValues(special.erfinv, [insideOne]),
  ofValues(special.logit, [between(0.1, 0.9)], [0], fc.constantFrom({}, { eps: 0.05 })),
  ofValues(special.xlogy, [anything, positive]),
  ...[special.logaddexp, special.logaddexp2].map((op) => ofValues(op, [anything, anything])),
  ofValues(copysign, [awayFromZero, awayFromZero]),
  ofValues(signbit, [awayFromZero], "none"),
  ofValues(heaviside, [hundredths, anything], "none"),
  ...[fmax, fmin].map((op) => ofValues(op, [hundredths, between100ths])),
  ofValues(lerp, [anything, anything, awayFrom([-0.5, 0.5], anything)]),
  ...[addcmul, addcdiv].map((op) =>
    ofValues(
      op,
      [anything, anything, awayFromZero],
      [0, 1, 2],
      fc.constantFrom({ value: 1 }, { value: -0.5 }),
    ),
  ),
  ofValues(nanToNum, [anything], [0], fc.constant({ nan: 0, posinf: 9, neginf: -9 })),
  ...Object.values(bitwiseOfTwo).map((op) => ofIntegers(op, 2, "of i32 and u8")),
  ofIntegers(bitwiseNot, 1, "of i32"),
  ...Object.values(divisors).map((op) => ofIntegers(op, 2, "of i32 and u8")),
];
