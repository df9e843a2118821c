/**
 * Vectorised access: a thread handles a vector of neighbouring elements at a time. Aligned memory is accessed vector-wise, other memory
 * element by element up to the end of the row. Values and their order are the same either way. In a vectorised kernel, only operands
 * with a stride along the row are accessed element by element.
 *
 * In the generated code, `position` is a vector's first element in its row. In kernels with tails, `remaining` is the number of elements
 * from there to the end of the row.
 */

import { HoldfastError } from "../../../errors/index.js";
import type { Expression, Stage } from "../../../ir/index.js";
import { invariantNodesOf, loadsOf } from "../../../ir/index.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { expressionPrinter, type Leaves, printExpression } from "./expressions.js";
import type { KernelText } from "./kernel-text.js";
import type { PositionMatch } from "./position-match.js";
import {
  elementAt,
  narrowed,
  type Operand,
  type RowOperands,
  widened,
  widenedElement,
} from "./row-operands.js";

/** How vectors are accessed: vector-wise; vector-wise with a shorter last vector (tail); or element by element. */
export type VectorAccess = "vector" | "tail" | "scalar";

/** Vectors of width 1 have no tail. Vectors of width 8 are whole and contiguous. */
export interface VectorShape {
  readonly width: 1 | 4 | 8;
  readonly access: VectorAccess;
  /** In kernels with scalar access: contiguous rows begin on vector boundaries, so that only the last vector of a row is accessed element by element. */
  readonly hasAlignedRows?: boolean;
}

/** The context in which stages are printed. */
export interface StageContext {
  readonly text: KernelText;
  readonly operands: RowOperands;
  readonly shape: VectorShape;
  /** The expression of the row's index. */
  readonly row: string;
  /** The results of earlier reductions, by stage. */
  readonly reduced: ReadonlyMap<number, string>;
}

/** Locals of subexpressions that are already computed. */
export type ComputedNodes = ReadonlyMap<Expression, string>;

/** Numbers of a draw are packed, so that a vector takes fewer registers. */
export function vectorType({ text, shape }: StageContext, { dtype }: Operand): string {
  if (dtype === "draw" && shape.width > 1) return `${text.use("Drawn")}<${shape.width}>`;
  return `Vec<${elementTypes[dtype].type}, ${shape.width}>`;
}

/** The inputs that a value reads at the current element and that vary along the row. */
export function vectorsReadBy({ operands }: StageContext, value: Expression): [input: number, Operand][] {
  const inputs = new Set(loadsOf(value).flatMap(({ input, at }) => (at ? [] : [input])));
  return [...inputs]
    .map((input): [number, Operand] => [input, inputAt(operands, input)])
    .filter(([, { inner }]) => inner !== "none");
}

export function loadedVector(context: StageContext, operand: Operand): string {
  if (operand.dtype === "draw") return drawnVector(context, operand);
  const { text, shape } = context;
  const address = addressOf(operand);
  const vector = (): string => `${text.use("loadVec")}<${shape.width}>(${address})`;
  const tail = (): string => text.call("loadTail", address, operand.stride, "remaining");
  if (isStrided(shape, operand)) return text.call("loadStrided", address, operand.stride);
  if (hasWholeVectors(shape, operand)) return `remaining < 4u ? ${tail()} : ${vector()}`;
  return shape.access === "vector" ? vector() : tail();
}

/** Numbers after the end of a row are drawn too: no memory has them. */
function drawnVector({ text, shape }: StageContext, operand: Operand): string {
  const index = addressOf(operand);
  // Without whole vectors a row may begin anywhere in the numbers of a call.
  const isWithinCall = !isStrided(shape, operand) && shape.access !== "scalar";
  if (isWithinCall && shape.width > 1)
    return `${text.use("drawNumbers")}<${shape.width}>(${operand.memory}, ${index})`;
  if (isWithinCall) return `${text.use("drawVec")}<${shape.width}>(${operand.memory}, ${index})`;
  return text.call("drawStrided", operand.memory, index, operand.stride);
}

/** True for an operand with a stride along the row, in a kernel of whole vectors. */
function isStrided({ width, access }: VectorShape, { inner }: Operand): boolean {
  return width > 1 && access === "vector" && inner === "any";
}

/** True if all vectors but the last of a row are accessed vector-wise. */
function hasWholeVectors({ access, hasAlignedRows }: VectorShape, { inner }: Operand): boolean {
  return access === "tail" || (access === "scalar" && hasAlignedRows === true && inner === "unit");
}

/** Computes a value for each element of a vector, and passes its expression and the element's index to `body`. */
export function forEachElement(
  context: StageContext,
  value: Expression,
  vectors: ReadonlyMap<number, string>,
  computed: ComputedNodes,
  body: (value: string, index: string) => void,
): void {
  const { text, shape } = context;
  const index = shape.width === 1 ? "0" : "k";
  const print = (): void =>
    body(printExpression(text, value, leavesInVector(context, index, vectors), computed), index);
  if (shape.width === 1) print();
  else {
    text.unrolled("k", shape.width, () => {
      // Elements after the end of a row are zeros, and are not stored.
      if (shape.access === "scalar") text.block("if (k < remaining)", print);
      else print();
    });
  }
}

