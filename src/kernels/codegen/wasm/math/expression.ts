/**
 * Vector formulas as functions: an expression prints the instructions that push its value, so that `add(mul(a, b), c)` is the code that
 * computes it. Operations without a suffix are on two doubles (f64x2), which most functions of this folder use; those with the suffix 32
 * are on four floats (f32x4).
 */

import type { Code, Local, StackOpcode } from "../../../../driver/index.js";

/** Prints code that pushes a vector. It is called once for each use of the value. */
export type Expression = (code: Code) => void;

function unary(opcode: StackOpcode) {
  return (a: Expression): Expression =>
    (code) => {
      a(code);
      code.op(opcode);
    };
}

function binary(opcode: StackOpcode) {
  return (a: Expression, b: Expression): Expression =>
    (code) => {
      a(code);
      b(code);
      code.op(opcode);
    };
}

function shift(opcode: StackOpcode) {
  return (a: Expression, bits: number): Expression =>
    (code) => {
      a(code);
      code.i32(bits).op(opcode);
    };
}

export const add = binary("f64x2.add");
export const sub = binary("f64x2.sub");
export const mul = binary("f64x2.mul");
export const div = binary("f64x2.div");
export const abs = unary("f64x2.abs");
export const neg = unary("f64x2.neg");
export const sqrt = unary("f64x2.sqrt");
export const nearest = unary("f64x2.nearest");
/** Minimum and maximum. A NaN in `a` is kept; `b` must be a number. */
export const atMost = binary("f64x2.pmin");
export const atLeast = binary("f64x2.pmax");
export const isEqual = binary("f64x2.eq");
export const isLess = binary("f64x2.lt");
export const addBits = binary("i64x2.add");
export const shiftLeft = shift("i64x2.shl");
export const shiftRight = shift("i64x2.shr_u");

export const and = binary("v128.and");
export const or = binary("v128.or");
export const xor = binary("v128.xor");
/** The bits of the first operand that are clear in the second. */
export const andNot = binary("v128.andnot");

export const add32 = binary("f32x4.add");
export const sub32 = binary("f32x4.sub");
export const mul32 = binary("f32x4.mul");
export const div32 = binary("f32x4.div");
export const abs32 = unary("f32x4.abs");
export const neg32 = unary("f32x4.neg");
export const sqrt32 = unary("f32x4.sqrt");
export const trunc32 = unary("f32x4.trunc");
export const atMost32 = binary("f32x4.pmin");
export const atLeast32 = binary("f32x4.pmax");
export const isEqual32 = binary("f32x4.eq");
export const isNotEqual32 = binary("f32x4.ne");
export const isLess32 = binary("f32x4.lt");
export const addBits32 = binary("i32x4.add");
export const subBits32 = binary("i32x4.sub");
export const shiftLeft32 = shift("i32x4.shl");
export const shiftRight32 = shift("i32x4.shr_s");

/** The same double in both lanes. */
export function f64(value: number): Expression {
  return (code) => code.f64(value).op("f64x2.splat");
}

/** The same float in all four lanes. */
export function f32(value: number): Expression {
  return (code) => code.f32(value).op("f32x4.splat");
}

/** The 64 bits in both lanes. They are printed as a double constant, so they must not be a NaN. */
export function bits64(bits: bigint): Expression {
  return f64(new Float64Array(new BigUint64Array([bits]).buffer)[0] ?? 0);
}

/** For each lane, `then` if the mask is set, else `otherwise`. */
export function select(mask: Expression, then: Expression, otherwise: Expression): Expression {
  return (code) => {
    then(code);
    otherwise(code);
    mask(code);
    code.op("v128.bitselect");
  };
}

/** NaN in lanes whose mask is set: a lane of ones is a NaN, and so is its bitwise OR with anything. */
export function nanWhere32(mask: Expression, value: Expression): Expression {
  return or(mask, value);
}

/** The two doubles of `magnitude` with the signs of `sign`; keeps the sign of a zero. */
export function withSignOf(sign: Expression, magnitude: Expression): Expression {
  return select(f64(-0), sign, magnitude);
}

/** A mask of the doubles whose sign bit is set, −0 included. */
export function hasSign(a: Expression): Expression {
  return isLess(or(and(a, f64(-0)), f64(1)), f64(0));
}

/** The four floats of `magnitude` with the signs of `sign`; keeps the sign of a zero. */
export function withSignOf32(sign: Expression, magnitude: Expression): Expression {
  return select(f32(-0), sign, magnitude);
}

/** c₀ + c₁x + c₂x² + …, by Horner's rule. */
export function polynomial(x: Expression, coefficients: readonly number[]): Expression {
  return horner(coefficients, f64, (sum, c) => add(mul(sum, x), c));
}

export function polynomial32(x: Expression, coefficients: readonly number[]): Expression {
  return horner(coefficients, f32, (sum, c) => add32(mul32(sum, x), c));
}

function horner(
  coefficients: readonly number[],
  constant: (value: number) => Expression,
  step: (sum: Expression, c: Expression) => Expression,
): Expression {
  const [first = 0, ...rest] = coefficients.toReversed();
  return rest.reduce((sum, c) => step(sum, constant(c)), constant(first));
}

export function read(local: Local): Expression {
  return (code) => code.get(local);
}

/** Prints the computation of a value now, and returns an expression that reads it from a local. */
export function keep(code: Code, value: Expression): Expression {
  const local = code.local("v128");
  value(code);
  code.set(local);
  return read(local);
}
