/** Where the gradient of a tensor arrives: one array, at one address for life, that gradients are added to. */

import { noteWrite } from "../autograd/index.js";
import { add, copyArray, type DeviceArray, runInto } from "../ops/index.js";
import type { Runtime } from "../runtime/index.js";
import { type GradientState, hasArrived, setArrived } from "./gradient-states.js";
import type { GradientHolder } from "./tensor.js";

export class LeafGradient implements GradientHolder {
  readonly #runtime: Runtime;
  readonly #place: () => DeviceArray;
  readonly #end: (array: DeviceArray) => void;
  #array: DeviceArray | undefined;
  readonly #state: GradientState = { hasArrived: false };

  /** The array is placed when the first gradient arrives, and ended with `release`; a parameter's is not its own to end. */
  constructor(
    runtime: Runtime,
    place: () => DeviceArray,
    end: (array: DeviceArray) => void = () => undefined,
  ) {
    this.#runtime = runtime;
    this.#place = place;
    this.#end = end;
  }

  get gradient(): DeviceArray | undefined {
    return hasArrived(this.#state) ? this.#array : undefined;
  }

  /** The first gradient after `clear` replaces what is there, so clearing costs nothing. */
  accumulate(gradient: DeviceArray): void {
    const place = this.takePlace();
    if (place) {
      copyArray(this.#runtime, gradient, place);
      return;
    }
    const own = this.#array;
    if (!own) return;
    runInto(this.#runtime, add, own, [own, gradient], {});
    noteWrite(own.storage);
  }

  takePlace(): DeviceArray | undefined {
    if (hasArrived(this.#state)) return undefined;
    this.#array ??= this.#place();
    noteWrite(this.#array.storage);
    setArrived(this.#state, true);
    return this.#array;
  }

  clear(): void {
    setArrived(this.#state, false);
    if (this.#array?.storage) this.#runtime.forget(this.#array.storage);
  }

  release(): void {
    const own = this.#array;
    this.clear();
    this.#array = undefined;
    if (own) this.#end(own);
  }
}
