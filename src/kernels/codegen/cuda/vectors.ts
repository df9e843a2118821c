/**
 * Packs: the neighbouring elements that one thread takes at a time. A pack is moved as a whole where memory is aligned
 * for it, else element by element, as far as the row goes. Values are the same either way, and so is their order. In a
 * kernel of whole packs an operand that takes steps along the row is moved element by element, and the others are not.
 *
 * In the printed code a pack's place in its row is the local `position`; where packs are not whole, `left` tells how many
 * elements the row has from there on.
 */

import { HoldfastError } from "../../../errors/index.js";
import type { Expression, Stage } from "../../../ir/index.js";
import { invariantNodesOf, loadsOf } from "../../../ir/index.js";
import { computeTypes, elementTypes } from "./element-types.js";
import { expressionPrinter, type Leaves, printExpression } from "./expressions.js";
import type { KernelText } from "./kernel-text.js";
import { narrowed, type Operand, type RowOperands, widened } from "./row-operands.js";

/**
 * How packs are moved: as a whole; as a whole but for the last one, behind whose end there is nothing; or element by
 * element.
 */
export type VectorMoves = "whole" | "tailed" | "single";

/** A pack of one element is always whole. */
export interface VectorShape {
  readonly width: 1 | 4;
  readonly moves: VectorMoves;
}

/** What stands around the stages of a kernel. */
export interface Surroundings {
  readonly text: KernelText;
  readonly operands: RowOperands;
  readonly shape: VectorShape;
  /** The row's number. */
  readonly row: string;
  /** What earlier stages have reduced the row to. */
  readonly reduced: ReadonlyMap<number, string>;
}

/** Values that are computed already. */
export type Known = ReadonlyMap<Expression, string>;

export function vectorType({ shape }: Surroundings, { dtype }: Operand): string {
  return `Vec<${elementTypes[dtype].type}, ${shape.width}>`;
}

/** The moving inputs whose element at the present place a value reads. */
export function vectorsReadBy({ operands }: Surroundings, value: Expression): [input: number, Operand][] {
  const inputs = new Set(loadsOf(value).flatMap(({ input, at }) => (at ? [] : [input])));
  return [...inputs]
    .map((input): [number, Operand] => [input, inputAt(operands, input)])
    .filter(([, { inner }]) => inner !== "none");
}

export function loadedVector({ text, shape }: Surroundings, operand: Operand): string {
  const place = placeOf(operand);
  const whole = (): string => `${text.use("load")}<${shape.width}>(${place})`;
  const single = (): string => text.call("loadSome", place, operand.step, "left");
  if (isStepping(shape, operand)) return text.call("loadEach", place, operand.step);
  if (shape.moves === "tailed") return `left < 4u ? ${single()} : ${whole()}`;
  return shape.moves === "whole" ? whole() : single();
}

/** Does an operand have packs of which each element has to be moved for itself, though the row has no tail? */
function isStepping({ width, moves }: VectorShape, { inner }: Operand): boolean {
  return width > 1 && moves === "whole" && inner === "any";
}

/** Computes a value for each element of a pack, and does something with its text. */
export function forEachLane(
  around: Surroundings,
  value: Expression,
  packs: ReadonlyMap<number, string>,
  known: Known,
  body: (value: string, lane: string) => void,
): void {
  const { text, shape } = around;
  const lane = shape.width === 1 ? "0" : "k";
  const print = (): void =>
    body(printExpression(text, value, leavesInVector(around, lane, packs), known), lane);
  if (shape.width === 1) print();
  else {
    text.unrolled("k", shape.width, () => {
      // Behind a tail there are zeros to compute with, and nothing is stored of it.
      if (shape.moves === "single") text.block("if (k < left)", print);
      else print();
    });
  }
}

