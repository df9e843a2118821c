/**
 * The tape: runs ops of the table on values and records what backward will need. One for each device. A step's
 * recordings end with the step, whether backward was asked or not.
 */

import { HoldfastError } from "../errors/index.js";
import {
  type Attributes,
  copyArray,
  type DeviceArray,
  firstOf,
  isFloat,
  type Op,
  runInto,
  runOp,
  typeOfOperand,
} from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { type BackwardOptions, runBackward } from "./backward.js";
import { isRecording } from "./grad-mode.js";
import { type DifferentiableOp, Node } from "./node.js";
import { Value } from "./value.js";
import { noteWrite } from "./versions.js";

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
    if (isRecorded && target.leaf) throw leafWritten(op.name);
    if (isRecorded && target.array.storage?.owner) throw viewWritten(op.name);
    const { array } = target;
    if (op.kind === "composite") {
      const result = this.apply(op, operands, attributes);
      copyArray(runtime, result.array, array);
      noteWrite(array.storage);
      target.source = result.source;
      return;
    }
    // Recorded before the write: if the op saves what is about to be overwritten, backward will find out.
    const node = isRecorded ? this.#record(op as DifferentiableOp, operands, [array], attributes) : undefined;
    runInto(runtime, op, array, operands.map(arrayOf), attributes);
    noteWrite(array.storage);
    node?.renewOutputs();
    this.#onResult(op.name, array);
    if (node) target.source = { node, output: 0 };
  }

  backward(root: Value, seed: DeviceArray, options: BackwardOptions = {}): void {
    runBackward(this.#options.runtime, root, seed, { onResult: this.#onBackwardResult, ...options });
    if (!options.retainGraph) this.#forgetReleased();
  }

  /** Lets go of everything that was recorded: at a step's end. */
  release(): void {
    const open = [...this.#open];
    this.#open.clear();
    for (const node of open) node.release();
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
