/**
 * The arrays that a backward pass makes on its way. Each is given back as soon as no gradient under way lies in it, so
 * that the pass needs the memory of a few gradients and not of all.
 */

import {
  type Apply,
  type ApplyAll,
  type Attributes,
  type DeviceArray,
  firstOf,
  type Op,
  runOp,
  typeOfOperand,
} from "../ops/index.js";
import { ownerOf, type Runtime, type Storage } from "../runtime/index.js";

interface Lent {
  /** How many gradients under way lie in it. */
  uses: number;
  /** Each is dropped once, however often it was met. */
  views: Set<Storage> | undefined;
}

export class TemporaryGradients {
  readonly #runtime: Runtime;
  readonly #lent = new Map<Storage, Lent>();
  /** Made since the last `sweep`. */
  #fresh: Storage[] = [];
  readonly #onResult: (op: string, array: DeviceArray) => void;

  constructor(runtime: Runtime, onResult: (op: string, array: DeviceArray) => void) {
    this.#runtime = runtime;
    this.#onResult = onResult;
  }

  /** Runs ops for gradient rules, and keeps the account of what they make. */
  readonly applyAll: ApplyAll<DeviceArray> = <A extends Attributes>(
    op: Op<A>,
    operands: readonly (DeviceArray | number)[],
    attributes = {} as A,
  ) => {
    if (op.kind === "composite") {
      op.infer(operands, attributes);
      return op.compose<DeviceArray>({ apply: this.apply, typeOf: typeOfOperand }, operands, attributes);
    }
    const outputs = runOp(this.#runtime, op, operands, attributes);
    for (const output of outputs) {
      this.#note(output, operands);
      this.#onResult(op.name, output);
    }
    return outputs;
  };

  readonly apply: Apply<DeviceArray> = (op, operands, attributes) =>
    firstOf(op.name, this.applyAll(op, operands, attributes));

  /** A gradient under way lies in this array. */
  hold(array: DeviceArray): void {
    const lent = this.#of(array);
    if (lent) lent.uses += 1;
  }

  letGo(array: DeviceArray): void {
    const lent = this.#of(array);
    if (!lent || !array.storage) return;
    lent.uses -= 1;
    if (lent.uses === 0) this.#giveBack(ownerOf(array.storage), lent);
  }

  /** Is this gradient the only thing in its memory, so that it may be added to in place? */
  isSole(array: DeviceArray): boolean {
    return this.#of(array)?.uses === 1 && !array.strides.includes(0) && array.storage?.owner === undefined;
  }

  /** Gives back what was made since the last sweep and holds no gradient. */
  sweep(): void {
    const fresh = this.#fresh;
    this.#fresh = [];
    for (const storage of fresh) {
      const lent = this.#lent.get(storage);
      if (lent?.uses === 0) this.#giveBack(storage, lent);
    }
  }

  #of({ storage }: DeviceArray): Lent | undefined {
    return storage && this.#lent.get(ownerOf(storage));
  }

  #note({ storage }: DeviceArray, operands: readonly (DeviceArray | number)[]): void {
    if (storage?.kind !== "step") return;
    const owner = ownerOf(storage);
    const isBorrowed = operands.some(
      (operand) => typeof operand === "object" && operand.storage && ownerOf(operand.storage) === owner,
    );
    if (!isBorrowed && !this.#lent.has(owner)) {
      this.#lent.set(owner, { uses: 0, views: undefined });
      this.#fresh.push(owner);
    }
    if (!storage.owner) return;
    const lent = this.#lent.get(owner);
    if (!lent) return;
    lent.views ??= new Set();
    lent.views.add(storage);
  }

  #giveBack(owner: Storage, { views }: Lent): void {
    this.#lent.delete(owner);
    for (const view of views ?? []) this.#runtime.arena.dropView(view);
    this.#runtime.arena.free(owner);
  }
}
