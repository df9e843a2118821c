/** A recorded op: what backward needs to go through it, and nothing else. What it saved stays pinned until let go. */

import { HoldfastError } from "../errors/index.js";
import type { Attributes, DeviceArray, KernelOp, ValueType, ViewOp } from "../ops/index.js";
import { type Runtime, SavedSet } from "../runtime/index.js";
import type { Leaf, Source, Value } from "./value.js";
import { versionOf } from "./versions.js";

export type DifferentiableOp = KernelOp | ViewOp;

/** Where the gradient of an operand goes on to. */
export type Edge = { readonly source: Source } | { readonly leaf: Leaf } | undefined;

interface Saved {
  readonly array: DeviceArray;
  readonly version: number;
}

let nodes = 0;

/** The id of the op recorded last; what is recorded from now on has a higher one. */
export function lastNodeId(): number {
  return nodes;
}

export class Node {
  /** Ascends in the order of recording: backward goes from the highest down. */
  readonly id = ++nodes;
  readonly op: DifferentiableOp;
  readonly attributes: Attributes;
  readonly edges: readonly Edge[];
  readonly needs: readonly boolean[];
  readonly operandTypes: readonly ValueType[];
  readonly outputTypes: readonly ValueType[];
  readonly #numbers: ReadonlyMap<number, number>;
  readonly #operands = new Map<number, Saved>();
  readonly #outputs = new Map<number, Saved>();
  readonly #pins: SavedSet;
  #isReleased = false;

  constructor(
    runtime: Runtime,
    op: DifferentiableOp,
    operands: readonly (Value | number)[],
    outputs: readonly DeviceArray[],
    attributes: Attributes,
  ) {
    this.op = op;
    this.attributes = attributes;
    this.edges = operands.map(edgeOf);
    this.needs = this.edges.map((edge) => edge !== undefined);
    this.operandTypes = operands.map((operand) =>
      typeof operand === "number" ? { shape: [], dtype: "f32" } : typeOf(operand.array),
    );
    this.outputTypes = outputs.map(typeOf);
    this.#numbers = new Map(
      operands.flatMap((operand, index) => (typeof operand === "number" ? [[index, operand] as const] : [])),
    );
    this.#pins = new SavedSet(runtime.arena, `backward of ${op.name}`);
    const places = op.saves?.(this.needs, attributes) ?? {};
    for (const index of places.operands ?? []) {
      const operand = operands[index];
      if (typeof operand === "object") this.#save(this.#operands, index, operand.array);
    }
    for (const index of places.outputs ?? []) {
      const output = outputs[index];
      if (output) this.#save(this.#outputs, index, output);
    }
  }

  operand(index: number): DeviceArray | number {
    return this.#numbers.get(index) ?? this.#recall(this.#operands, index, "operand");
  }

  output(index: number): DeviceArray {
    return this.#recall(this.#outputs, index, "output");
  }

  get isReleased(): boolean {
    return this.#isReleased;
  }

  /** For an op in place, once it has written: its saved outputs are what they are now. */
  renewOutputs(): void {
    for (const [index, { array }] of this.#outputs) {
      this.#outputs.set(index, { array, version: versionOf(array.storage) });
    }
  }

  /** Lets go of everything that was saved. Harmless when repeated. */
  release(): void {
    this.#isReleased = true;
    this.#operands.clear();
    this.#outputs.clear();
    this.#pins.release();
  }

  #save(places: Map<number, Saved>, index: number, array: DeviceArray): void {
    if (array.storage) this.#pins.save(array.storage);
    places.set(index, { array, version: versionOf(array.storage) });
  }

  #recall(places: ReadonlyMap<number, Saved>, index: number, what: string): DeviceArray {
    const { name } = this.op;
    if (this.#isReleased) {
      throw new HoldfastError(
        "BACKWARD_TWICE",
        `backward() goes through ${name} a second time, and what it had saved is let go. Add the losses and call backward() ` +
          "once, pass retainGraph: true to the first call, or run the forward pass again.",
        { numbers: { op: name } },
      );
    }
    const saved = places.get(index);
    if (!saved) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `The gradient of ${name} reads ${what} ${index}, which its entry of the op table does not save.`,
        { numbers: { op: name } },
      );
    }
    if (versionOf(saved.array.storage) !== saved.version) {
      throw new HoldfastError(
        "SAVED_CHANGED",
        `${name} saved its ${what} ${index} (${saved.array.dtype} [${saved.array.shape.join(", ")}]) for backward, and it was ` +
          "written to in place since. Use the form that makes a new tensor, or write after backward().",
        { numbers: { op: name } },
      );
    }
    return saved.array;
  }
}

function typeOf({ shape, dtype }: DeviceArray): ValueType {
  return { shape, dtype };
}

function edgeOf(operand: Value | number): Edge {
  if (typeof operand === "number") return undefined;
  if (operand.source) return { source: operand.source };
  return operand.leaf && { leaf: operand.leaf };
}
