/**
 * The tape: runs ops of the table on values and records what backward will need. One for each device. A step's
 * recordings end with the step, whether backward was asked or not.
 */

import { HoldfastError } from "../errors/index.js";
import { submit } from "../kernels/index.js";
import {
  type Attributes,
  copyCalls,
  type DeviceArray,
  firstOf,
  formatShape,
  inStepPhase,
  isFloat,
  type Op,
  requireFits,
  runInto,
  runOp,
  typeOfOperand,
} from "../ops/index.js";
import { ownerOf, type Runtime } from "../runtime/index.js";
import { type BackwardOptions, runBackward } from "./backward.js";
import { isRecording } from "./grad-mode.js";
import { type DifferentiableOp, lastNodeId, Node } from "./node.js";
import { Value } from "./value.js";
import { noteRecordedWrite, noteWrite } from "./versions.js";

export interface TapeOptions {
  readonly runtime: Runtime;
  /** Hears of every array that an op makes, forward and backward. */
  readonly onResult?: (op: string, array: DeviceArray) => void;
}

export class Tape {
  readonly #options: TapeOptions;
  readonly #onResult: (op: string, array: DeviceArray) => void;
  /** Recorded and not yet let go. */
  readonly #open = new Set<Node>();

  constructor(options: TapeOptions) {
    this.#options = options;
    this.#onResult = options.onResult ?? (() => undefined);
  }

  /** How many recorded ops still hold what they saved. */
  get openNodes(): number {
    return this.#open.size;
  }

  /** Runs an op; all of its outputs. */
  run<A extends Attributes>(
    op: Op<A>,
    operands: readonly (Value | number)[],
    attributes: A,
  ): readonly Value[] {
    const { runtime } = this.#options;
    requireCurrent(op.name, operands);
    if (op.kind === "composite") {
      op.infer(operands.map(typeOfAny), attributes);
      const apply = <B extends Attributes>(
        part: Op<B>,
        parts: readonly (Value | number)[],
        own = {} as B,
      ): Value => this.apply(part, parts, own);
      return op.compose<Value>({ apply, typeOf: typeOfAny }, operands, attributes);
    }
    const arrays = operands.map(arrayOf);
    const outputs = runOp(runtime, op, arrays, attributes);
    for (const output of outputs) this.#onResult(op.name, output);
    const node = this.#record(op as DifferentiableOp, operands, outputs, attributes);
    if (op.kind === "view") return outputs.map((array) => viewOf(operands, array, node));
    return outputs.map((array, output) => new Value(array, node && { source: { node, output } }));
  }

  /** Runs an op; its first output. What it made beside that and did not save for backward ends here. */
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
   * Runs an op so that its result replaces the first operand's elements, at the same address. The value then stands for
   * the result, also for backward.
   */
  applyInPlace<A extends Attributes>(
    op: Op<A>,
    target: Value,
    operands: readonly (Value | number)[],
    attributes: A,
  ): void {
    const { runtime } = this.#options;
    const isRecorded =
      isRecording() && [target, ...operands].some((one) => typeof one === "object" && one.requiresGrad);
    if (isRecorded && (target.leaf || target.base?.leaf)) throw leafWritten(op.name);
    if (isRecorded && target.array.storage?.owner) throw viewWritten(op.name);
    requireCurrent(op.name, [target, ...operands]);
    const { array } = target;
    if (op.kind === "composite") {
      const [type] = op.infer(operands.map(typeOfAny), attributes);
      requireFits(op.name, type, array);
      const result = this.apply(op, operands, attributes);
      submit(runtime, copyCalls(result.array, array));
      noteWrite(array.storage);
      if (isRecorded) replaceValue(target, result.source);
      return;
    }
    // Recorded before the write: if the op saves what is about to be overwritten, backward will find out.
    const node = isRecorded ? this.#record(op as DifferentiableOp, operands, [array], attributes) : undefined;
    try {
      runInto(runtime, op, array, operands.map(arrayOf), attributes);
    } catch (failure) {
      if (node) this.#forget(node);
      throw failure;
    }
    noteWrite(array.storage);
    node?.renewOutputs();
    this.#onResult(op.name, array);
    // Without a node nothing that it is made of has a gradient: its old source is cut off.
    if (isRecorded) replaceValue(target, node && { node, output: 0 });
  }

