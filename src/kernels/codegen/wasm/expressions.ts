/** Prints checked expressions of the loop IR as SIMD code: every value is a v128. */

import type { Code, Local, StackOpcode } from "../../../driver/index.js";
import { HoldfastError } from "../../../errors/index.js";
import type { BinaryOp, CompareOp, Compute, Expression, UnaryOp } from "../../../ir/index.js";
import { countUses, operandsOf } from "../../../ir/index.js";
import { type VectorMathName, vectorMath } from "./math/index.js";

const shapeOf = { f32: "f32x4", f64: "f64x2", i32: "i32x4", i64: "i64x2" } as const;

/** Unary ops that are one instruction; the others are functions. */
const unaryInstructions: Partial<Record<UnaryOp, string>> = {
  neg: "neg",
  abs: "abs",
  sqrt: "sqrt",
  floor: "floor",
  ceil: "ceil",
  round: "nearest",
  trunc: "trunc",
};

/** Pushes the leaves of an expression. */
export interface Leaves {
  /** With `at`, its value is on the stack and is consumed. */
  pushLoad(input: number, at: Expression | undefined): void;
  pushScalar(index: number): void;
  pushReduced(stage: number): void;
  pushPosition(): void;
  pushRow(): void;
}

/** Returns the operand that an expression refers to; throws if its kernel has no such operand. */
export function required<T>(value: T | undefined, what: string, kernel: string): T {
  if (value !== undefined) return value;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Kernel "${kernel}" uses ${what}, but does not declare it. Declare it, or correct its number.`,
  );
}

/** Pushes an expression's value. Common subexpressions are computed once; those in `computed` already are. */
export function pushExpression(
  code: Code,
  root: Expression,
  leaves: Leaves,
  computed: ReadonlyMap<Expression, Local> = new Map(),
): void {
  expressionPusher(code, [root], leaves, computed)(root);
}

/** Pushes several expressions in straight-line code, with common subexpressions computed once. */
export function expressionPusher(
  code: Code,
  roots: readonly Expression[],
  leaves: Leaves,
  computed: ReadonlyMap<Expression, Local> = new Map(),
): (root: Expression) => void {
  const uses = countUses(...roots);
  const locals = new Map(computed);

  function push(expression: Expression): void {
    const local = locals.get(expression);
    if (local) {
      code.get(local);
      return;
    }
    compute(expression);
    if ((uses.get(expression) ?? 0) > 1 && expression.kind !== "constant") {
      const local = code.local("v128");
      locals.set(expression, local);
      code.tee(local);
    }
  }

  function compute(expression: Expression): void {
    if (expression.kind === "binary" && expression.op === "shr") {
      push(expression.a);
      pushShift(code, expression.type, expression.b);
      return;
    }
    for (const operand of operandsOf(expression)) push(operand);
    switch (expression.kind) {
      case "load":
        leaves.pushLoad(expression.input, expression.at);
        break;
      case "scalar":
        leaves.pushScalar(expression.index);
        break;
      case "reduced":
        leaves.pushReduced(expression.stage);
        break;
      case "position":
        leaves.pushPosition();
        break;
      case "row":
        leaves.pushRow();
        break;
      case "constant":
        pushConstant(code, expression.type, expression.value);
        break;
      case "unary":
        pushUnary(code, expression.op, expression.type);
        break;
      case "binary":
        pushBinary(code, expression.op, expression.type);
        break;
      case "compare":
        pushCompare(code, expression.op, expression.a.type);
        break;
      case "select":
        pushSelect(code, expression.type);
        break;
      case "convert":
        pushConversion(code, expression.a.type, expression.type);
        break;
    }
  }

  return push;
}

/** Splats the scalar on the stack. */
export function splat(code: Code, type: Compute): void {
  code.op(`${shapeOf[type]}.splat`);
}

/** A new vector with a launch parameter in every lane. */
export function splatOf(code: Code, scalar: Local, type: Compute): Local {
  const vector = code.local("v128");
  code.get(scalar);
  if (type === "i64") code.op("i64.trunc_sat_f64_s");
  splat(code, type);
  code.set(vector);
  return vector;
}

/** Pushes 0, 1, … in the first `lanes` lanes. */
export function pushLaneNumbers(code: Code, lanes: number): void {
  code.i32(0).op("i32x4.splat");
  for (let lane = 1; lane < lanes; lane++) code.i32(lane).lane("i32x4.replace_lane", lane);
}

export function pushConstant(code: Code, type: Compute, value: number): void {
  code[type](value);
  splat(code, type);
}

function pushUnary(code: Code, op: UnaryOp, type: Compute): void {
  const instruction = unaryInstructions[op];
  if (instruction) code.op(instructionOf(type, instruction));
  else pushFunction(code, op, type, 1);
}

function pushFunction(code: Code, name: string, type: Compute, operands: 1 | 2): void {
  if (type === "f64") callByLane(code, name, operands);
  else if (Object.hasOwn(vectorMath, name)) inlineFunction(code, name as VectorMathName, operands);
  else callByFloat(code, name, operands);
}

/** Inlines a vector function of floats on the `operands` vectors on the stack. */
function inlineFunction(code: Code, name: VectorMathName, operands: 1 | 2): void {
  const vectors = popVectors(code, operands);
  vectorMath[name].inline(code, ...vectors);
}

/** Pops vectors from the stack into locals, in order. */
function popVectors(code: Code, count: number): Local[] {
  const vectors = Array.from({ length: count }, () => code.local("v128"));
  for (const vector of vectors.toReversed()) code.set(vector);
  return vectors;
}

/** Calls a function of doubles for each lane of the `operands` vectors on the stack. */
function callByLane(code: Code, name: string, operands: 1 | 2): void {
  const vectors = popVectors(code, operands);
  const call = (lane: number): void => {
    for (const vector of vectors) code.get(vector).lane("f64x2.extract_lane", lane);
    code.call(`math.${name}`);
  };
  call(0);
  code.op("f64x2.splat");
  call(1);
  code.lane("f64x2.replace_lane", 1);
}

/** Calls a function of doubles for each of four floats, and rounds its results. */
function callByFloat(code: Code, name: string, operands: 1 | 2): void {
  const vectors = popVectors(code, operands);
  const call = (lane: number): void => {
    for (const vector of vectors) code.get(vector).lane("f32x4.extract_lane", lane).op("f64.promote_f32");
    code.call(`math.${name}`).op("f32.demote_f64");
  };
  call(0);
  code.op("f32x4.splat");
  for (const lane of [1, 2, 3]) {
    call(lane);
    code.lane("f32x4.replace_lane", lane);
  }
}

export function pushBinary(code: Code, op: BinaryOp, type: Compute): void {
  if (op === "pow" || op === "atan2" || op === "fmod") {
    pushFunction(code, op, type, 2);
  } else if (op === "and") {
    code.op("v128.and");
  } else if (type === "i64" && (op === "min" || op === "max")) {
    const [a, b] = [code.local("v128"), code.local("v128")];
    code.set(b).set(a).get(a).get(b).get(a).get(b);
    code.op(op === "min" ? "i64x2.lt_s" : "i64x2.gt_s").op("v128.bitselect");
  } else {
    const isIntegerOrder = type === "i32" && (op === "min" || op === "max");
    code.op(instructionOf(type, isIntegerOrder ? `${op}_s` : op));
  }
}

/** SIMD shifts all lanes by one count, so the IR requires a constant. */
function pushShift(code: Code, type: Compute, by: Expression): void {
  code.i32(by.kind === "constant" ? by.value : 0).op(type === "i64" ? "i64x2.shr_u" : "i32x4.shr_u");
}

/** Pushes 1 in lanes where the comparison is true, else 0. */
function pushCompare(code: Code, op: CompareOp, type: Compute): void {
  const isIntegerOrder = (type === "i32" || type === "i64") && op !== "eq" && op !== "ne";
  code.op(instructionOf(type, isIntegerOrder ? `${op}_s` : op));
  if (type === "f64") {
    // The mask of a 64-bit lane becomes 1.0 or 0.0, then an i32 in the same lane.
    pushConstant(code, "f64", 1);
    code.op("v128.and").op("i32x4.trunc_sat_f64x2_s_zero");
  } else {
    if (type === "i64") narrowTo32Bits(code);
    pushConstant(code, "i32", 1);
    code.op("v128.and");
  }
}

/** Selects between the two vectors below the condition. */
function pushSelect(code: Code, type: Compute): void {
  if (type === "f64") code.op("f64x2.convert_low_i32x4_s");
  if (type === "i64") code.op("i64x2.extend_low_i32x4_s");
  const condition = type === "f32" ? "i32" : type;
  pushConstant(code, condition, 0);
  code.op(`${shapeOf[condition]}.ne`).op("v128.bitselect");
}

/** The low halves of the two 64-bit lanes, in the first two 32-bit lanes. */
function narrowTo32Bits(code: Code): void {
  const wide = code.local("v128");
  code.tee(wide).get(wide).shuffle([0, 2, 0, 2]);
}

/** Float to integer truncates and saturates; NaN becomes 0. */
function pushConversion(code: Code, from: Compute, to: Compute): void {
  if (from === to) return;
  if (from === "i64" && to === "i32") {
    narrowTo32Bits(code);
    return;
  }
  if (from === "i64" || (to === "i64" && from !== "i32")) {
    convertByLane(code, from, to);
    return;
  }
  if (to === "i64") {
    code.op("i64x2.extend_low_i32x4_s");
    return;
  }
  const conversions = {
    f32: { f64: "f64x2.promote_low_f32x4", i32: "i32x4.trunc_sat_f32x4_s" },
    f64: { f32: "f32x4.demote_f64x2_zero", i32: "i32x4.trunc_sat_f64x2_s_zero" },
    i32: { f32: "f32x4.convert_i32x4_s", f64: "f64x2.convert_low_i32x4_s" },
  } as const;
  code.op((conversions[from] as Record<Compute, StackOpcode>)[to]);
}

/** Conversions between i64 and floats, which have no vector instruction: of the first two lanes. */
function convertByLane(code: Code, from: Compute, to: Compute): void {
  const [source, result] = [code.local("v128"), code.local("v128")];
  code.set(source);
  const convert = (lane: number): void => {
    code.get(source).lane(`${shapeOf[from]}.extract_lane`, lane);
    code.op(`${to}.${to === "i64" ? "trunc_sat" : "convert"}_${from}_s` as StackOpcode);
  };
  convert(0);
  splat(code, to);
  code.set(result).get(result);
  convert(1);
  code.lane(`${shapeOf[to]}.replace_lane`, 1);
}

/** The instruction of a vector's shape. It exists, because the kernel has been checked. */
function instructionOf(type: Compute, operation: string): StackOpcode {
  return `${shapeOf[type]}.${operation}` as StackOpcode;
}
