/** A recorded op, with everything that backward needs to differentiate it. Saved tensors stay pinned until they are released. */

import { HoldfastError } from "../errors/index.js";
import type { Attributes, DeviceArray, KernelOp, StridedView, ValueType, ViewOp } from "../ops/index.js";
import { type Runtime, SavedSet, type Storage } from "../runtime/index.js";
import { versionOf } from "./versions.js";

export type DifferentiableOp = KernelOp | ViewOp;

/** Where gradients end: a tensor that requires its own gradient. */
export interface Leaf {
  /** See the gradient of each backward pass before it is added. */
  readonly hooks: HookList;
  /** Accumulates a gradient. The array is borrowed. */
  accumulate(gradient: DeviceArray): void;
  /** Adds a gradient to a view of an earlier one. The array is borrowed. */
  accumulateView(gradient: DeviceArray, view: StridedView): void;
  /**
   * Returns contiguous memory for a first gradient, or undefined if one has arrived. The caller must write a gradient
   * there: it counts as arrived from here on.
   */
  takeDestination(): DeviceArray | undefined;
  /** Accumulates a gradient that has a graph. `add` records. */
  accumulateRecorded(
    gradient: RecordedOperand,
    add: (earlier: RecordedOperand, gradient: RecordedOperand) => RecordedOperand,
  ): void;
}

/** The hooks of a gradient, in the order of their calls. */
export interface HookList {
  readonly list: readonly ((gradient: RecordedOperand) => RecordedOperand | undefined)[];
  /** Appends a hook. The result removes it. */
  add(hook: (gradient: RecordedOperand) => RecordedOperand | undefined): () => void;
}

/** An output of a recorded op. */
export interface Source {
  readonly node: Node;
  readonly output: number;
}

/** An operand as a node sees it: an array, and the destination of its gradient. */
export interface RecordedOperand {
  readonly array: DeviceArray;
  readonly source: Source | undefined;
  readonly leaf: Leaf | undefined;
}

/** The destination of an operand's gradient. */
export type Edge = { readonly source: Source } | { readonly leaf: Leaf } | undefined;

/** Computes saved tensors again that were not kept. */
export interface Recomputer {
  /** True for memory that it computes again. */
  hasCreated(storage: Storage): boolean;
  /** Makes the recorded ops save their tensors again, by `saveAgain`. */
  require(): void;
  /** Called when a recorded op has released its saved tensors. */
  noteReleased(): void;
}

interface Saved {
  readonly array: DeviceArray;
  readonly version: number;
}

/** Takes the place of a saved tensor that backward computes again. */
const recomputed = Symbol("recomputed");

type SavedOrRecomputed = Saved | typeof recomputed;

let nodes = 0;

/** The id of the last recorded op; later ones have higher ids. */
export function lastNodeId(): number {
  return nodes;
}

/** What a gradient is for, besides the value itself: its hooks, and what keeps a copy of it. */
export interface Observed {
  /** See the complete gradient. */
  hooks: HookList | undefined;
  /** Accumulates the gradient, after the hooks. */
  retained: Leaf | undefined;
}

/** An output after the first of a function of the user. */
export class Slot implements Observed {
  readonly node: Node;
  hooks: HookList | undefined;
  retained: Leaf | undefined;

  constructor(node: Node) {
    this.node = node;
  }
}

/**
 * The gradients of a function of the user: one for each operand from one for each output. `isRecorded`: true if they will be
 * differentiated again.
 */
export type FunctionGradient = (
  node: Node,
  upstreams: readonly (RecordedOperand | undefined)[],
  isRecorded: boolean,
) => readonly (RecordedOperand | undefined)[];

/** A recorded function of the user. */
export interface RecordedFunction {
  /** The number of outputs. They come first among the node's. */
  readonly outputs: number;
  readonly gradient: FunctionGradient;
}

export class Node implements Observed {
  /** Ascending in order of recording: backward goes from the highest down. */
  readonly id = ++nodes;
  readonly op: DifferentiableOp;
  readonly attributes: Attributes;
  readonly edges: readonly Edge[];
  readonly needs: readonly boolean[];
  readonly operandTypes: readonly ValueType[];
  readonly outputTypes: readonly ValueType[];
  /** Of the first output's gradient, as `retained`. */
  hooks: HookList | undefined;
  retained: Leaf | undefined;
  /** Set if the user has defined the op and its gradient. */
  readonly userFunction: RecordedFunction | undefined;
  /** The outputs after the first of a function of the user. */
  readonly slots: readonly Slot[];
  /** By operand index: a literal number, or the saved tensor; most are undefined. */
  #operands: readonly (number | SavedOrRecomputed | undefined)[];
  #outputs: (SavedOrRecomputed | undefined)[] = [];
  readonly #recomputer: Recomputer | undefined;
  readonly #pins: SavedSet;
  #isReleased = false;
  #hasStepEnded = false;

