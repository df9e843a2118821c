/** The lifetime of a tensor's memory: kept beyond its step, released, dead; and of its gradient. */

import { tracing } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { allocateArray, type DeviceArray, formatShape, isFloat } from "../ops/index.js";
import { ownerOf, type Runtime, type Storage } from "../runtime/index.js";
import { LeafGradient } from "./leaf-gradient.js";
import type { GradientHolder, TensorHandle } from "./tensor-handle.js";

/** Advice for keep() inside a compiled step. */
const keepOutside =
  "Tensors of a compiled step are in its plan's memory. Return the tensor, and call keep() on the result outside the step.";

export class Lifetimes {
  readonly #runtime: Runtime;
  /** The number of keep() calls without a release(), by storage. */
  readonly #kept = new WeakMap<Storage, number>();
  /** Results of compiled steps, live and dead, with the name of the step. */
  readonly #results = new WeakMap<Storage, string>();

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** Rejects keep() inside a trace. */
  requireKeepable({ name }: TensorHandle): void {
    this.#runtime.traceSink?.reject("call keep()", name, keepOutside);
  }

  /** True for results of compiled steps. Their memory belongs to the step, so keep() copies them. */
  isStepResult({ value }: TensorHandle): boolean {
    const { storage } = value.array;
    return storage !== undefined && this.#results.has(ownerOf(storage));
  }

  /** Keeps a tensor's memory beyond its step. */
  keep({ name, value }: TensorHandle): void {
    const { storage } = value.array;
    if (storage?.kind !== "step") return;
    this.#runtime.arena.pin(storage, `keep() of ${name}`);
    this.#kept.set(storage, (this.#kept.get(storage) ?? 0) + 1);
  }

  renewResult(storage: Storage, step: string): Storage {
    const renewed = this.#runtime.persistent.renew(storage);
    this.#results.set(renewed, step);
    return renewed;
  }

  /** Undoes one `keep`, but no other pin. Frees a tensor that was not kept. */
  release(tensor: TensorHandle): void {
    const { storage } = tensor.value.array;
    if (storage?.kind !== "step") return;
    const { arena } = this.#runtime;
    const kept = this.#kept.get(storage) ?? 0;
    if (kept > 0) {
      arena.unpin(storage);
      this.#kept.set(storage, kept - 1);
    }
    if (kept > 1) return;
    // A tensor of a finished step dies with its last pin; other tensors are freed here.
    if (kept === 0 || stepOf(storage) === 0) {
      if (storage.owner) arena.dropView(storage);
      else arena.free(storage);
    }
    tensor.gradientHolder?.release();
  }

  /** The gradient storage of a leaf, with the lifetime of the leaf. */
  makeGradient(tensor: TensorHandle, openStep: number): GradientHolder {
    const { shape, dtype, storage } = tensor.value.array;
    if (!isFloat(dtype)) {
      throw new HoldfastError(
        "NO_GRADIENT",
        `"${tensor.name}" is ${dtype}, and only floats have gradients. Make it with dtype "f32".`,
      );
    }
    const isStepMemory = openStep > 0 && storage?.kind === "step" && stepOf(storage) === openStep;
    // A leaf that a trace makes of persistent memory ends with the trace, and so does its gradient.
    const diesWithStep = isStepMemory || tracing.guards?.hasCreated(tensor.value) === true;
    const { arena } = this.#runtime;
    const allocate = (): DeviceArray => allocateArray(this.#runtime, shape, dtype, `${tensor.name}.grad`);
    const allocateForLifetime = (): DeviceArray => {
      if (diesWithStep) return allocate();
      return this.#runtime.outsideTrace(() => {
        const array = allocate();
        if (array.storage) arena.pin(array.storage, `gradient of ${tensor.name}`);
        return array;
      });
    };
    const free = ({ storage: pinned }: DeviceArray): void => {
      if (!pinned || diesWithStep) return;
      arena.unpin(pinned);
      if (arena.isLive(pinned) && stepOf(pinned) === 0) arena.free(pinned);
    };
    return new LeafGradient(this.#runtime, allocateForLifetime, free, tensor.value);
  }

  /** Rejects a dead tensor. The error has its name, its op and the step in which it died. */
  requireLive(tensor: TensorHandle, use: string): void {
    const { storage, shape, dtype } = tensor.value.array;
    if (!storage || this.#isLive(storage)) return;
    const compiledStep = this.#results.get(ownerOf(storage));
    if (compiledStep !== undefined) {
      throw new HoldfastError(
        "DEAD_TENSOR",
        `${use}: tensor "${tensor.name}", ${dtype} ${formatShape(shape)}, is a result of compiled ${compiledStep}, which has been called again ` +
          "or closed since: its memory holds other values. Read it before the next call, or copy it with keep().",
        { numbers: { op: storage.label, step: compiledStep } },
      );
    }
    const step = stepOf(storage);
    const death = step > 0 ? `died at the end of step ${step}` : "was released";
    const origin = `made by ${storage.label}${step > 0 ? ` in step ${step}` : ""}`;
    throw new HoldfastError(
      "DEAD_TENSOR",
      `${use}: tensor "${tensor.name}", ${dtype} ${formatShape(shape)}, ${origin}, ${death}. ` +
        "Use it inside its step, or keep it beyond the step with keep().",
      { numbers: { op: storage.label, step } },
    );
  }

  #isLive(storage: Storage): boolean {
    const { arena, persistent } = this.#runtime;
    return storage.kind === "step" ? arena.isLive(storage) : persistent.isLive(storage);
  }
}

/** The step of a storage or a view; 0 outside steps. */
function stepOf(storage: Storage): number {
  return (storage as Storage & { readonly step?: number }).step ?? 0;
}
