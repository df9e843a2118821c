/**
 * An entry of the op table: one record with an op's shape and dtype rule, its gradient, the values that it saves, and its lowering.
 * Eager mode, autograd and traces read these records and nothing else.
 *
 * An operand is a value or a literal number. Rules are generic over the type of values `V`: the same gradient works on arrays in
 * memory and on the nodes of a traced program.
 */

import { HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import type {
  Backend,
  BackwardProblem,
  Capabilities,
  ChunkedReduceLaunch,
  ColumnLaunch,
  ConvolutionProblem,
  ForwardProblem,
  GemmInputDtype,
  GemmProblem,
  KernelCall,
  LoopOperand,
  RowLaunch,
  Scan,
  ScatterAdd,
} from "../kernels/index.js";
import type { LaunchCommand, Runtime, Settings, Storage } from "../runtime/index.js";
import type { DeviceArray, Layout, Strides } from "./device-array.js";
import type { Shape } from "./shape.js";

/** The type of a value, known before it has memory. */
export interface ValueType {
  readonly shape: Shape;
  readonly dtype: Dtype;
}

export type OperandType = ValueType | number;

export type Attributes = Readonly<Record<string, unknown>>;
export type NoAttributes = Readonly<Record<never, never>>;

/** Calls another op of the table and returns its first output. */
export type Apply<V> = <A extends Attributes>(
  op: Op<A>,
  operands: readonly (V | number)[],
  attributes?: A,
) => V;

/** Calls another op of the table and returns all of its outputs. */
export type ApplyAll<V> = <A extends Attributes>(
  op: Op<A>,
  operands: readonly (V | number)[],
  attributes?: A,
) => readonly V[];

/** The context of a gradient rule. */
export interface GradientRule<V, A> {
  readonly apply: Apply<V>;
  /** For ops that compute the gradients of several operands. */
  readonly applyAll: ApplyAll<V>;
  readonly attributes: A;
  /** The gradient of the first output. */
  readonly upstream: V;
  /**
   * True if the gradient will be differentiated again. Then `apply` records, so the rule must use entries with a gradient only, and a
   * saved output after the first is a constant: the rule must compute such a value again, unless no operand's gradient flows through it.
   */
  readonly isRecorded: boolean;
  /** An operand that the entry saves, or a literal one. Rejects operands that are not in `saves`. */
  operand(index: number): V | number;
  /** An output that the entry saves. If the gradient is recorded, floats after the first output are rejected: see `constantOutput`. */
  output(index: number): V;
  /** An output that the entry saves, as a constant: it does not depend on operands with a gradient, or the rule links it to them (`recalled`). */
  constantOutput(index: number): V;
  /** If the gradient is recorded: an operand without its elements, for ops that do not read them (`recalled`). It need not be saved. */
  link(index: number): V;
  /** The number of operands, literals included. */
  readonly operandCount: number;
  /** The type of any operand, saved or not. The type of a literal, or of an absent operand, has no axes. */
  typeOf(index: number): ValueType;
  readonly outputTypes: readonly ValueType[];
  /** True if the operand's gradient is needed; the rule may leave out the others. */
  needs(index: number): boolean;
  /** The type of a value that the rule computed. */
  valueType(value: V): ValueType;
}

/** The values that stay pinned until backward, by operand and output index. */
export interface SavedIndices {
  readonly operands?: readonly number[];
  readonly outputs?: readonly number[];
}

/** One gradient for each operand; undefined if it has none or needs none. */
export type Gradients<V> = readonly (V | undefined)[];

interface Entry<A extends Attributes> {
  readonly name: string;
  /** The shape and dtype rule: returns the outputs' types, or throws an error that names the expected types. */
  infer(operands: readonly OperandType[], attributes: A): readonly ValueType[];
  /** Why the entry has no gradient, if it has none. */
  readonly noGradient?: string;
  /** Rejects values that would make the op access wrong memory. Runs before the lowering. */
  check?(context: CheckContext, operands: readonly (DeviceArray | number)[], attributes: A): void;
}

interface Differentiable<A extends Attributes> {
  /** The values that the gradient reads. Default: none. */
  saves?(needs: readonly boolean[], attributes: A): SavedIndices;
  gradient?<V>(rule: GradientRule<V, A>): Gradients<V>;
}

/**
 * The context of a lowering. A lowering emits kernel calls, as a compiler's builder emits instructions, and allocates scratch memory
 * for them. Nothing runs meanwhile, so a lowering can't depend on values.
 */
export interface Lowering {
  /** The op's name, for labels. */
  readonly op: string;
  readonly backend: Backend;
  /** The precision to which GEMMs may round f32 operands. */
  readonly precision: Settings["precision"];
  /** Step memory that ends with the op. */
  scratch(bytes: number): Storage;
  scratchArray(shape: Shape, dtype: Dtype): DeviceArray;
  /** A view of a byte range of a storage, until the op ends. */
  view(storage: Storage, offset: number, size: number): Storage;
  /** Appends calls, which run in the order of emission. */
  emit(calls: readonly KernelCall[]): void;
  row(launch: RowLaunch): void;
  column(launch: ColumnLaunch): void;
  gemm(problem: GemmProblem<GemmInputDtype>): void;
  attention(problem: ForwardProblem): void;
  attentionBackward(problem: BackwardProblem): void;
  convolution(problem: ConvolutionProblem): void;
  scan(scan: Scan): void;
  scatterAdd(scatter: ScatterAdd): void;
  chunkedReduce(launch: Omit<ChunkedReduceLaunch, "view">): void;
  /** Calls that run several times, with views that move: a trace keeps them as one call. */
  loop(loop: Loop): void;
  /** An opaque kernel: only its parameters are known. */
  launch(command: Omit<LaunchCommand, "kind">): void;
  /** Sets every byte. */
  fill(target: Storage, byte: number): void;
  copy(target: Storage, source: Storage): void;
}

/** A loop of a lowering. */
export interface Loop {
  readonly count: number;
  /** By name. `stride`: by how many bytes the views of it move in each iteration. */
  readonly operands: Readonly<Record<string, LoopOperand>>;
  /**
   * Emits the calls of an iteration: row kernels, column kernels, GEMMs, fills and copies, on views of the operands and on scratch memory that
   * it requests. Every iteration has the same calls, and its scratch memory is the same.
   */
  body(view: ViewOfOperand): void;
}

/** A view of an operand's bytes. The offset is that of the first iteration. */
export type ViewOfOperand = (operand: string, offset: number, size: number) => Storage;

/** The context of a check. Unlike a lowering it may read values, and then waits for the device. */
export interface CheckContext extends Lowering {
  readonly runtime: Runtime;
  /** Submits the calls emitted so far. */
  submit(): void;
  /** Reads a storage's bytes after the calls emitted so far. */
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
  /** The strides of outputs that are dense and not row-major, by index. They follow from the layouts of the operands and the attributes. */
  outputStrides?(
    backend: Backend,
    operands: readonly (DeviceArray | number)[],
    types: readonly ValueType[],
    attributes: A,
  ): readonly (Strides | undefined)[];
  /**
   * The index of the operand whose memory the output may overwrite, or "none" if the op reads no such operand. Set if the op has an
   * in-place variant.
   */
  readonly inPlace?: number | "none";
  /** True if `lower` depends on the addresses of persistent operands, not only on each operand's layout. */
  readonly dependsOnAddresses?: boolean;
}

/**
 * An op that returns a view of its operand's memory. Its gradient rule is for views with every element of the operand, and for views
 * with elements more than once. Backward adds the gradients of other views to the same views of the operand's gradient.
 */
export interface ViewOp<A extends Attributes = Attributes> extends Entry<A>, Differentiable<A> {
  readonly kind: "view";
  /** The view's layout; undefined if only a contiguous copy of the operand has such a view. */
  view(layout: Layout, attributes: A): (Layout & { readonly offset?: number }) | undefined;
}

/** An op that is composed of other ops and has their gradients. */
export interface CompositeOp<A extends Attributes = Attributes> extends Entry<A> {
  readonly kind: "composite";
  compose<V>(build: Composition<V>, operands: readonly (V | number)[], attributes: A): readonly V[];
}

export interface Composition<V> {
  readonly apply: Apply<V>;
  /** What the device can do: an op may be composed in another way for it. */
  readonly capabilities: Capabilities;
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
    `${op} takes a tensor as operand ${index}, but got ${operand === undefined ? "none" : `the number ${operand}`}.`,
  );
}

/** The array of an operand that must be one. */
export function arrayAt(operands: readonly (DeviceArray | number)[], index: number): DeviceArray {
  const operand = operands[index];
  if (typeof operand === "object") return operand;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `Operand ${index} is ${operand}, but the op's rule promised an array.`,
  );
}
