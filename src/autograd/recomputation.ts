/**
 * A function whose ops save nothing that they computed: backward runs the function again when it needs such a value. Both runs record the
 * same ops, and the values of the second run take the place of those that were not kept.
 */

import { HoldfastError } from "../errors/index.js";
import { submit } from "../kernels/index.js";
import {
  type Attributes,
  allocateArray,
  copyCalls,
  type DeviceArray,
  inRecomputation,
} from "../ops/index.js";
import { ownerOf, type Runtime, SavedSet, type Storage } from "../runtime/index.js";
import { recording } from "./grad-mode.js";
import type { GuardedField } from "./guards.js";
import type { DifferentiableOp, Node, Recomputer, RecordedOperand } from "./node.js";

let current: Recomputation | undefined;

/** The recomputation whose function is running, for the first time or again. */
export function currentRecomputation(): Recomputation | undefined {
  return current;
}

/** Those that backward may still run. */
const waiting = new Set<Recomputation>();

/** Call before a guarded field changes: a function that runs again sees the values of its first run. */
export function beforeChange<S extends object>(subject: S, field: GuardedField<S>): void {
  for (const recomputation of waiting) recomputation.keepValue(subject, field);
}

interface KeptValue {
  readonly subject: never;
  readonly field: GuardedField<never>;
  readonly value: unknown;
}

export class Recomputation implements Recomputer {
  readonly #run: () => void;
  readonly #nodes: Node[] = [];
  #openNodes = 0;
  #runtime: Runtime | undefined;
  /** Memory that ops of the present run have allocated, and views, in the order of their creation. */
  #created = new Set<Storage>();
  #views: Storage[] = [];
  /** The random state before the first draw, and the array that it is restored to. */
  #random: { readonly state: DeviceArray; readonly first: DeviceArray; readonly pins: SavedSet } | undefined;
  /** Fields that changed since the first run. */
  readonly #keptValues = new Map<object, Map<object, KeptValue>>();
  /** The index of the next recorded op, while the function runs again. */
  #next: number | undefined;
  #hasRunAgain = false;

  /** `run`: runs the function again, with the same operands. */
  constructor(run: () => void) {
    this.#run = run;
  }

