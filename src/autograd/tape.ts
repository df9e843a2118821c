/**
 * The tape: runs ops of the table on values and records everything that backward needs. One per device. A step's
 * recordings end with the step, whether backward ran or not.
 */

import { HoldfastError } from "../errors/index.js";
import { capabilitiesOf } from "../kernels/index.js";
import {
  type Attributes,
  add as addOp,
  copyInto,
  type DeviceArray,
  firstOf,
  formatShape,
  inComposite,
  inStepPhase,
  isFloat,
  type KernelOp,
  type Op,
  requireFits,
  runInto,
  runOp,
  typeOfOperand,
} from "../ops/index.js";
import { ownerOf, type Runtime, type Storage } from "../runtime/index.js";
import { type Root, runBackward } from "./backward.js";
import { isRecording, recording } from "./grad-mode.js";
import { LeafUses } from "./leaf-uses.js";
import {
  type DifferentiableOp,
  type FunctionGradient,
  type Leaf,
  lastNodeId,
  Node,
  type RecordedFunction,
  type RecordedOperand,
} from "./node.js";
import { findPaths, type Key, keyOf } from "./paths.js";
import { currentRecomputation } from "./recomputation.js";
import { asValue, type Recorder, runRecordedBackward } from "./recorded-backward.js";
import { Value } from "./value.js";
import { noteRecordedWrite, noteWrite } from "./versions.js";

export interface TapeOptions {
  readonly runtime: Runtime;
  /** Called for every array that an op creates, forward and backward. */
  readonly onResult?: (op: string, array: DeviceArray) => void;
  /** True for the memory of the device's random state. */
  readonly isRandomState?: (storage: Storage) => boolean;
}

/** A value, and what accumulates its gradient. */
export interface Accumulator {
  readonly value: Value;
  readonly into: Leaf;
}

export interface BackwardPassOptions {
  /** Keep the saved tensors, for another pass through the same graph. Default: the value of `createGraph`. */
  readonly retainGraph?: boolean;
  /** Record the pass, so that its gradients can be differentiated. */
  readonly createGraph?: boolean;
  /** The only values that get a gradient. Default: all leaves. */
  readonly inputs?: readonly Accumulator[];
}

/** A call of a function of the user. */
export interface FunctionCall {
  readonly outputs: readonly DeviceArray[];
  readonly saved: readonly DeviceArray[];
  readonly gradient: FunctionGradient;
}

type Receivers<G> = ReadonlyMap<Key, (gradient: G) => void>;

function receiversOf<G>(
  entries: readonly (readonly [Key | undefined, (gradient: G) => void])[],
): Receivers<G> {
  return new Map(entries.flatMap(([key, receive]) => (key ? [[key, receive] as const] : [])));
}

export class Tape {
  readonly #options: TapeOptions;
  readonly #onResult: (op: string, array: DeviceArray) => void;
  /** Recorded and not yet released. */
  readonly #open = new Set<Node>();

  constructor(options: TapeOptions) {
    this.#options = options;
    this.#onResult = options.onResult ?? (() => undefined);
  }

  /** The number of recorded ops that still hold saved tensors. */
  get openNodes(): number {
    return this.#open.size;
  }

  /** Runs an op and returns all outputs. */
  run<A extends Attributes>(
    op: Op<A>,
    operands: readonly (Value | number)[],
    attributes: A,
  ): readonly Value[] {
    const { runtime } = this.#options;
    requireCurrent(op.name, operands);
    if (op.kind === "composite") {
      op.infer(operands.map(toArray), attributes);
      const apply = <B extends Attributes>(
        innerOp: Op<B>,
        innerOperands: readonly (Value | number)[],
        innerAttributes = {} as B,
      ): Value => this.apply(innerOp, innerOperands, innerAttributes);
      return inComposite(
        runtime,
        () => ({ name: op.name, operands: operands.map(toArray), attributes }),
        () =>
          op.compose<Value>(
            { apply, capabilities: capabilitiesOf(runtime), typeOf: toType },
            operands,
            attributes,
          ),
        ({ array }) => array,
      );
    }
    const arrays = operands.map(toArray);
    this.#noteDraw(arrays);
    const outputs = runOp(runtime, op, arrays, attributes);
    for (const output of outputs) {
      if (output.storage) currentRecomputation()?.noteOutput(output.storage, arrays);
      this.#onResult(op.name, output);
    }
    const node = this.#record(op as DifferentiableOp, operands, outputs, attributes);
    if (op.kind === "view") return outputs.map((array) => makeView(operands, array, node));
    return outputs.map((array, output) => new Value(array, node && { source: { node, output } }));
  }

