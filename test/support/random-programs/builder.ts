/**
 * Builds a program by adding instructions that are valid at their position: it knows every value's shape and
 * dtype.
 */

import type { Dtype } from "../../../src/ir/index.js";
import {
  type Attributes,
  type Op,
  type OperandType,
  opTable,
  type Shape,
  sizeOf,
} from "../../../src/ops/index.js";
import type { FloatDtype } from "../../tolerances.js";
import type { Choices } from "./choices.js";
import {
  type Input,
  type Instruction,
  type Operand,
  randomState,
  resolveAttributes,
  type ValueDtype,
} from "./program.js";

/** No value has more elements. */
export const maxElements = 640;
/** The size of any axis, and of one axis of a shape that others are made for. */
const longestAxis = 300;
/** Larger values are scaled down, so that nothing overflows and rounding errors stay small. */
const largestSize = 4;

export interface KnownValue {
  readonly name: string;
  readonly shape: Shape;
  readonly dtype: ValueDtype;
  readonly takesGradient: boolean;
  /** The approximate magnitude of its elements. */
  readonly size: number;
  /** The owner of its memory: itself, or the source of a view. */
  readonly home: string;
  readonly isLeaf: boolean;
}

export interface OpOptions {
  /** The approximate magnitude of the result's elements; default: the largest operand's. */
  readonly size?: number;
  readonly isRecorded?: boolean;
}

export class Builder {
  readonly inputs: Input[] = [];
  readonly instructions: Instruction[] = [];
  readonly values: KnownValue[] = [];
  readonly #dtype: FloatDtype;
  /** Owners whose elements a recorded op has read: backward may need them unchanged. */
  readonly read = new Set<string>();
  #names = 0;

  constructor(dtype: FloatDtype) {
    this.#dtype = dtype;
  }

  find(name: string): KnownValue {
    return this.values.find((value) => value.name === name)!;
  }

  shapeOf(name: string): Shape {
    return this.find(name).shape;
  }

  /** An earlier value that fits, the newest first; a new input if there is none, and sometimes anyway. */
  float(choices: Choices, fits: (shape: Shape) => boolean, otherwise: Shape): string {
    const candidates = this.values.filter(
      ({ dtype, shape }) => dtype === "float" && sizeOf(shape) <= maxElements && fits(shape),
    );
    if (candidates.length === 0 || choices.isOneIn(8)) return this.floatInput(choices, otherwise);
    return candidates[candidates.length - 1 - choices.below(candidates.length)]!.name;
  }

  /** Any float value. */
  anyFloat(choices: Choices): string {
    return this.float(choices, () => true, this.randomShape(choices));
  }

  /** A float value with axes and elements, for ops that need some. */
  filled(choices: Choices, minAxes = 1): string {
    const sizes = this.randomShape(choices).filter((size) => size > 0);
    const wished = [...sizes, 3, 2].slice(0, Math.max(minAxes, sizes.length));
    const shape = sizeOf(wished) <= maxElements ? wished : [3, 2];
    return this.float(choices, (candidate) => candidate.length >= minAxes && sizeOf(candidate) > 0, shape);
  }

  /** A float value that broadcasts with a shape, to no more than it. */
  broadcastable(choices: Choices, shape: Shape): string {
    const narrow = shape.map((size) => (choices.isOneIn(3) ? 1 : size)).slice(choices.below(2));
    return this.float(choices, (candidate) => fitsInto(candidate, shape), narrow);
  }

  same(choices: Choices, shape: Shape): string {
    return this.float(choices, (candidate) => isSame(candidate, shape), shape);
  }

  randomShape(choices: Choices): Shape {
    const sizes = [2, 3, 4, 1, 5, 7, 2, 3, 6, 2, 3, 0];
    const shape = Array.from({ length: choices.of([1, 2, 2, 3, 3, 0, 4]) }, () => choices.of(sizes));
    const fitting = sizeOf(shape) <= 30 ? shape : shape.slice(0, 2);
    if (fitting.length === 0 || !choices.isOneIn(4)) return fitting;
    const long = fitting.with(choices.below(fitting.length), 1 + choices.below(longestAxis));
    return sizeOf(long) <= maxElements ? long : [long.find((size) => size > 7) ?? 1];
  }

  floatInput(choices: Choices, shape: Shape): string {
    const candidateRole = choices.of(["argument", "parameter", "parameter", "constant"] as const);
    // Without elements there is nothing to learn.
    const role = candidateRole === "parameter" && sizeOf(shape) === 0 ? "argument" : candidateRole;
    return this.input(role, shape, "float", -1.5, 1.5);
  }

  input(role: Input["role"], shape: Shape, dtype: ValueDtype, from: number, to: number): string {
    const name = `${{ argument: "x", parameter: "p", constant: "c" }[role]}${this.#names++}`;
    this.inputs.push({ name, role, shape, dtype, from, to });
    const size = Math.max(Math.abs(from), Math.abs(to)) / 1.5;
    const takesGradient = role === "parameter";
    this.values.push({ name, shape, dtype, takesGradient, size, home: name, isLeaf: takesGradient });
    return name;
  }

