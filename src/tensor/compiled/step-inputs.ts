/**
 * The inputs of a compiled step's plan. Each call copies them to memory that the plan owns. Afterwards, in-place writes and
 * gradients are copied back to the tensors that were passed in.
 */

import { noteWrite, Value, versionOf } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import { type ArrayCopy, copyArrays, type DeviceArray, formatShape, isSameShape } from "../../ops/index.js";
import { ownerOf, type Region } from "../../runtime/index.js";
import type { Device } from "../device.js";
import { LeafGradient } from "../leaf-gradient.js";
import { type DeviceValue, Tensor } from "../tensor.js";
import { placeSlots } from "./step-slots.js";

/** An input as the traced function sees it. */
export class TracedInput extends Tensor {
  constructor(deviceValue: DeviceValue, name: string, gradient: LeafGradient) {
    super(deviceValue, name);
    this.setGradientHolder(gradient);
  }
}

/** The effects of a call on one input. */
interface InputEffects {
  readonly isWritten: boolean;
  /** True if it requires a gradient after the call. */
  readonly requiresGrad: boolean;
  /** The gradient that the call leaves. */
  readonly gradient: DeviceArray | undefined;
}

export class StepInputs {
  readonly #device: Device;
  readonly #name: string;
  readonly #onRegion: (region: Region) => void;
  readonly #names: readonly string[];
  readonly #requireGrad: readonly boolean[];
  /** The storages that the inputs are copied to. */
  readonly slots: readonly DeviceArray[];
  /** The storages of their gradients; allocated when a gradient first arrives. */
  readonly #gradients: (DeviceArray | undefined)[] = [];
  #effects: readonly InputEffects[] = [];

  constructor(device: Device, name: string, inputs: readonly Tensor[], onRegion: (region: Region) => void) {
    this.#device = device;
    this.#name = name;
    this.#onRegion = onRegion;
    this.#names = inputs.map((input) => input.name);
    this.#requireGrad = inputs.map(({ requiresGrad }) => requiresGrad);
    const arrays = inputs.map(({ array }) => array);
    this.slots = placeSlots(device.runtime, `${name} inputs`, arrays, onRegion);
  }

  /** True if the plan fits these inputs. Runs at every call, so it builds no text. */
  isFor(inputs: readonly Tensor[]): boolean {
    if (this.slots.length !== inputs.length) return false;
    for (let index = 0; index < inputs.length; index++) {
      const [slot, input] = [this.slots[index], inputs[index]];
      if (!slot || !input || slot.dtype !== input.dtype || !isSameShape(slot.shape, input.shape))
        return false;
      if (input.requiresGrad !== this.#requireGrad[index]) return false;
    }
    return true;
  }

  /** Runs a trace with new tensors for the inputs, and records its effects on them. */
  trace<T>(body: (inputs: readonly Tensor[]) => T): T {
    const inputs = this.slots.map((slot, index) => this.#wrap(slot, index));
    const versions = this.slots.map(({ storage }) => versionOf(storage));
    const result = body(inputs);
    this.#effects = inputs.map(({ requiresGrad, gradientHolder }, index) => ({
      isWritten: versionOf(this.slots[index]?.storage) !== versions[index],
      requiresGrad,
      gradient: gradientHolder?.gradient,
    }));
    return result;
  }

  /** Copies a call's inputs to the plan's memory. */
  load(inputs: readonly Tensor[]): void {
    const copies: ArrayCopy[] = [];
    for (let index = 0; index < inputs.length; index++) {
      const [source, target] = [inputs[index]?.array, this.slots[index]];
      if (source && target) copies.push({ source, target });
    }
    if (this.#effects.some(({ isWritten }) => isWritten)) this.#requireDisjoint(inputs);
    copyArrays(this.#device.runtime, copies);
  }

  /**
   * Copies the effects of a call to its inputs. An input that was a result of this plan is dead now, because its memory holds the
   * new result.
   */
  deliver(inputs: readonly Tensor[]): void {
    const { persistent } = this.#device.runtime;
    for (const [index, { isWritten, requiresGrad, gradient }] of this.#effects.entries()) {
      const [input, slot] = [inputs[index], this.slots[index]];
      if (!input || !slot) continue;
      const { storage } = input.array;
      if (storage?.kind === "persistent" && !persistent.isLive(storage)) continue;
      if (isWritten) {
        copyArrays(this.#device.runtime, [{ source: slot, target: input.array }]);
        noteWrite(storage);
      }
      if (input.requiresGrad !== requiresGrad) input.requiresGrad = requiresGrad;
      if (gradient) input.gradientHolder?.accumulate(gradient);
    }
  }

  #wrap(slot: DeviceArray, index: number): TracedInput {
    const { runtime } = this.#device;
    const value = new Value(slot);
    const allocate = (): DeviceArray => {
      const [storage] = placeSlots(runtime, `${this.#name} input gradient ${index}`, [slot], this.#onRegion);
      this.#gradients[index] = storage;
      return storage ?? slot;
    };
    const gradient = new LeafGradient(runtime, () => this.#gradients[index] ?? allocate(), undefined, value);
    if (this.#requireGrad[index]) value.leaf = gradient;
    return new TracedInput({ device: this.#device, value }, this.#names[index] ?? "", gradient);
  }

  #requireDisjoint(inputs: readonly Tensor[]): void {
    for (const [index, { isWritten }] of this.#effects.entries()) {
      const written = inputs[index]?.array.storage;
      if (!isWritten || !written) continue;
      const other = inputs.findIndex(
        ({ array: { storage } }, candidate) =>
          candidate !== index && storage && ownerOf(storage) === ownerOf(written),
      );
      if (other < 0) continue;
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `Compiled ${this.#name} writes to input ${index} in place, and input ${other} shares its memory. Pass a copy of one: clone().`,
        { numbers: { input: index, other } },
      );
    }
  }
}

/** The dtypes and shapes of inputs as one text. */
export function keyOf(inputs: readonly Tensor[]): string {
  return inputs
    .map(
      ({ dtype, shape, requiresGrad }) =>
        `${dtype} ${formatShape(shape)}${requiresGrad ? " requiring a gradient" : ""}`,
    )
    .join(", ");
}