  backward(root: Value, seed: DeviceArray, options: BackwardOptions = {}): void {
    requireCurrent("backward", [root]);
    const { runtime } = this.#options;
    inStepPhase(runtime, "backward", () =>
      runBackward(runtime, root, seed, { onResult: this.#onBackwardResult, ...options }),
    );
    if (!options.retainGraph) this.#forgetReleased();
  }

  /** A point in the recording, for `release`. */
  mark(): number {
    return lastNodeId();
  }

  /** Lets go of everything that was recorded since a mark: at a step's end. All of it unless one is given. */
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
    const isWanted = isRecording() && operands.some((one) => typeof one === "object" && one.requiresGrad);
    const [first] = outputs;
    if (!isWanted || !first || !isFloat(first.dtype)) return undefined;
    if (!op.gradient) {
      const why = op.noGradient ? `: ${op.noGradient}` : "";
      throw new HoldfastError(
        "NO_GRADIENT",
        `${op.name} has no gradient${why}. Call it inside noGrad(), or on detach()ed tensors.`,
        { numbers: { op: op.name } },
      );
    }
    const node = new Node(this.#options.runtime, op, operands, outputs, attributes);
    this.#open.add(node);
    return node;
  }

  #forget(node: Node, endedBy?: "step"): void {
    this.#open.delete(node);
    node.release(endedBy);
  }

  #forgetReleased(): void {
    for (const node of this.#open) if (node.isReleased) this.#open.delete(node);
  }
}

function arrayOf(operand: Value | number): DeviceArray | number {
  return typeof operand === "number" ? operand : operand.array;
}

function typeOfAny(operand: Value | number) {
  return typeOfOperand(arrayOf(operand));
}

/** What a view op gives: a value of its own, or one over the memory of its operand. */
function viewOf(operands: readonly (Value | number)[], array: DeviceArray, node: Node | undefined): Value {
  const [operand] = operands;
  const origin = node && { source: { node, output: 0 } };
  const { storage } = array;
  const from = typeof operand === "object" ? operand.array.storage : undefined;
  if (typeof operand !== "object" || !storage || !from || ownerOf(storage) !== ownerOf(from)) {
    return new Value(array, origin);
  }
  return new Value(array, { ...origin, base: operand.base ?? operand, cutBy: operand.cutBy });
}

/** The value stands for what was just written over it, and other values over the same memory no longer for anything. */
function replaceValue(target: Value, source: Value["source"]): void {
  noteRecordedWrite(target.array.storage);
  target.replaceSource(source);
}

/** Rejects values whose memory holds what a recorded op wrote through another: their own source would be a false one. */
function requireCurrent(op: string, operands: readonly (Value | number)[]): void {
  if (!isRecording()) return;
  const index = operands.findIndex((one) => typeof one === "object" && one.isOverwritten);
  const operand = operands[index];
  if (typeof operand !== "object") return;
  const { dtype, shape } = operand.array;
  throw new HoldfastError(
    "SAVED_CHANGED",
    `${op}: operand ${index} (${dtype} ${formatShape(shape)}) shares its memory with a tensor that was written to in place while ` +
      "gradients were recorded, so how it was made is no longer how its values came about. Make the view after the " +
      "write, take detach() of it, or use the form that makes a new tensor.",
    { numbers: { op } },
  );
}

function leafWritten(op: string): HoldfastError {
  return new HoldfastError(
    "NO_GRADIENT",
    `${op} in place on a tensor that requires a gradient itself: its old value would be lost to backward. ` +
      "Write inside noGrad(), or use the form that makes a new tensor.",
    { numbers: { op } },
  );
}

function viewWritten(op: string): HoldfastError {
  return new HoldfastError(
    "NO_GRADIENT",
    `${op} in place on a view while gradients are recorded: the tensor it is a view of would have to be recorded anew. ` +
      "Write inside noGrad(), or use the form that makes a new tensor.",
    { numbers: { op } },
  );
}
