/** The gradient of a leaf: one array, at a constant address, that gradients are accumulated into. */

import { type GuardedField, noteWrite, stateChanged, tracing } from "../autograd/index.js";
import { submit } from "../kernels/index.js";
import { add, copyCalls, type DeviceArray, runInto } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import type { GradientHolder } from "./tensor-handle.js";

export class LeafGradient implements GradientHolder {
  readonly #runtime: Runtime;
  readonly #place: () => DeviceArray;
  readonly #end: (array: DeviceArray) => void;
  #array: DeviceArray | undefined;
  /**
   * True if a gradient has arrived since it was cleared. A plan is for one value: the first gradient overwrites, later
   * ones add.
   */
  #isThere = false;
  static readonly #arrival: GuardedField<LeafGradient> = {
    read: (gradient) => gradient.#isThere,
    write: (gradient, isThere) => {
      gradient.#isThere = isThere === true;
    },
  };

  /**
   * The array is placed when the first gradient arrives, and ended with `release`; a parameter's is not its own to end.
   * `owner` is the value whose gradient this is.
   */
  constructor(
    runtime: Runtime,
    place: () => DeviceArray,
    end: (array: DeviceArray) => void = () => undefined,
    owner?: object,
  ) {
    this.#runtime = runtime;
    this.#place = place;
    this.#end = end;
    if (owner && tracing.guards?.hasCreated(owner)) tracing.guards.noteCreated(this);
  }

  get #hasArrived(): boolean {
    tracing.guards?.noteRead(this, LeafGradient.#arrival, this.#isThere, this.#name);
    return this.#isThere;
  }

  set #hasArrived(hasArrived: boolean) {
    tracing.guards?.noteWrite(this, LeafGradient.#arrival, hasArrived, this.#name);
    this.#isThere = hasArrived;
    stateChanged();
  }

  readonly #name = (): string => `whether "${this.#array?.storage?.label ?? "a gradient"}" has arrived`;

  get gradient(): DeviceArray | undefined {
    return this.#hasArrived ? this.#array : undefined;
  }

  /** The first gradient after `clear` overwrites, so clearing is free. */
  accumulate(gradient: DeviceArray): void {
    const place = this.takeDestination();
    if (place) {
      submit(this.#runtime, copyCalls(gradient, place));
      return;
    }
    const own = this.#array;
    if (!own) return;
    runInto(this.#runtime, add, own, [own, gradient], {});
    noteWrite(own.storage);
  }

  takeDestination(): DeviceArray | undefined {
    if (this.#hasArrived) return undefined;
    this.#array ??= this.#place();
    noteWrite(this.#array.storage);
    this.#hasArrived = true;
    return this.#array;
  }

  clear(): void {
    this.#hasArrived = false;
    if (this.#array?.storage) this.#runtime.forget(this.#array.storage);
  }

  release(): void {
    const own = this.#array;
    this.clear();
    this.#array = undefined;
    if (own) this.#end(own);
  }
}
