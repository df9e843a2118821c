/** The gradient of a leaf: one array at a constant address, to which backward adds. */

import {
  GradientHooks,
  type GuardedField,
  noteWrite,
  type RecordedOperand,
  stateChanged,
  tracing,
} from "../autograd/index.js";
import { submit } from "../kernels/index.js";
import { add, addToView, copyCalls, type DeviceArray, runInto, type StridedView } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import type { GradientHolder } from "./tensor-handle.js";

export class LeafGradient implements GradientHolder {
  readonly hooks = new GradientHooks();
  readonly #runtime: Runtime;
  readonly #allocate: () => DeviceArray;
  readonly #free: (array: DeviceArray) => void;
  #array: DeviceArray | undefined;
  /** The graph of the gradient, if it has one. */
  #source: RecordedOperand["source"];
  /**
   * True if a gradient has arrived since it was cleared. A plan is valid for one value of it: the first gradient overwrites,
   * later gradients add.
   */
  #arrived = false;
  static readonly #arrival: GuardedField<LeafGradient> = {
    read: (gradient) => gradient.#arrived,
    write: (gradient, hasArrived) => {
      gradient.#arrived = hasArrived === true;
    },
  };

  /**
   * `allocate` is called when the first gradient arrives, and `free` by `release()`. A parameter's gradient belongs to its
   * module, so its `free` does nothing. `owner` is the value whose gradient this is.
   */
  constructor(
    runtime: Runtime,
    allocate: () => DeviceArray,
    free: (array: DeviceArray) => void = () => undefined,
    owner?: object,
  ) {
    this.#runtime = runtime;
    this.#allocate = allocate;
    this.#free = free;
    if (!owner || !tracing.guards?.hasCreated(owner)) return;
    tracing.guards.noteCreated(this);
    tracing.guards.noteCreated(this.hooks);
  }

  get #hasArrived(): boolean {
    tracing.guards?.noteRead(this, LeafGradient.#arrival, this.#arrived, this.#name);
    return this.#arrived;
  }

  set #hasArrived(hasArrived: boolean) {
    tracing.guards?.noteWrite(this, LeafGradient.#arrival, hasArrived, this.#name);
    this.#arrived = hasArrived;
    stateChanged();
  }

  readonly #name = (): string => `whether "${this.#array?.storage?.label ?? "a gradient"}" has arrived`;

  get gradient(): DeviceArray | undefined {
    return this.#hasArrived ? this.#array : undefined;
  }

  /** Where the gradient comes from, if backward recorded it and its graph is there. */
  get source(): RecordedOperand["source"] {
    return this.#source?.node.isReleased ? undefined : this.#source;
  }

  accumulateRecorded(
    gradient: RecordedOperand,
    add: (earlier: RecordedOperand, gradient: RecordedOperand) => RecordedOperand,
  ): void {
    const earlier = this.gradient;
    const { source } = this;
    const sum = earlier ? add({ array: earlier, source, leaf: undefined }, gradient) : gradient;
    this.clear();
    this.accumulate(sum.array);
    this.#source = sum.source;
  }

  /** The first gradient after `clear` overwrites, so clearing is free. */
  accumulate(gradient: DeviceArray): void {
    const destination = this.takeDestination();
    if (destination) {
      submit(this.#runtime, copyCalls(gradient, destination));
      return;
    }
    const sum = this.#array;
    if (!sum) return;
    runInto(this.#runtime, add, sum, [sum, gradient], {});
    noteWrite(sum.storage);
  }

  accumulateView(gradient: DeviceArray, view: StridedView): void {
    const sum = this.#array;
    if (!sum) return;
    runInto(this.#runtime, addToView, sum, [sum, gradient], { view });
    noteWrite(sum.storage);
  }

  takeDestination(): DeviceArray | undefined {
    if (this.#hasArrived) return undefined;
    this.#array ??= this.#allocate();
    noteWrite(this.#array.storage);
    this.#hasArrived = true;
    return this.#array;
  }

  clear(): void {
    this.#hasArrived = false;
    this.#source = undefined;
    if (this.#array?.storage) this.#runtime.traceSink?.discard(this.#array.storage);
  }

  release(): void {
    const array = this.#array;
    this.clear();
    this.#array = undefined;
    if (array) this.#free(array);
  }
}