/** Stores a value for each element of a pack; what it returns is the pack's name. */
export function storeValues(
  around: Surroundings,
  output: Operand,
  value: Expression,
  packs: ReadonlyMap<number, string>,
  known: Known,
): string {
  const { text, shape } = around;
  const pack = text.freshName();
  // Behind the row's end nothing is set, and nothing stored; a compiler does not see that.
  text.line(`${vectorType(around, output)} ${pack}${shape.moves === "single" ? " = {}" : ""};`);
  forEachLane(around, value, packs, known, (computed, lane) => {
    text.line(`${pack}.lane[${lane}] = ${narrowed(text, output.dtype, computed)};`);
  });
  const place = placeOf(output);
  const whole = (): void => text.line(`${text.call("store", place, pack)};`);
  const single = (): void => text.line(`${text.call("storeSome", place, output.step, "left", pack)};`);
  if (isStepping(shape, output)) text.line(`${text.call("storeEach", place, output.step, pack)};`);
  else if (shape.moves === "whole") whole();
  else if (shape.moves === "single") single();
  else {
    text.block("if (left < 4u)", single);
    text.block("else", whole);
  }
  return pack;
}

/** Prints parts of a kernel's stages, outside of all braces: what several of them have in common is there from the first one on. */
export type InvariantPrinter = (part: Expression) => string;

export function invariantPrinter(around: Surroundings, stages: readonly Stage[]): InvariantPrinter {
  const values = stages.map(({ value }) => value);
  return expressionPrinter(around.text, values, leavesAtStart(around));
}

/** Computes the parts of a value that don't change along the row, once. */
export function keepInvariants(
  { text, operands }: Surroundings,
  value: Expression,
  print: InvariantPrinter,
): Known {
  const known = new Map<Expression, string>();
  for (const part of invariantNodesOf(value, (input) => operands.inputs[input]?.inner === "none")) {
    const computed = print(part);
    known.set(part, /^\w+$/.test(computed) ? computed : text.keep(computeTypes[part.type], computed));
  }
  return known;
}

/** The leaves of a value for one element of a pack; `packs` has the packs of the inputs that move. */
function leavesInVector(around: Surroundings, lane: string, packs: ReadonlyMap<number, string>): Leaves {
  const { text, operands, shape } = around;
  const position = shape.width === 1 ? "position" : `(position + ${lane})`;
  return {
    ...leavesAtStart(around),
    load({ input }, at) {
      const operand = inputAt(operands, input);
      if (at !== undefined) return widened(text, operand.dtype, indexed(operand, position, at));
      return operands.fixed.get(input) ?? widened(text, operand.dtype, `${packs.get(input)}.lane[${lane}]`);
    },
    position: () => `(int)${position}`,
  };
}

/** The leaves of a value that stands for the whole row: inputs are read at its start. */
export function leavesAtStart({ text, operands, reduced, row }: Surroundings): Leaves {
  return {
    load({ input }, at) {
      const { dtype, start } = inputAt(operands, input);
      if (at !== undefined) return widened(text, dtype, `${start}[${at}]`);
      return operands.fixed.get(input) ?? widened(text, dtype, `${start}[0]`);
    },
    scalar: (index) => `scalar${index}`,
    reduced: (stage) => reduced.get(stage) ?? "",
    position: () => "0",
    row: () => row,
  };
}

/** An operand by its number; a checked kernel names none that there isn't. */
function inputAt({ inputs }: RowOperands, input: number): Operand {
  const operand = inputs[input];
  if (operand) return operand;
  throw new HoldfastError("BAD_ARGUMENT", `A kernel reads input ${input}, which it does not have.`);
}

/** A pointer to the pack's first element. */
export function placeOf({ start, inner, step }: Operand): string {
  return inner === "any" ? `${start} + (long long)(int)position * ${step}` : `${start} + position`;
}

/** The element that lies as far from the operand's place as the index says. */
function indexed({ start, inner, step }: Operand, position: string, at: string): string {
  if (inner === "none") return `${start}[${at}]`;
  const along = inner === "any" ? ` * ${step}` : "";
  return `${start}[(long long)(int)${position}${along} + ${at}]`;
}