/** Stores a value for each element; returns the name of the stored vector. `match`: a position to test for once per vector. */
export function storeValues(
  context: StageContext,
  output: Operand,
  value: Expression,
  vectors: ReadonlyMap<number, string>,
  computed: ComputedNodes,
  match?: PositionMatch,
): string {
  const { text, shape } = context;
  const vec = text.freshName();
  // Elements after the end of a row are neither set nor stored; initialising them avoids a compiler warning.
  text.line(`${vectorType(context, output)} ${vec}${shape.access === "scalar" ? " = {}" : ""};`);
  const setElements = (expression: Expression): void =>
    forEachElement(context, expression, vectors, computed, (element, index) => {
      text.line(`${vec}.element[${index}] = ${narrowed(text, output.dtype, element)};`);
    });
  if (match) {
    const at = printExpression(text, match.at, leavesAtStart(context), computed);
    text.block(`if ((unsigned)${at} - position < ${shape.width}u)`, () => setElements(value));
    text.block("else", () => setElements(match.elsewhere));
  } else setElements(value);
  const address = addressOf(output);
  const storeVector = (): void => text.line(`${text.call("storeVec", address, vec)};`);
  const storeTail = (): void =>
    text.line(`${text.call("storeTail", address, output.stride, "remaining", vec)};`);
  const store = (): void => {
    if (isStrided(shape, output)) text.line(`${text.call("storeStrided", address, output.stride, vec)};`);
    else if (hasWholeVectors(shape, output)) {
      text.block("if (remaining < 4u)", storeTail);
      text.block("else", storeVector);
    } else if (shape.access === "vector") storeVector();
    else storeTail();
  };
  if (output.storedIf === undefined) store();
  else text.block(`if (${output.storedIf})`, store);
  return vec;
}

/** Prints loop-invariant subexpressions of all stages, outside of the loops: each is computed once. */
export type InvariantPrinter = (node: Expression) => string;

export function invariantPrinter(context: StageContext, stages: readonly Stage[]): InvariantPrinter {
  const values = stages.map(({ value }) => value);
  return expressionPrinter(context.text, values, leavesAtStart(context));
}

/** Computes the row-invariant subexpressions of a value once, before the row's elements. */
export function keepInvariants(
  { text, operands }: StageContext,
  value: Expression,
  print: InvariantPrinter,
): ComputedNodes {
  const nodes = new Map<Expression, string>();
  for (const node of invariantNodesOf(value, (input) => operands.inputs[input]?.inner === "none")) {
    const value = print(node);
    nodes.set(node, /^\w+$/.test(value) ? value : text.keep(computeTypes[node.type], value));
  }
  return nodes;
}

/** The leaves of a value for one element; `vectors` holds the loaded vectors, by input. */
function leavesInVector(context: StageContext, index: string, vectors: ReadonlyMap<number, string>): Leaves {
  const { text, operands, shape } = context;
  const position = shape.width === 1 ? "position" : `(position + ${index})`;
  return {
    ...leavesAtStart(context),
    load({ input }, at) {
      const operand = inputAt(operands, input);
      if (at !== undefined) return widened(text, operand.dtype, indexed(operand, position, at));
      const [invariant, vec = ""] = [operands.rowInvariant.get(input), vectors.get(input)];
      if (invariant !== undefined) return invariant;
      if (operand.dtype === "draw" && shape.width > 1) return text.call("drawnNumber", vec, index);
      return shape.width > 1
        ? widenedElement(text, operand.dtype, vec, index)
        : widened(text, operand.dtype, `${vec}.element[${index}]`);
    },
    position: () => `(int)${position}`,
  };
}

/** The leaves of a value per row: inputs are read at the row's start. */
export function leavesAtStart({ text, operands, reduced, row }: StageContext): Leaves {
  return {
    load({ input }, at) {
      const operand = inputAt(operands, input);
      if (at !== undefined) return elementAt(text, operand, at);
      return operands.rowInvariant.get(input) ?? elementAt(text, operand, "0");
    },
    scalar: (index) => `scalar${index}`,
    reduced: (stage) => reduced.get(stage) ?? "",
    position: () => "0",
    row: () => row,
  };
}

/** An input by its number; `checkRowKernel` has checked that it exists. */
function inputAt({ inputs }: RowOperands, input: number): Operand {
  const operand = inputs[input];
  if (operand) return operand;
  throw new HoldfastError("BAD_ARGUMENT", `A kernel reads input ${input}, which it does not have.`);
}

/** A pointer to the vector's first element. */
export function addressOf({ start, inner, stride }: Operand): string {
  return inner === "any" ? `${start} + (long long)(int)position * ${stride}` : `${start} + position`;
}

/** The element at an index relative to the current element. */
function indexed({ start, inner, stride }: Operand, position: string, at: string): string {
  if (inner === "none") return `${start}[${at}]`;
  const scale = inner === "any" ? ` * ${stride}` : "";
  return `${start}[(long long)(int)${position}${scale} + ${at}]`;
}