  /** Runs the function for the first time. `keep`: the arrays of its results; all others that it made are freed. */
  runFirst<T>(body: () => T, keep: (result: T) => readonly DeviceArray[]): T {
    const result = this.#asCurrent(body);
    this.#free(keep(result));
    if (this.#openNodes > 0) waiting.add(this);
    else this.#end();
    return result;
  }

  /** True while the function runs again. */
  get isRunningAgain(): boolean {
    return this.#next !== undefined;
  }

  /** True for memory that an op of the function allocated. */
  hasCreated(storage: Storage): boolean {
    return this.#created.has(ownerOf(storage));
  }

  noteOutput(storage: Storage, operands: readonly (DeviceArray | number)[]): void {
    if (storage.kind !== "step") return;
    const owner = ownerOf(storage);
    const isView = operands.some(
      (operand) => typeof operand === "object" && operand.storage && ownerOf(operand.storage) === owner,
    );
    if (!isView) this.#created.add(owner);
    if (storage.owner && this.#created.has(owner)) this.#views.push(storage);
  }

  /** Call before an op that draws random numbers. */
  noteDraw(runtime: Runtime, state: DeviceArray): void {
    if (this.#random || this.isRunningAgain) return;
    const pins = new SavedSet(runtime.arena, "checkpoint");
    const first = copyOf(runtime, state);
    if (first.storage) pins.save(first.storage);
    this.#random = { state, first, pins };
  }

  add(runtime: Runtime, node: Node): void {
    this.#runtime = runtime;
    this.#nodes.push(node);
    this.#openNodes += 1;
  }

  /** The op of the first run that the next op of the second run repeats. */
  repeated(
    op: DifferentiableOp,
    operands: readonly (RecordedOperand | number)[],
    attributes: Attributes,
  ): Node {
    const node = this.#nodes[this.#next ?? 0];
    this.#next = (this.#next ?? 0) + 1;
    const isSame =
      node?.op === op &&
      node.operandTypes.length === operands.length &&
      operands.every((operand, index) => isSameType(node, index, operand)) &&
      JSON.stringify(node.attributes) === JSON.stringify(attributes);
    if (node && isSame) return node;
    throw differs(`ran ${node?.op.name ?? "nothing more"} in forward and ${op.name} in backward`);
  }

  /** Runs the function again, unless it has been. */
  require(): void {
    if (this.#hasRunAgain || !this.#runtime) return;
    this.#hasRunAgain = true;
    this.#next = 0;
    this.#created = new Set();
    this.#views = [];
    const runtime = this.#runtime;
    inRecomputation(runtime, () => {
      this.#withValuesOfFirstRun(() =>
        this.#withRandomState(runtime, () => this.#asCurrent(() => recording(this.#run))),
      );
    });
    const missing = this.#nodes[this.#next ?? 0];
    this.#next = undefined;
    if (missing) throw differs(`ran ${missing.op.name} in forward and nothing more in backward`);
    this.#free([]);
  }

  keepValue<S extends object>(subject: S, field: GuardedField<S>): void {
    const values = this.#keptValues.get(subject) ?? new Map<object, KeptValue>();
    this.#keptValues.set(subject, values);
    if (values.has(field)) return;
    values.set(field, {
      subject: subject as never,
      field: field as GuardedField<never>,
      value: field.read(subject),
    });
  }

  /** Call when a node has released its saved tensors. */
  noteReleased(): void {
    this.#openNodes -= 1;
    if (this.#openNodes === 0) this.#end();
  }

  #end(): void {
    waiting.delete(this);
    this.#free([]);
    this.#random?.pins.release();
    this.#random = undefined;
  }

  #asCurrent<T>(body: () => T): T {
    const outer = current;
    current = this;
    try {
      return body();
    } finally {
      current = outer;
    }
  }

  #withRandomState(runtime: Runtime, body: () => void): void {
    if (!this.#random) {
      body();
      return;
    }
    const { state, first } = this.#random;
    const latest = copyOf(runtime, state);
    submit(runtime, copyCalls(first, state));
    try {
      body();
    } finally {
      submit(runtime, copyCalls(latest, state));
      if (latest.storage) runtime.arena.free(latest.storage);
    }
  }

  #withValuesOfFirstRun(body: () => void): void {
    const kept = [...this.#keptValues.values()].flatMap((values) => [...values.values()]);
    const latest = kept.map(({ subject, field }) => field.read(subject));
    for (const { subject, field, value } of kept) field.write(subject, value);
    try {
      body();
    } finally {
      for (const [index, { subject, field }] of kept.entries()) field.write(subject, latest[index]);
    }
  }

  /** Frees what the run allocated, except results and pinned memory. */
  #free(results: readonly DeviceArray[]): void {
    const { arena } = this.#runtime ?? {};
    if (!arena) return;
    const kept = new Set(results.flatMap(({ storage }) => (storage ? [ownerOf(storage)] : [])));
    const isUnused = (storage: Storage): boolean =>
      arena.isLive(storage) && !arena.isPinned(storage) && !kept.has(ownerOf(storage));
    for (const view of this.#views.toReversed())
      if (isUnused(view) && !arena.isPinned(ownerOf(view))) arena.dropView(view);
    for (const storage of this.#created) if (isUnused(storage)) arena.free(storage);
  }
}

function copyOf(runtime: Runtime, array: DeviceArray): DeviceArray {
  const copy = allocateArray(runtime, array.shape, array.dtype, "random state");
  submit(runtime, copyCalls(array, copy));
  return copy;
}

function isSameType(node: Node, index: number, operand: RecordedOperand | number): boolean {
  if (typeof operand === "number") return node.operandTypes[index]?.shape.length === 0;
  const type = node.operandTypes[index];
  return type?.dtype === operand.array.dtype && String(type.shape) === String(operand.array.shape);
}

function differs(how: string): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `The function of checkpoint() ${how}. It has to run the same ops every time: do not use state that changes between forward and backward.`,
  );
}
