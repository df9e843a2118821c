/**
 * What an entry of the op table is: one record that says an op's shape and dtype rule, its gradient, what it saves for
 * it, and how it is lowered. Everything that runs, differentiates or traces ops reads these records and nothing else.
 *
 * An operand is a value or a literal number. Rules are written over an unknown kind of value `V`, so that the same
 * gradient works on arrays in memory now and on the nodes of a traced program.
 */

import { HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import type {
  AttentionBackwardProblem,
  AttentionProblem,
  Backend,
  ChunkedReduceLaunch,
  ColumnLaunch,
  GemmInputDtype,
  GemmProblem,
  KernelCall,
  RowLaunch,
  Scan,
  ScatterAdd,
} from "../kernels/index.js";
import type { LaunchCommand, Runtime, Settings, Storage } from "../runtime/index.js";
import type { DeviceArray, Layout } from "./device-array.js";
import type { Shape } from "./shape.js";

/** What a rule knows of a value before there is any memory. */
export interface ValueType {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

export type OperandType = ValueType | number;

export type Attributes = Readonly<Record<string, unknown>>;
export type NoAttributes = Readonly<Record<never, never>>;

/** Calls another op of the table; its first output. */
export type Apply<V> = <A extends Attributes>(
  op: Op<A>,
  operands: readonly (V | number)[],
  attributes?: A,
) => V;

/** Calls another op of the table; all of its outputs. */
export type ApplyAll<V> = <A extends Attributes>(
  op: Op<A>,
  operands: readonly (V | number)[],
  attributes?: A,
) => readonly V[];

/** What a gradient rule has to work with. */
export interface GradientRule<V, A> {
  readonly apply: Apply<V>;
  /** For gradients of several operands that come of one op. */
  readonly applyAll: ApplyAll<V>;
  readonly attributes: A;
  /** The gradient of the first output. */
  readonly upstream: V;
  /** An operand that the entry saves, or a literal one. Rejects what was not declared. */
  operand(index: number): V | number;
  /** An output that the entry saves. */
  output(index: number): V;
  /** Known of every operand, saved or not. Of a literal it is a shape of no axes. */
  typeOf(index: number): ValueType;
  readonly outputTypes: readonly ValueType[];
  /** Whose gradient is wanted; the rule may leave the others out. */
  needs(index: number): boolean;
  /** The shape and dtype of a value that the rule made. */
  valueType(value: V): ValueType;
}

/** What stays pinned until backward: operands and outputs by their place. */
export interface SavedPlaces {
  readonly operands?: readonly number[];
  readonly outputs?: readonly number[];
}

/** One gradient for each operand; undefined where there is none or none is wanted. */
export type Gradients<V> = readonly (V | undefined)[];

interface Entry<A extends Attributes> {
  readonly name: string;
  /** The shape and dtype rule: the outputs' types, or a rejection that says what would fit. */
  infer(operands: readonly OperandType[], attributes: A): readonly ValueType[];
  /** Why there is no gradient, for entries that have none. */
  readonly noGradient?: string;
  /** Rejects values that would make the op read or write a wrong place; runs before the lowering. */
  check?(context: CheckContext, operands: readonly (DeviceArray | number)[], attributes: A): void;
}

interface Differentiable<A extends Attributes> {
  /** Declared here, so that neither user nor rule can forget it. Nothing unless given. */
  saves?(needs: readonly boolean[], attributes: A): SavedPlaces;
  gradient?<V>(rule: GradientRule<V, A>): Gradients<V>;
}

/**
 * What a lowering works with: it emits kernel calls, as a compiler's builder emits instructions, and takes scratch memory for
 * them. Nothing runs meanwhile, so a lowering can't decide by values.
 */
export interface Lowering {
  /** The op's name, for labels. */
  readonly op: string;
  readonly backend: Backend;
  /** To what GEMMs may round f32 operands. */
  readonly precision: Settings["precision"];
  /** Step memory that ends with the op. */
  scratch(bytes: number): Storage;
  scratchArray(shape: Shape, dtype: Dtype): DeviceArray;
  /** A part of a storage's bytes, seen until the op ends. */
  view(storage: Storage, offset: number, size: number): Storage;
  /** Appends calls, which run in the order in which they were emitted. */
  emit(calls: readonly KernelCall[]): void;
  row(launch: RowLaunch): void;
  column(launch: ColumnLaunch): void;
  gemm(problem: GemmProblem<GemmInputDtype>): void;
  attention(problem: AttentionProblem): void;
  attentionBackward(problem: AttentionBackwardProblem): void;
  scan(scan: Scan): void;
  scatterAdd(scatter: ScatterAdd): void;
  chunkedReduce(launch: Omit<ChunkedReduceLaunch, "view">): void;
  /** A kernel of which nothing is known but its parameters. */
  launch(command: Omit<LaunchCommand, "kind">): void;
  /** Sets every byte. */
  fill(target: Storage, byte: number): void;
  copy(target: Storage, source: Storage): void;
}

/** What a check works with: unlike a lowering it may look at values, and so waits for the device. */
export interface CheckContext extends Lowering {
  readonly runtime: Runtime;
  /** Runs what was emitted so far. */
  submit(): void;
  /** A storage's bytes, after what was emitted so far. */
  read(storage: Storage): Uint8Array<ArrayBuffer>;
}

/** An op that computes: `lower` emits the calls that fill its outputs. */
export interface KernelOp<A extends Attributes = Attributes> extends Entry<A>, Differentiable<A> {
  readonly kind: "kernel";
  lower(
    lowering: Lowering,
    operands: readonly (DeviceArray | number)[],
    outputs: readonly DeviceArray[],
    attributes: A,
  ): void;
  /** May the output lie where the operand of this place lies? Then there is an in-place form. */
  readonly inPlace?: number;
  /** Does `lower` decide by where persistent operands lie to each other, and not only by how each of them lies? */
  readonly looksAtAddresses?: boolean;
}

/** An op that only looks at its operand's memory in another way. */
export interface ViewOp<A extends Attributes = Attributes> extends Entry<A>, Differentiable<A> {
  readonly kind: "view";
  /** The operand's layout seen anew; undefined where only a contiguous copy can be seen so. */
  view(layout: Layout, attributes: A): (Layout & { readonly offset?: number }) | undefined;
}

/** An op that is made of others; its gradient is theirs. */
export interface CompositeOp<A extends Attributes = Attributes> extends Entry<A> {
  readonly kind: "composite";
  compose<V>(build: Composition<V>, operands: readonly (V | number)[], attributes: A): readonly V[];
}

export interface Composition<V> {
  readonly apply: Apply<V>;
  typeOf(value: V | number): ValueType;
}

export type Op<A extends Attributes = Attributes> = KernelOp<A> | ViewOp<A> | CompositeOp<A>;

export function isType(operand: OperandType | undefined): operand is ValueType {
  return typeof operand === "object";
}

/** The type of an operand that must be a value. */
export function typeAt(op: string, operands: readonly OperandType[], index: number): ValueType {
  const operand = operands[index];
  if (isType(operand)) return operand;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${op} takes a tensor as operand ${index}, and was given ${operand === undefined ? "none" : `the number ${operand}`}.`,
  );
}

/** The array of an operand that must be one. */
export function arrayAt(operands: readonly (DeviceArray | number)[], index: number): DeviceArray {
  const operand = operands[index];
  if (typeof operand === "object") return operand;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Operand ${index} is ${operand} where a rule has promised an array.`,
  );
}
