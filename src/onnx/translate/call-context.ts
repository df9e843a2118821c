/** A call of an op as its translation sees it: operands as ONNX names, attributes with their kinds checked. */

import { HoldfastError } from "../../errors/index.js";
import { type Compute, type Dtype, dtypes } from "../../ir/index.js";
import { axesOf, axisOf } from "../../ops/index.js";
import type { Graph } from "../graph.js";
import type { Call, Value } from "../merge-traces.js";
import { elementTypeOf, type NodeAttributes } from "../model-proto.js";
import { type Size, SymbolicSize } from "../sizes.js";

/** Returns the outputs of the op that a forward pass reads. */
export type Translation = (at: CallContext) => string | readonly string[];

export class CallContext {
  readonly graph: Graph;
  readonly call: Call;
  readonly #nameOf: (value: Value) => string;
  readonly #read: ReadonlySet<number>;

  /** `read`: the ids of values that results depend on. */
  constructor(graph: Graph, call: Call, nameOf: (value: Value) => string, read: ReadonlySet<number>) {
    this.graph = graph;
    this.call = call;
    this.#nameOf = nameOf;
    this.#read = read;
  }

  /** True if results depend on an output. */
  isRead(output: number): boolean {
    const value = this.call.outputs[output];
    return value !== undefined && this.#read.has(value.id);
  }

  get operandCount(): number {
    return this.call.operands.length;
  }

  /** The type of the first output. */
  get output(): Value {
    return this.call.outputs[0] ?? this.reject("it has no output");
  }

  /** The type in which the op computes its result. */
  get compute(): Compute {
    return dtypes[this.output.dtype].compute;
  }

  hasOperand(index: number): boolean {
    return index < this.operandCount;
  }

  /** An operand that is a tensor. */
  value(index: number): Value {
    const operand = this.call.operands[index];
    if (typeof operand === "object" && !(operand instanceof SymbolicSize)) return operand;
    return this.reject(`operand ${index} is no tensor`);
  }

  /** An operand's name, converted to a dtype. Default: an operand's own dtype; literal numbers have the output's. */
  input(index: number, dtype?: Dtype): string {
    const operand = this.call.operands[index];
    if (typeof operand === "number") return this.graph.scalar(dtype ?? this.output.dtype, operand);
    if (operand instanceof SymbolicSize) {
      const scalar = this.node("Reshape", [this.graph.ints([operand]), this.graph.ints([])]);
      return this.cast(scalar, "i64", dtype ?? this.output.dtype);
    }
    const value = this.value(index);
    return this.cast(this.#nameOf(value), value.dtype, dtype ?? value.dtype);
  }

  /** An operand in the type in which the op computes. */
  operand(index: number): string {
    return this.input(index, this.compute);
  }

  /** A result of that type, in the output's dtype. */
  result(name: string): string {
    return this.cast(name, this.compute, this.output.dtype);
  }

  /** A number in the type in which the op computes. */
  scalar(value: number): string {
    return this.graph.scalar(this.compute, value);
  }

  /** The name of any value of the trace. */
  nameOf(value: Value): string {
    return this.#nameOf(value);
  }

  cast(name: string, from: Dtype, to: Dtype): string {
    return from === to ? name : this.node("Cast", [name], { to: { int: elementTypeOf(to) } });
  }

  node(type: string, inputs: readonly string[], attributes: NodeAttributes = {}): string {
    return this.graph.node(type, inputs, attributes);
  }

  /** A vector of i64. */
  ints(values: readonly Size[]): string {
    const open = values.find((value) => typeof value !== "number" && !value.terms);
    if (open !== undefined)
      this.reject("a size depends on dynamic axes, and not by sums and products of them");
    return this.graph.ints(values);
  }

  /** A vector of i64 for Reshape: one symbolic size is left open. */
  shapeToReshape(shape: readonly Size[]): string {
    const open = shape.filter((size) => typeof size !== "number").length;
    const isEmpty = shape.includes(0);
    if (open !== 1 || isEmpty) return this.ints(shape);
    return this.graph.ints(shape.map((size) => (typeof size === "number" ? size : -1)));
  }

  reshape(name: string, shape: readonly Size[]): string {
    return this.node("Reshape", [name, this.shapeToReshape(shape)]);
  }

  transpose(name: string, axes: readonly number[]): string {
    return this.node("Transpose", [name], { perm: { ints: axes } });
  }

  has(attribute: string): boolean {
    return this.call.attributes[attribute] !== undefined;
  }

  /** An attribute that is a number in all traces. */
  number(attribute: string, fallback?: number): number {
    const value = this.call.attributes[attribute] ?? fallback;
    return typeof value === "number" ? value : this.reject(`its ${attribute} depends on dynamic axes`);
  }

  flag(attribute: string): boolean {
    return this.call.attributes[attribute] === true;
  }

  text(attribute: string): string {
    return String(this.call.attributes[attribute] ?? "");
  }

  /** An attribute that is a list; one number is a list of one. */
  sizes(attribute: string): readonly Size[] {
    const value = this.call.attributes[attribute];
    return (Array.isArray(value) ? value : [value]) as readonly Size[];
  }

  numbers(attribute: string): readonly number[] {
    const values = this.sizes(attribute);
    if (values.every((value) => typeof value === "number")) return values;
    return this.reject(`its ${attribute} depends on dynamic axes`);
  }

  /** One number for each of so many axes. */
  perAxis(attribute: string, rank: number, fallback: number): readonly number[] {
    const values = this.has(attribute) ? this.numbers(attribute) : [fallback];
    return values.length === rank ? values : new Array<number>(rank).fill(values[0] ?? fallback);
  }

  axis(attribute = "axis", rank = this.value(0).shape.length): number {
    return axisOf(this.call.op, this.number(attribute), rank);
  }

  /** The axes of a reduction; default: all. */
  axes(attribute = "axes", rank = this.value(0).shape.length): readonly number[] {
    return axesOf(this.call.op, this.has(attribute) ? this.numbers(attribute) : undefined, rank);
  }

  /** Sizes that are the same in all traces. */
  fixed(shape: readonly Size[], what: string): readonly number[] {
    if (shape.every((size) => typeof size === "number")) return shape;
    return this.reject(`${what} depends on dynamic axes`);
  }

  reject(why: string): never {
    throw untranslatable(this.call, why);
  }
}

export function untranslatable({ op, layer }: Call, why: string): HoldfastError {
  return new HoldfastError(
    "UNSUPPORTED",
    `${op}${layer ? ` in ${layer}` : ""} can't be exported to ONNX: ${why}.`,
    { numbers: { op, ...(layer && { layer }) } },
  );
}