  /** Runs an op and returns its first output. Other outputs that were not saved for backward are freed. */
  apply<A extends Attributes>(op: Op<A>, operands: readonly (Value | number)[], attributes: A): Value {
    const outputs = this.run(op, operands, attributes);
    if (op.kind === "kernel") {
      const { arena } = this.#options.runtime;
      for (const { array } of outputs.slice(1)) {
        if (array.storage && !arena.isPinned(array.storage)) arena.free(array.storage);
      }
    }
    return firstOf(op.name, outputs);
  }

  /**
   * Runs an op whose result replaces the first operand's elements, at the same address. The value then represents the
   * result, also for backward.
   */
  applyInPlace<A extends Attributes>(
    op: Op<A>,
    target: Value,
    operands: readonly (Value | number)[],
    attributes: A,
  ): void {
    const { runtime } = this.#options;
    const isRecorded =
      isRecording() &&
      [target, ...operands].some((operand) => typeof operand === "object" && operand.requiresGrad);
    if (isRecorded && (target.leaf || target.base?.leaf)) throw leafWritten(op.name);
    if (isRecorded && target.array.storage?.owner) throw viewWritten(op.name);
    requireCurrent(op.name, [target, ...operands]);
    this.#noteDraw(operands.map(toArray));
    const { array } = target;
    if (op.kind === "composite") {
      const [type] = op.infer(operands.map(toArray), attributes);
      requireFits(op.name, type, array);
      const result = this.apply(op, operands, attributes);
      copyInto(runtime, result.array, array);
      noteWrite(array.storage);
      if (isRecorded) replaceValue(target, result.source);
      return;
    }
    // Recorded before the write: if the op saves an operand that it overwrites, backward detects it.
    const node = isRecorded ? this.#record(op as DifferentiableOp, operands, [array], attributes) : undefined;
    try {
      runInto(runtime, op, array, operands.map(toArray), attributes);
    } catch (failure) {
      if (node) this.#forget(node);
      throw failure;
    }
    noteWrite(array.storage);
    node?.renewOutputs();
    this.#onResult(op.name, array);
    // Without a node, no input has a gradient: the old source is dropped.
    if (isRecorded) replaceValue(target, node && { node, output: 0 });
  }

  /** Adds gradients to the leaves, or only to `inputs`. */
  backward(
    roots: readonly Root<Value>[],
    { inputs, createGraph = false, ...options }: BackwardPassOptions = {},
  ): void {
    const add = (a: RecordedOperand, b: RecordedOperand): Value =>
      this.apply(addOp, [asValue(a), asValue(b)], {});
    if (createGraph) {
      const accumulate = ({ value, into }: Accumulator) =>
        [keyOf(value), (gradient: Value): void => into.accumulateRecorded(gradient, add)] as const;
      this.#runRecorded(roots, options, inputs && receiversOf(inputs.map(accumulate)));
      return;
    }
    const accumulate = ({ value, into }: Accumulator) =>
      [keyOf(value), (gradient: DeviceArray): void => into.accumulate(gradient)] as const;
    this.#run(roots, options, inputs && receiversOf(inputs.map(accumulate)));
  }

  /** The leaves that a backward pass would reach. */
  leavesOf(roots: readonly Root<Value>[]): readonly Leaf[] {
    const values = roots.map(({ value }) => value);
    const { leaves } = new LeafUses(findPaths(values, undefined).nodes);
    return [...new Set([...values.flatMap(({ source, leaf }) => (!source && leaf) || []), ...leaves])];
  }

