/**
 * Validates kernels of the loop IR before code generation: every input, output, scalar and reduction exists, types match, and each op is
 * defined for its type. All devices share this check, so that they accept the same kernels.
 */

import { HoldfastError } from "../errors/index.js";
import { type Dtype, dtypes, type InputDtype, inputDtypes } from "./dtypes.js";
import { operandsOf } from "./expression-walk.js";
import {
  type BinaryOp,
  type ColumnKernel,
  type Compute,
  type Expression,
  type RowKernel,
  roundings,
  type UnaryOp,
} from "./kernels.js";

export function checkRowKernel({ name, inputs, outputs, scalars, stages }: RowKernel): void {
  if (stages.length === 0) throw bad(name, "has no stages");
  const reductions = new Map<number, Compute>();
  for (const [index, stage] of stages.entries()) {
    checkExpression(stage.value, { name, inputs, scalars, reductions });
    if (stage.kind === "reduce") {
      reductions.set(index, stage.value.type);
      continue;
    }
    const output = outputs[stage.output];
    if (!output) throw bad(name, `stores to output ${stage.output}, which it does not have`);
    requireStorable(name, stage.value, output.dtype);
  }
}

/** The maximum number of values that a GPU block has shared memory for. */
export const maxColumnValues = 4;

export function checkColumnKernel({ name, inputs, outputs, scalars, values }: ColumnKernel): void {
  if (values.length === 0) throw bad(name, "reduces no value");
  if (values.length > maxColumnValues) {
    throw bad(name, `reduces ${values.length} values in one pass, which takes up to ${maxColumnValues}`);
  }
  if (values.length !== outputs.length) {
    throw bad(name, `reduces ${values.length} values into ${outputs.length} outputs`);
  }
  for (const [index, value] of values.entries()) {
    checkExpression(value, { name, inputs, scalars, reductions: undefined });
    const output = outputs[index];
    if (output) requireStorable(name, value, output);
  }
}

/** The operands that an expression may refer to. Column kernels have no stages, and so no earlier reductions. */
interface Scope {
  readonly name: string;
  readonly inputs: readonly InputDtype[];
  readonly scalars: readonly Compute[];
  readonly reductions: ReadonlyMap<number, Compute> | undefined;
}

function checkExpression(root: Expression, scope: Scope): void {
  const checked = new Set<Expression>();
  const visit = (expression: Expression): void => {
    if (checked.has(expression)) return;
    checked.add(expression);
    for (const operand of operandsOf(expression)) visit(operand);
    checkNode(expression, scope);
  };
  visit(root);
}

function checkNode(expression: Expression, { name, inputs, scalars, reductions }: Scope): void {
  const { kind, type } = expression;
  switch (kind) {
    case "load": {
      const { input, at } = expression;
      if (at && at.type !== "i32") {
        throw new HoldfastError(
          "BAD_ARGUMENT",
          `Kernel "${name}": a load's "at" is ${at.type}; an index must be i32. Convert it.`,
        );
      }
      const dtype = inputs[input];
      if (at && dtype === "draw") throw bad(name, `reads input ${input}, a draw, at an index`);
      requireSame(name, `input ${input}`, dtype && inputDtypes[dtype].compute, type);
      return;
    }
    case "scalar":
      requireSame(name, `scalar ${expression.index}`, scalars[expression.index], type);
      return;
    case "reduced": {
      const what = reductions
        ? `an earlier reduction ${expression.stage}`
        : `the reduction of a stage ${expression.stage}`;
      requireSame(name, what, reductions?.get(expression.stage), type);
      return;
    }
    case "unary":
      requireSame(name, `the operand of ${expression.op}`, expression.a.type, type);
      if (!isDefined(expression.op, type)) throw unsupported(name, expression.op, type);
      return;
    case "binary":
      checkBinary(name, expression);
      return;
    case "compare":
      requireSame(name, `the right side of ${expression.op}`, expression.b.type, expression.a.type);
      return;
    case "select":
      requireSame(name, "a select's condition", expression.condition.type, "i32");
      requireSame(name, "a select's first branch", expression.a.type, type);
      requireSame(name, "a select's second branch", expression.b.type, type);
  }
}

const unaryOfIntegers: ReadonlySet<UnaryOp> = new Set<UnaryOp>(["neg", "abs"]);

function isDefined(op: UnaryOp, type: Compute): boolean {
  if (roundings.has(op)) return type === "f32";
  return (type !== "i32" && type !== "i64") || unaryOfIntegers.has(op);
}

const binaryOfIntegersOnly: ReadonlySet<BinaryOp> = new Set<BinaryOp>(["and", "shr"]);
const binaryOfFloatsOnly: ReadonlySet<BinaryOp> = new Set<BinaryOp>(["div", "pow", "atan2", "fmod"]);

function checkBinary(name: string, { op, a, b, type }: Extract<Expression, { kind: "binary" }>): void {
  const isInvalid =
    type === "i32" || type === "i64" ? binaryOfFloatsOnly.has(op) : binaryOfIntegersOnly.has(op);
  if (isInvalid) throw unsupported(name, op, type);
  const shiftable = type === "i64" ? 64 : 32;
  // SIMD shifts all lanes by one count, which has to be a constant of the generated code.
  if (
    op === "shr" &&
    !(b.kind === "constant" && Number.isInteger(b.value) && b.value >= 0 && b.value < shiftable)
  ) {
    const by = b.kind === "constant" ? `${b.value}` : `a ${b.kind}`;
    throw new HoldfastError(
      "UNSUPPORTED",
      `Kernel "${name}" can't shift by ${by}. Shift by a constant, a whole number from 0 to ${shiftable - 1}.`,
    );
  }
  requireSame(name, `the left side of ${op}`, a.type, type);
  requireSame(name, `the right side of ${op}`, b.type, type);
}

function requireStorable(name: string, value: Expression, dtype: Dtype): void {
  const { compute } = dtypes[dtype];
  if (value.type === compute) return;
  throw bad(name, `stores ${value.type} in ${dtype}, whose compute type is ${compute}`);
}

function requireSame(name: string, what: string, type: Compute | undefined, expected: Compute): void {
  if (type === expected) return;
  throw bad(
    name,
    type ? `uses ${what} as ${expected}, which is ${type}` : `uses ${what}, which it does not have`,
  );
}

function bad(name: string, problem: string): HoldfastError {
  return new HoldfastError("BAD_ARGUMENT", `Kernel "${name}" ${problem}. No code can be generated for it.`);
}

function unsupported(name: string, op: string, type: Compute): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `Kernel "${name}" can't do ${op} in ${type}. Convert to a type that can${type === "i64" ? ', with to("i32") or to("f64")' : ""}.`,
  );
}
