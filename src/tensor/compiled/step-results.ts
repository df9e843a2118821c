/**
 * The results of a compiled step's plan. Each call copies them to memory that the plan owns, and returns new tensors. The next
 * call overwrites that memory, so tensors of earlier calls are dead.
 */

import { HoldfastError } from "../../errors/index.js";
import { submit } from "../../kernels/index.js";
import { copyCalls, type DeviceArray, formatShape } from "../../ops/index.js";
import type { Region } from "../../runtime/index.js";
import type { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import { ScalarRing } from "./scalar-ring.js";
import { placeSlots } from "./step-slots.js";

/** The result of a step: nothing, a tensor, or several by index or name. */
// biome-ignore lint/suspicious/noConfusingVoidType: a function without a return is what most steps are
export type StepResult = void | Tensor | readonly Tensor[] | Readonly<Record<string, Tensor>>;

/** The members of a compiled step that its results need. */
export interface ResultOwner {
  readonly name: string;
  /** The rings of its scalars, by name; created on first use. */
  readonly rings: Map<string, ScalarRing>;
  /** Called with scalars as they arrive at the host, with the name of the result. */
  onNumbers(result: string, numbers: readonly number[]): void;
}

/** The array of a result; its storage handle is new for every call. */
type Slot = { -readonly [key in keyof DeviceArray]: DeviceArray[key] };

export class StepResults {
  readonly #device: Device;
  readonly #owner: ResultOwner;
  readonly #shape: ResultShape;
  readonly #slots: readonly Slot[];
  /** The rings of this plan's scalars: other plans of the step may have others. */
  readonly #rings = new Set<ScalarRing>();

  /** Part of a trace: copies the results to memory that outlives the step. */
  constructor(device: Device, owner: ResultOwner, result: StepResult, onRegion: (region: Region) => void) {
    this.#device = device;
    this.#owner = owner;
    this.#shape = shapeOf(owner.name, result);
    const arrays = this.#shape.tensors.map(({ array }) => array);
    this.#slots = placeSlots(device.runtime, `${owner.name} results`, arrays, onRegion).map((slot) => ({
      ...slot,
    }));
    this.#store(this.#shape);
  }

  /** Part of an audit: repeats the copies to the same memory. */
  storeAgain(result: StepResult): void {
    const shape = shapeOf(this.#owner.name, result);
    if (describe(shape) !== describe(this.#shape)) {
      throw new HoldfastError(
        "STEP_CHANGED",
        `Compiled ${this.#owner.name} was traced again to check it, and no longer returns the same: now ${describe(shape)}, in the ` +
          `first trace ${describe(this.#shape)}. Make it return the same for the same inputs, or compile a step for each case.`,
      );
    }
    this.#store(shape);
  }

  /** The results of the last call. Results of earlier calls die. */
  next(): StepResult {
    const { names, hadGraph, rebuild } = this.#shape;
    const device = this.#device;
    const results: Tensor[] = [];
    for (const [index, slot] of this.#slots.entries()) {
      if (slot.storage) slot.storage = device.renewResult(slot.storage, this.#owner.name);
      const result = device.fromStorage(slot.storage, slot.shape, slot.dtype, names[index]);
      results.push(hadGraph[index] ? result.cutOff("compiled step") : result);
    }
    for (const ring of this.#rings) ring.noteCall();
    return rebuild(results);
  }

  #store({ keys, tensors }: ResultShape): void {
    const device = this.#device;
    for (const [index, tensor] of tensors.entries()) {
      const slot = this.#slots[index];
      if (!slot) continue;
      device.requireLive(tensor, `result of compiled ${this.#owner.name}`);
      submit(device.runtime, copyCalls(tensor.array, slot));
      if (tensor.numel !== 1) continue;
      const ring = this.#ringOf(keys[index] ?? "");
      ring.put(tensor.array);
      this.#rings.add(ring);
    }
  }

  #ringOf(result: string): ScalarRing {
    const { name, rings, onNumbers } = this.#owner;
    const existing = rings.get(result);
    if (existing) return existing;
    const { runtime } = this.#device;
    const ring = runtime.outsideTrace(
      () => new ScalarRing(runtime, `${name}.${result}`, (numbers) => onNumbers(result, numbers)),
    );
    rings.set(result, ring);
    return ring;
  }
}

interface ResultShape {
  /** The key of each tensor in the result, and its name. */
  readonly keys: readonly string[];
  readonly names: readonly string[];
  readonly tensors: readonly Tensor[];
  /** True for each tensor that had a graph inside the step. */
  readonly hadGraph: readonly boolean[];
  /** The same structure with other tensors. */
  rebuild(tensors: readonly Tensor[]): StepResult;
}

function shapeOf(name: string, result: StepResult): ResultShape {
  if (result === undefined) return resultShape([], [], () => undefined);
  if (result instanceof Tensor) return resultShape(["result"], [result], ([tensor]) => tensor);
  if (result instanceof Promise) {
    result.catch(() => undefined);
    throw new HoldfastError(
      "STEP_ASYNC",
      `Compiled ${name} is an async function, and work after its first await would not be traced. Await before the call.`,
    );
  }
  const isRecord = typeof result === "object" && result !== null;
  const keys = isRecord ? Object.keys(result) : [];
  const tensors: readonly Tensor[] = isRecord ? Object.values(result) : [result];
  for (const [index, item] of tensors.entries()) {
    if (item instanceof Tensor) continue;
    throw new HoldfastError(
      "NOT_TRACEABLE",
      `Compiled ${name} returns ${keys[index] === undefined ? "a" : `"${keys[index]}", a`} ${typeof item}, which would be the same after every call. Return ` +
        "tensors: one, a list, or an object of them.",
    );
  }
  const isList = Array.isArray(result);
  return resultShape(keys, tensors, (results) => (isList ? results : namedResults(keys, results)));
}

function namedResults(keys: readonly string[], results: readonly Tensor[]): Record<string, Tensor> {
  const record: Record<string, Tensor> = {};
  for (const [index, tensor] of results.entries()) record[keys[index] ?? ""] = tensor;
  return record;
}

function resultShape(
  keys: readonly string[],
  tensors: readonly Tensor[],
  rebuild: ResultShape["rebuild"],
): ResultShape {
  const names = tensors.map(({ name }) => name);
  const hadGraph = tensors.map(({ value }) => value.source !== undefined);
  return { keys, names, tensors, hadGraph, rebuild };
}

function describe({ keys, tensors }: ResultShape): string {
  const descriptions = tensors.map(
    ({ dtype, shape }, index) => `${keys[index]} ${dtype} ${formatShape(shape)}`,
  );
  return descriptions.join(", ") || "nothing";
}