  /** Integers, as an argument or a constant. */
  wholes(choices: Choices, shape: Shape, dtype: Dtype, from: number, to: number): string {
    return this.input(choices.of(["argument", "constant"] as const), shape, dtype, from, to);
  }

  /** An op's results; none if they would be too large. A result of too large magnitude is scaled down. */
  all(op: string, operands: readonly Operand[], attributes: Attributes, options: OpOptions = {}): string[] {
    const entry = requireOp(op);
    const isRecorded = options.isRecorded ?? true;
    const inferred = entry.infer(
      operands.map((operand) => this.#typeOf(operand)),
      resolveAttributes(attributes, this.#dtype),
    );
    const outputs = entry.kind === "composite" ? inferred : inferred.slice(0, 1);
    if (outputs.some(({ shape }) => sizeOf(shape) > 2 * maxElements)) return [];
    const sources = operands.flatMap((operand) =>
      typeof operand === "string" && operand !== randomState ? [this.find(operand)] : [],
    );
    const gives = outputs.map(() => `v${this.#names++}`);
    this.instructions.push({ kind: "op", op, operands, attributes, isRecorded, gives });
    if (isRecorded) for (const { home } of sources) this.read.add(home);
    const size = options.size ?? Math.max(0.1, ...sources.map((value) => value.size));
    for (const [index, { shape, dtype }] of outputs.entries()) {
      const name = gives[index]!;
      const isFloat = dtype === this.#dtype || dtype === "f64";
      this.values.push({
        name,
        shape,
        dtype: dtype === this.#dtype ? "float" : dtype,
        takesGradient: isRecorded && isFloat && sources.some((value) => value.takesGradient),
        size,
        home: entry.kind === "view" ? sources[0]!.home : name,
        isLeaf: false,
      });
    }
    return gives.map((name) => this.#tame(name));
  }

  /** An op's first result; its first operand if it would be too large. */
  op(op: string, operands: readonly Operand[], attributes: Attributes = {}, options: OpOptions = {}): string {
    const [first] = this.all(op, operands, attributes, options);
    return first ?? (operands.find((operand) => typeof operand === "string") as string);
  }

  add(instruction: Instruction): void {
    this.instructions.push(instruction);
  }

  /** The target is the result from here on. */
  inPlace(
    op: string,
    operands: readonly [string, ...Operand[]],
    attributes: Attributes,
    isRecorded: boolean,
  ): void {
    const sources = operands.flatMap((operand) => (typeof operand === "string" ? [this.find(operand)] : []));
    this.instructions.push({ kind: "in place", op, operands, attributes, isRecorded, gives: [] });
    if (isRecorded) for (const { home } of sources) this.read.add(home);
    const target = sources[0]!;
    const takesGradient =
      target.takesGradient || (isRecorded && sources.some((value) => value.takesGradient));
    this.values[this.values.indexOf(target)] = { ...target, takesGradient };
  }

  /** The same elements, detached from the graph. */
  detach(of: string): string {
    const gives = `v${this.#names++}`;
    this.instructions.push({ kind: "detach", of, gives: [gives] });
    this.values.push({ ...this.find(of), name: gives, takesGradient: false, isLeaf: false });
    return gives;
  }

  /** A parameter's gradient as a value. */
  gradient(of: string): string {
    const gives = `v${this.#names++}`;
    this.instructions.push({ kind: "gradient", of, gives: [gives] });
    this.values.push({ ...this.find(of), name: gives, takesGradient: false, isLeaf: false, home: gives });
    return gives;
  }

  #tame(name: string): string {
    const { size, dtype } = this.find(name);
    if (dtype !== "float" || size <= largestSize) return name;
    const factor = Number((1 / size).toPrecision(2));
    return this.op("mul", [name, factor], {}, { size: 1, isRecorded: true });
  }

  #typeOf(operand: Operand): OperandType {
    if (typeof operand === "number") return operand;
    if (operand === randomState) return { shape: [4], dtype: "i32" };
    const { shape, dtype } = this.find(operand);
    return { shape, dtype: dtype === "float" ? this.#dtype : dtype };
  }
}

function requireOp(name: string): Op {
  const op = opTable[name];
  if (!op) throw new Error(`The op table has no ${name}.`);
  return op;
}

/** True if one shape broadcasts to another, without making it larger. */
export function fitsInto(inner: Shape, shape: Shape): boolean {
  const leading = shape.length - inner.length;
  return leading >= 0 && inner.every((size, axis) => size === 1 || size === shape[leading + axis]);
}

export function isSame(a: Shape, b: Shape): boolean {
  return a.length === b.length && a.every((size, axis) => size === b[axis]);
}