  /** Hands the gradients of leaves to their receivers, each as soon as it is complete. The leaves accumulate none. */
  deliver(
    roots: readonly Root<Value>[],
    receivers: ReadonlyMap<Leaf, (gradient: Value) => void>,
    options: Pick<BackwardPassOptions, "retainGraph"> = {},
  ): void {
    const entries = Array.from(
      receivers,
      ([leaf, receive]) => [leaf, (gradient: DeviceArray) => receive(new Value(gradient))] as const,
    );
    this.#run(roots, options, receiversOf(entries));
  }

  /** The gradients of values; undefined if the roots do not depend on a value. Leaves accumulate none. */
  grad(
    roots: readonly Root<Value>[],
    inputs: readonly Value[],
    { createGraph = false, ...options }: Omit<BackwardPassOptions, "inputs"> = {},
  ): readonly (Value | undefined)[] {
    const gradients = new Map<Key, Value>();
    const keys = inputs.map(keyOf);
    const keep = (key: Key | undefined, gradient: Value): void => {
      if (key) gradients.set(key, gradient);
    };
    if (createGraph) {
      const receivers = receiversOf(keys.map((key) => [key, (gradient: Value) => keep(key, gradient)]));
      this.#runRecorded(roots, options, receivers);
    } else {
      const receivers = receiversOf(
        keys.map((key) => [key, (gradient: DeviceArray) => keep(key, new Value(gradient))]),
      );
      this.#run(roots, options, receivers);
    }
    return keys.map((key) => key && gradients.get(key));
  }

  #run(
    roots: readonly Root<Value>[],
    { retainGraph = false }: BackwardPassOptions,
    receivers: Receivers<DeviceArray> | undefined,
  ): void {
    requireCurrent(
      "backward",
      roots.map(({ value }) => value),
    );
    const { runtime } = this.#options;
    const arrays = roots.map(({ value, seed }) => ({ value, seed: seed.array }));
    const onResult = this.#onBackwardResult;
    inStepPhase(runtime, "backward", () =>
      runBackward(runtime, arrays, { retainGraph, onResult, ...(receivers && { receivers }) }),
    );
    if (!retainGraph) this.#forgetReleased();
  }

  #runRecorded(
    roots: readonly Root<Value>[],
    { retainGraph = true }: BackwardPassOptions,
    receivers: Receivers<Value> | undefined,
  ): void {
    requireCurrent(
      "backward",
      roots.map(({ value }) => value),
    );
    const recorder: Recorder = {
      apply: (op, operands, attributes = {} as never) => this.apply(op, operands, attributes),
      applyAll: (op, operands, attributes = {} as never) => this.run(op, operands, attributes),
    };
    inStepPhase(this.#options.runtime, "backward", () =>
      recording(() => runRecordedBackward(recorder, roots, { retainGraph, receivers })),
    );
    if (!retainGraph) this.#forgetReleased();
  }

  /**
   * Records a function of the user that ran without recording, and returns its outputs as values of the graph. `saved`: what its gradient
   * reads; it is protected as the saved values of ops are.
   */
  recordFunction(
    op: KernelOp,
    operands: readonly Value[],
    { outputs, saved, gradient }: FunctionCall,
  ): readonly Value[] {
    requireCurrent(op.name, operands);
    if (!isRecording() || !operands.some(({ requiresGrad }) => requiresGrad)) {
      return outputs.map((array) => new Value(array));
    }
    const arrays = [...outputs, ...saved];
    const attributes = { outputs: outputs.length, saved: saved.length };
    const node = this.#recordNode(op, operands, arrays, attributes, { outputs: outputs.length, gradient });
    return outputs.map((array, output) =>
      isFloat(array.dtype) ? new Value(array, { source: { node, output } }) : new Value(array),
    );
  }

  /** A position in the recording, for `release`. */
  position(): number {
    return lastNodeId();
  }

  /** Releases everything recorded since a position, at the end of a step. Default: everything. */
  release(since = 0): void {
    for (const node of [...this.#open]) if (node.id > since) this.#forget(node, "step");
  }

  readonly #onBackwardResult = (op: string, array: DeviceArray): void =>
    this.#onResult(`backward, in ${op}`, array);

  #record(
    op: DifferentiableOp,
    operands: readonly (Value | number)[],
    outputs: readonly DeviceArray[],
    attributes: Attributes,
  ): Node | undefined {
    const isWanted =
      isRecording() && operands.some((operand) => typeof operand === "object" && operand.requiresGrad);
    const [first] = outputs;
    if (!isWanted || !first || !isFloat(first.dtype)) return undefined;
    if (!op.gradient) {
      const why = op.noGradient ? `: ${op.noGradient}` : "";
      throw new HoldfastError(
        "NO_GRADIENT",
        `${op.name} has no gradient${why}. Call it inside noGrad(), or on detached tensors.`,
        { numbers: { op: op.name } },
      );
    }
    return this.#recordNode(op, operands, outputs, attributes);
  }

  #recordNode(
    op: DifferentiableOp,
    operands: readonly (Value | number)[],
    outputs: readonly DeviceArray[],
    attributes: Attributes,
    userFunction?: RecordedFunction,
  ): Node {
    const { runtime } = this.#options;
    const recomputation = currentRecomputation();
    if (recomputation?.isRunningAgain) {
      const node = recomputation.repeated(op, operands, attributes);
      node.saveAgain(operands, outputs);
      return node;
    }
    const node = new Node(runtime, op, operands, outputs, attributes, recomputation, userFunction);
    recomputation?.add(runtime, node);
    this.#open.add(node);
    return node;
  }

  #noteDraw(operands: readonly (DeviceArray | number)[]): void {
    const recomputation = currentRecomputation();
    const { runtime, isRandomState } = this.#options;
    if (!recomputation || !isRandomState) return;
    for (const operand of operands)
      if (typeof operand === "object" && operand.storage && isRandomState(operand.storage))
        recomputation.noteDraw(runtime, operand);
  }

  #forget(node: Node, endedBy?: "step"): void {
    this.#open.delete(node);
    node.release(endedBy);
  }

  #forgetReleased(): void {
    for (const node of this.#open) if (node.isReleased) this.#open.delete(node);
  }
}

