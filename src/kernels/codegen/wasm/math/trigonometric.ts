/**
 * sin, cos and tan of four floats, accurate over the whole range of float. Up to 2²⁰ the argument is reduced with π/2 as a sum of two doubles
 * (Cody–Waite). Above it, the reduction uses as many bits of 2/π as the largest float needs (Payne–Hanek).
 */

import type { Code, Local, WasmFunction } from "../../../../driver/index.js";
import {
  abs,
  add,
  and,
  div,
  type Expression,
  f64,
  isLess,
  keep,
  mul,
  nearest,
  neg,
  or,
  polynomial,
  read,
  select,
  shiftLeft,
  sub,
  xor,
} from "./expression.js";
import { inDoubles } from "./halves.js";
import { type VectorFunction, vectorFunction } from "./vector-function.js";
import { roundingShift } from "./wide-exp-log.js";

/** (sin r / r − 1) / r² as a polynomial of r² on |r| ≤ π/4: minimax, relative error of sin at most 2^−37.5. */
const sinTail = [-0.16666666640797054, 0.008333329304842553, -0.00019839312269363837, 2.71812162616472e-6];

/** (cos r − 1) / r² as a polynomial of r² on |r| ≤ π/4: minimax, relative error of cos at most 2^−33.8. */
const cosTail = [-0.49999999694475883, 0.04166662035713292, -0.0013886681648198288, 2.4383567339725682e-5];

/** π/2 as a sum of two doubles: the first has 33 bits, so that its product with up to 2²⁰ quarter turns is exact. */
const quarterTurnSummands = [1.5707963267341256, 6.077100506506192e-11] as const;
const hugeAbove = 2 ** 20;

/**
 * 2/π as a sum of doubles with 28 bits each: the product of a float and one of them is exact in double. 196 bits give the reduction of 2¹²⁸
 * to 2^−68 of a quarter turn. The float that is nearest to a whole number of quarter turns, 7.729…·10²⁸, differs from it by 2^−30.
 */
const twoOverPiSummands = [170891318, 240010261, 44024437, 131200308, 232525238, 43358524, 70845471].map(
  (digits, index) => digits * 2 ** (-28 * (index + 1)),
);

/**
 * Reduces two doubles of any size by quarter turns: returns the remainder, |r| ≤ π/4, and the number of quarter turns modulo 4 plus
 * `roundingShift`. Multiples of four quarter turns are subtracted from each product first, which is exact for every size.
 */
export const reduceHuge: WasmFunction = {
  name: "reduceHuge",
  parameters: ["v128"],
  results: ["v128", "v128"],
  body: (code) => {
    const x = read(code.parameter(0));
    let remainder = keep(code, f64(0));
    let turns = keep(code, f64(roundingShift));
    for (const summand of twoOverPiSummands) {
      const product = keep(code, mul(x, f64(summand)));
      const inCircle = sub(product, mul(nearest(mul(product, f64(0.25))), f64(4)));
      const sum = keep(code, add(remainder, inCircle));
      const whole = keep(code, nearest(sum));
      remainder = keep(code, sub(sum, whole));
      turns = keep(code, add(turns, whole));
    }
    mul(remainder, f64(Math.PI / 2))(code);
    turns(code);
  },
};

/** The remainder r of x after subtraction of quarter turns, and their number in the low bits of a double. */
function reduce(code: Code, x: Expression): { r: Expression; turns: Expression } {
  const [r, turns, hugeR, hugeTurns] = [
    code.local("v128"),
    code.local("v128"),
    code.local("v128"),
    code.local("v128"),
  ];
  add(mul(x, f64(2 / Math.PI)), f64(roundingShift))(code);
  code.set(turns);
  const count = keep(code, sub(read(turns), f64(roundingShift)));
  const [coarse, fine] = quarterTurnSummands;
  sub(sub(x, mul(count, f64(coarse))), mul(count, f64(fine)))(code);
  code.set(r);
  const isHuge = keep(code, isLess(f64(hugeAbove), abs(x)));
  isHuge(code);
  // The branch saves time and changes no result: the size of a lane selects its reduction.
  code.op("v128.any_true").if(() => {
    x(code);
    code.call(reduceHuge.name).set(hugeTurns).set(hugeR);
    select(isHuge, read(hugeR), read(r))(code);
    code.set(r);
    select(isHuge, read(hugeTurns), read(turns))(code);
    code.set(turns);
  });
  return { r: read(r), turns: read(turns) };
}

/** sin r and cos r on |r| ≤ π/4. */
function sineAndCosine(code: Code, r: Expression): { sine: Expression; cosine: Expression } {
  const square = keep(code, mul(r, r));
  const sine = mul(r, add(mul(square, polynomial(square, sinTail)), f64(1)));
  const cosine = add(mul(square, polynomial(square, cosTail)), f64(1));
  return { sine, cosine };
}

/** A mask of odd numbers of quarter turns. */
function isOddTurn(turns: Expression): Expression {
  return isLess(or(shiftLeft(turns, 63), f64(1)), f64(0));
}

/** sin(r + turns · π/2): an odd number of quarter turns swaps sine for cosine, and the second bit is the sign. */
function sineAfterTurns(code: Code, r: Expression, turns: Expression): Expression {
  const { sine, cosine } = sineAndCosine(code, r);
  const isOdd = isOddTurn(turns);
  const sign = and(shiftLeft(turns, 62), f64(-0));
  return xor(select(isOdd, cosine, sine), sign);
}

function shiftedSine(name: string, quarterTurns: number): VectorFunction {
  const formula = (code: Code, input: Local) =>
    inDoubles(code, [input], (inner, x) => {
      const { r, turns } = reduce(inner, x);
      return sineAfterTurns(inner, r, keep(inner, add(turns, f64(quarterTurns))));
    });
  return vectorFunction(name, 1, formula, [reduceHuge]);
}

export const sin = shiftedSine("sin", 0);
export const cos = shiftedSine("cos", 1);

/** tan(r + turns · π/2): sin r / cos r, or −cos r / sin r after an odd number of quarter turns. */
export const tan = vectorFunction(
  "tan",
  1,
  (code, input) =>
    inDoubles(code, [input], (inner, x) => {
      const { r, turns } = reduce(inner, x);
      const parts = sineAndCosine(inner, r);
      const [sine, cosine] = [keep(inner, parts.sine), keep(inner, parts.cosine)];
      const isOdd = keep(inner, isOddTurn(turns));
      return div(select(isOdd, neg(cosine), sine), select(isOdd, sine, cosine));
    }),
  [reduceHuge],
);
