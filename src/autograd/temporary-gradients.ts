/**
 * The temporary arrays of a backward pass. Each is freed as soon as no gradient in flight uses it. So the pass needs
 * the memory of a few gradients, not of all.
 */

import { capabilitiesOf } from "../kernels/index.js";
import {
  type Apply,
  type ApplyAll,
  type Attributes,
  allocateArray,
  contiguous,
  type DeviceArray,
  firstOf,
  type Op,
  runOp,
  typeOfOperand,
  type ValueType,
} from "../ops/index.js";
import { ownerOf, type Runtime, type Storage } from "../runtime/index.js";

interface Temporary {
  /** The number of gradients in flight that use it. */
  uses: number;
  /** Each is dropped once, however often it occurs. */
  views: Set<Storage> | undefined;
}

export class TemporaryGradients {
  readonly #runtime: Runtime;
  readonly #temporaries = new Map<Storage, Temporary>();
  /** Created since the last `sweep`. */
  #created: Storage[] = [];
  readonly #onResult: (op: string, array: DeviceArray) => void;

  constructor(runtime: Runtime, onResult: (op: string, array: DeviceArray) => void) {
    this.#runtime = runtime;
    this.#onResult = onResult;
  }

  /** Runs ops for gradient rules, and tracks the arrays that they create. */
  readonly applyAll: ApplyAll<DeviceArray> = <A extends Attributes>(
    op: Op<A>,
    operands: readonly (DeviceArray | number)[],
    attributes = {} as A,
  ) => {
    if (op.kind === "composite") {
      op.infer(operands, attributes);
      return op.compose<DeviceArray>(
        { apply: this.apply, capabilities: capabilitiesOf(this.#runtime), typeOf: typeOfOperand },
        operands,
        attributes,
      );
    }
    const outputs = runOp(this.#runtime, op, operands, attributes);
    for (const output of outputs) {
      this.#track(output, operands);
      this.#onResult(op.name, output);
    }
    return outputs;
  };

  readonly apply: Apply<DeviceArray> = (op, operands, attributes) =>
    firstOf(op.name, this.applyAll(op, operands, attributes));

  /** Allocates an array that a gradient in flight uses. `complete` reports it when it has its values. */
  allocate({ shape, dtype }: ValueType, label: string): DeviceArray {
    const array = allocateArray(this.#runtime, shape, dtype, label);
    this.#track(array, []);
    this.retain(array);
    return array;
  }

  complete(label: string, array: DeviceArray): void {
    this.#onResult(label, array);
  }

  /** Records that a gradient in flight uses this array. */
  retain(array: DeviceArray): void {
    const temporary = this.#find(array);
    if (temporary) temporary.uses += 1;
  }

  release(array: DeviceArray): void {
    const temporary = this.#find(array);
    if (!temporary || !array.storage) return;
    temporary.uses -= 1;
    if (temporary.uses === 0) this.#free(ownerOf(array.storage), temporary);
  }

  /** Lets a gradient outlive the pass: it then belongs to its step, like the result of an op. */
  letEscape(array: DeviceArray): void {
    this.retain(array);
  }

  /** A copy that outlives the pass, or the gradient itself if nothing else can use it. */
  takeOut(array: DeviceArray): DeviceArray {
    const result = this.isSole(array) ? array : this.apply(contiguous, [array]);
    this.letEscape(result);
    return result;
  }

  /** True if this gradient is alone in its memory, so that it may be accumulated in place. */
  isSole(array: DeviceArray): boolean {
    return this.#find(array)?.uses === 1 && !array.strides.includes(0) && array.storage?.owner === undefined;
  }

  /** Frees everything created since the last sweep that no gradient uses. */
  sweep(): void {
    const created = this.#created;
    this.#created = [];
    for (const storage of created) {
      const temporary = this.#temporaries.get(storage);
      if (temporary?.uses === 0) this.#free(storage, temporary);
    }
  }

  #find({ storage }: DeviceArray): Temporary | undefined {
    return storage && this.#temporaries.get(ownerOf(storage));
  }

  #track({ storage }: DeviceArray, operands: readonly (DeviceArray | number)[]): void {
    if (storage?.kind !== "step") return;
    const owner = ownerOf(storage);
    const isBorrowed = operands.some(
      (operand) => typeof operand === "object" && operand.storage && ownerOf(operand.storage) === owner,
    );
    if (!isBorrowed && !this.#temporaries.has(owner)) {
      this.#temporaries.set(owner, { uses: 0, views: undefined });
      this.#created.push(owner);
    }
    if (!storage.owner) return;
    const temporary = this.#temporaries.get(owner);
    if (!temporary) return;
    temporary.views ??= new Set();
    temporary.views.add(storage);
  }

  #free(owner: Storage, { views }: Temporary): void {
    this.#temporaries.delete(owner);
    for (const view of views ?? []) this.#runtime.arena.dropView(view);
    this.#runtime.arena.free(owner);
  }
}