function toArray(operand: Value | number): DeviceArray | number {
  return typeof operand === "number" ? operand : operand.array;
}

function toType(operand: Value | number) {
  return typeOfOperand(toArray(operand));
}

/** The result of a view op: a value with its own memory, or a view of its operand's. */
function makeView(operands: readonly (Value | number)[], array: DeviceArray, node: Node | undefined): Value {
  const [operand] = operands;
  const origin = node && { source: { node, output: 0 } };
  const { storage } = array;
  const from = typeof operand === "object" ? operand.array.storage : undefined;
  if (typeof operand !== "object" || !storage || !from || ownerOf(storage) !== ownerOf(from)) {
    return new Value(array, origin);
  }
  return new Value(array, { ...origin, base: operand.base ?? operand, cutBy: operand.cutBy });
}

/** The value now represents the written elements; other values over the same memory are invalid. */
function replaceValue(target: Value, source: Value["source"]): void {
  noteRecordedWrite(target.array.storage);
  target.replaceSource(source);
}

/** Rejects values whose memory was overwritten by an op recorded through another value: their source would be wrong. */
function requireCurrent(op: string, operands: readonly (Value | number)[]): void {
  if (!isRecording()) return;
  const index = operands.findIndex((operand) => typeof operand === "object" && operand.isOverwritten);
  const operand = operands[index];
  if (typeof operand !== "object") return;
  const { dtype, shape } = operand.array;
  throw new HoldfastError(
    "SAVED_CHANGED",
    `${op}: operand ${index} (${dtype} ${formatShape(shape)}) shares memory with a tensor that was overwritten in place while ` +
      "gradients were recorded, so its recorded history no longer matches its values. Create the view after the " +
      "write, detach() it, or use the op that returns a new tensor.",
    { numbers: { op } },
  );
}

function leafWritten(op: string): HoldfastError {
  return new HoldfastError(
    "NO_GRADIENT",
    `${op} cannot run in place on a leaf tensor that requires a gradient: backward would lose its old value. ` +
      "Write inside noGrad(), or use the op that returns a new tensor.",
    { numbers: { op } },
  );
}

function viewWritten(op: string): HoldfastError {
  return new HoldfastError(
    "NO_GRADIENT",
    `${op} cannot run in place on a view while gradients are recorded: the base tensor would have to be recorded again. ` +
      "Write inside noGrad(), or use the op that returns a new tensor.",
    { numbers: { op } },
  );
}
