/**
 * Formulas over vectors, written as formulas: an expression writes the instructions that leave its value on the
 * stack, so `add(mul(a, b), c)` is the code that computes it. Without a suffix an operation is over two doubles
 * (f64x2), which most functions of this folder compute in; with 32, over four floats (f32x4).
 */

import type { Code, Local, StackOpcode } from "../../../../driver/index.js";

/** Writes a vector's value: called once for each place where the value is wanted. */
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
export const nearest = unary("f64x2.nearest");
/** The smaller and the larger; a NaN in `a` stays, and the second operand is meant to be a number. */
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
/** The bits of the first that the second has not. */
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

/** The 64 bits in both lanes. They travel as a double's constant, so they must not be those of a NaN. */
export function bits64(bits: bigint): Expression {
  return f64(new Float64Array(new BigUint64Array([bits]).buffer)[0] ?? 0);
}

/** Lane by lane `then` where the mask is set, `otherwise` where it is clear. */
export function select(mask: Expression, then: Expression, otherwise: Expression): Expression {
  return (code) => {
    then(code);
    otherwise(code);
    mask(code);
    code.op("v128.bitselect");
  };
}

/** NaN where the mask is set: a lane of ones is one, and so is whatever is joined with it. */
export function nanWhere32(mask: Expression, value: Expression): Expression {
  return or(mask, value);
}

/** The four floats of `magnitude` under the signs of `sign`; also keeps the sign of a zero. */
export function withSignOf32(sign: Expression, magnitude: Expression): Expression {
  return select(f32(-0), sign, magnitude);
}

/** c₀ + c₁x + c₂x² + …, from the inside out. */
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

/** Computes the value here, once; the expression that comes back reads it. */
export function keep(code: Code, value: Expression): Expression {
  const local = code.local("v128");
  value(code);
  code.set(local);
  return read(local);
}