  constructor(
    runtime: Runtime,
    op: DifferentiableOp,
    operands: readonly (RecordedOperand | number)[],
    outputs: readonly DeviceArray[],
    attributes: Attributes,
    recomputer?: Recomputer,
    userFunction?: RecordedFunction,
  ) {
    this.op = op;
    this.userFunction = userFunction;
    this.slots = Array.from({ length: (userFunction?.outputs ?? 1) - 1 }, () => new Slot(this));
    this.#recomputer = recomputer;
    this.attributes = attributes;
    this.edges = operands.map(makeEdge);
    this.needs = this.edges.map((edge) => edge !== undefined);
    this.operandTypes = operands.map((operand) => (typeof operand === "number" ? numberType : operand.array));
    this.outputTypes = outputs;
    this.#pins = new SavedSet(runtime.arena, pinHolder(op.name));
    const savedIndices = op.saves?.(this.needs, attributes);
    const saved: (number | SavedOrRecomputed | undefined)[] = operands.map((operand) =>
      typeof operand === "number" ? operand : undefined,
    );
    for (const index of savedIndices?.operands ?? []) {
      const operand = operands[index];
      if (typeof operand === "object") saved[index] = this.#save(operand.array);
    }
    this.#operands = saved;
    for (const index of savedIndices?.outputs ?? []) {
      const output = outputs[index];
      if (output) this.#outputs[index] = this.#save(output);
    }
  }

  operand(index: number): DeviceArray | number {
    const saved = this.#operands[index];
    return typeof saved === "number" ? saved : this.#recall("operand", index);
  }

  output(index: number): DeviceArray {
    return this.#recall("output", index);
  }

  get isReleased(): boolean {
    return this.#isReleased;
  }

  /** After an in-place op has written: its saved outputs are the new values. */
  renewOutputs(): void {
    this.#outputs = this.#outputs.map((saved) =>
      typeof saved === "object" ? { array: saved.array, version: versionOf(saved.array.storage) } : saved,
    );
  }

  /** Saves operands and outputs of a second run where those of the first were not kept. */
  saveAgain(operands: readonly (RecordedOperand | number)[], outputs: readonly DeviceArray[]): void {
    if (this.#isReleased) return;
    this.#operands = this.#operands.map((saved, index) => {
      const operand = operands[index];
      return saved === recomputed && typeof operand === "object" ? this.#pin(operand.array) : saved;
    });
    this.#outputs = this.#outputs.map((saved, index) => {
      const output = outputs[index];
      return saved === recomputed && output ? this.#pin(output) : saved;
    });
  }

  /** Rejects a backward pass through an op whose step has ended, whether it saved anything or not. */
  requireStep(): void {
    if (!this.#hasStepEnded) return;
    const { name } = this.op;
    throw new HoldfastError(
      "NO_GRADIENT",
      `backward() goes through ${name}, whose graph ended with its step. Call backward() inside the step that computes the loss.`,
      { numbers: { op: name } },
    );
  }

  /** What receives the gradient of an output. */
  outputKey(output: number): Node | Slot {
    return output === 0 ? this : (this.slots[output - 1] ?? this);
  }

  /** Releases everything that was saved: backward has used it, or its step has ended. Idempotent. */
  release(endedBy?: "step"): void {
    const isFirst = !this.#isReleased;
    this.#isReleased = true;
    this.#hasStepEnded ||= endedBy === "step";
    this.#operands = [];
    this.#outputs = [];
    this.#pins.release();
    if (isFirst) this.#recomputer?.noteReleased();
  }

  #save(array: DeviceArray): SavedOrRecomputed {
    if (array.storage && this.#recomputer?.hasCreated(array.storage)) return recomputed;
    return this.#pin(array);
  }

  #pin(array: DeviceArray): Saved {
    if (array.storage) this.#pins.save(array.storage);
    return { array, version: versionOf(array.storage) };
  }

  #recall(role: "operand" | "output", index: number): DeviceArray {
    const find = () => (role === "operand" ? this.#operands : this.#outputs)[index];
    if (find() === recomputed) this.#recomputer?.require();
    const saved = find();
    const { name } = this.op;
    if (this.#isReleased) {
      throw new HoldfastError(
        "BACKWARD_TWICE",
        `backward() goes through ${name} a second time, after its saved tensors were released. Add the losses and call backward() ` +
          "once, pass the option retainGraph to the first call, backward(undefined, { retainGraph: true }), or run the forward pass again.",
        { numbers: { op: name } },
      );
    }
    if (typeof saved !== "object") {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The gradient of ${name} reads ${role} ${index}, which its op table entry does not save.`,
        { numbers: { op: name } },
      );
    }
    if (versionOf(saved.array.storage) !== saved.version) {
      throw new HoldfastError(
        "SAVED_CHANGED",
        `${name} saved its ${role} ${index} (${saved.array.dtype} [${saved.array.shape.join(", ")}]) for backward, but it was ` +
          "overwritten in place afterwards. Use the op that returns a new tensor, or write after backward().",
        { numbers: { op: name } },
      );
    }
    return saved.array;
  }
}

/** A literal number has no axes. */
const numberType: ValueType = { shape: [], dtype: "f32" };

const names = new Map<string, string>();

/** The holder's name of a pin, cached because a step uses it a hundred times. */
function pinHolder(op: string): string {
  const existing = names.get(op) ?? `backward of ${op}`;
  names.set(op, existing);
  return existing;
}

function makeEdge(operand: RecordedOperand | number): Edge {
  if (typeof operand === "number") return undefined;
  if (operand.source) return { source: operand.source };
  return operand.leaf && { leaf: operand.leaf };
}
