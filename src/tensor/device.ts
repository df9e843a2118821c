/** An open device: it owns tensors, and its steps end them. */

import { type Cut, noteWrite, Tape, Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Dtype, ElementArray } from "../ir/index.js";
import {
  type Attributes,
  allocateArray,
  contiguousStrides,
  type DeviceArray,
  formatShape,
  isSameShape,
  type Op,
  type Shape,
  sizeOf,
} from "../ops/index.js";
import { openRuntime, type Runtime, type RuntimeOptions, type Storage } from "../runtime/index.js";
import { type CompiledStep, type CompileOptions, compileStep } from "./compiled/compiled-step.js";
import type { StepResult } from "./compiled/step-results.js";
import { DeviceSeeds } from "./device-seeds.js";
import { encodeElements } from "./host-values.js";
import { Lifetimes } from "./lifetimes.js";
import { rejectNaN } from "./nan-check.js";
import { noteClosed, noteOpened } from "./open-devices.js";
import { currentSeed, onNewSeed } from "./seed.js";
import { type GradientHolder, readArray, Tensor } from "./tensor.js";

/** A kind of device. */
export type DeviceName = "cpu" | "cuda";

/** Options of `device()`. */
export interface DeviceOptions extends Omit<RuntimeOptions, "device"> {
  /** Reject the first op, forward or backward, whose result has a NaN. Reads every result back: for debugging. */
  readonly detectNaN?: boolean;
}

/**
 * An open device: where tensors live, and whose steps end them. `device("cpu")` opens one.
 *
 * @example
 * ```ts
 * import { device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const total = cpu.step(() => ones([1000]).sum().item());
 * console.log(total, cpu.runtime.diagnostics().arena.live); // → 1000 0
 * cpu.close();
 * ```
 */
export class Device {
  readonly name: DeviceName;
  readonly runtime: Runtime;
  readonly tape: Tape;
  /** The seed and counter of all random numbers of the device, in persistent memory. */
  readonly randomState: Tensor;
  readonly #seeds: DeviceSeeds;
  readonly #lifetimes: Lifetimes;
  readonly #forgetSeed: () => void;
  #step = 0;
  #isOpen = true;

  constructor(name: DeviceName, { detectNaN = false, ...options }: DeviceOptions = {}) {
    this.name = name;
    this.runtime = openRuntime({ ...options, device: name });
    try {
      const onResult = detectNaN ? rejectNaN(this.runtime) : undefined;
      this.tape = new Tape({ runtime: this.runtime, ...(onResult && { onResult }) });
      this.#seeds = new DeviceSeeds(this.runtime);
      this.#lifetimes = new Lifetimes(this.runtime);
      this.randomState = new Tensor(
        { device: this, value: new Value(this.#seeds.randomState) },
        "random state",
      );
      this.reseed(currentSeed());
      this.#forgetSeed = onNewSeed((seed) => this.reseed(seed));
    } catch (error) {
      // The device has no owner yet who could close it.
      this.runtime.close();
      throw error;
    }
    noteOpened(this);
  }

  /**
   * True until it is closed.
   *
   * @example
   * ```ts
   * import { device } from "holdfast";
   * const cpu = await device("cpu");
   * const wasOpen = cpu.isOpen;
   * cpu.close();
   * console.log(wasOpen, cpu.isOpen); // → true false
   * ```
   */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /**
   * Runs one step. Every tensor made inside dies at its end, all at once, unless it is kept; so does what was recorded
   * for backward. The function must be synchronous: await before or after the step.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([3, 4]);
   * const length = cpu.step(() => x.square().sum().sqrt().item());
   * console.log(length); // → 5
   * cpu.close();
   * ```
   */
  step<T>(body: (step: number) => T): T {
    return this.runtime.step((step) => {
      this.#step = step;
      const mark = this.tape.position();
      try {
        return body(step);
      } finally {
        this.#step = 0;
        this.tape.release(mark);
      }
    });
  }

  /**
   * Makes a step's function one launch: its first call traces it, plans its memory, verifies the plan and captures it, and
   * later calls replay it. The same code as in `step`, and the same numbers.
   *
   * Calls with other shapes get plans of their own, and so does another state of modules and parameters: train or eval mode,
   * `requiresGrad`, fields that the function read. Rates of optimizers and random numbers are read from memory each time.
   * Anything else that the function reads is frozen; a step that changes by it is rejected with STEP_CHANGED.
   *
   * @example
   * ```ts
   * import { device, optim, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([8], { requiresGrad: true });
   * const sgd = new optim.SGD([w], { lr: 0.25 });
   * const step = cpu.compile((x) => {
   *   const loss = w.mul(x).square().sum();
   *   loss.backward();
   *   sgd.step();
   *   sgd.zeroGrad();
   *   return { loss };
   * });
   * const x = tensor([1]);
   * const losses = [1, 2, 3].map(() => step(x).loss.item());
   * console.log(losses, w.tolist()); // → [ 64, 16, 4 ] [ 1 ]
   * cpu.close();
   * ```
   */
  compile<I extends readonly Tensor[], R extends StepResult>(
    body: (...inputs: I) => R,
    options: CompileOptions = {},
  ): CompiledStep<I, R> {
    return compileStep(this, body, options);
  }

  /**
   * Runs a function as a traced step.
   *
   * @internal
   */
  inTracedStep<T>(body: () => T): T {
    const mark = this.tape.position();
    const outer = this.#step;
    this.#step = this.runtime.nextStep;
    try {
      return body();
    } finally {
      this.#step = outer;
      this.tape.release(mark);
    }
  }

  /**
   * Restarts the device's random numbers, which dropout uses; `manualSeed` does so for all devices.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const draw = () => nn.functional.dropout(ones([8])).tolist();
   * cpu.reseed(7n);
   * const first = String(draw());
   * cpu.reseed(7n);
   * console.log(String(draw()) === first); // → true
   * cpu.close();
   * ```
   */
  reseed(seed: bigint): void {
    this.#seeds.reseed(seed);
  }

  /**
   * Calls an op of the table and returns its first output; used by Tensor's methods.
   *
   * @internal
   */
  apply<A extends Attributes>(
    op: Op<A>,
    operands: readonly (Tensor | number)[],
    attributes: A = {} as A,
  ): Tensor {
    return this.wrap(this.tape.apply(op, this.#valuesOf(op.name, operands), attributes));
  }

  /**
   * Calls an op of the table and returns all outputs.
   *
   * @internal
   */
  applyAll<A extends Attributes>(
    op: Op<A>,
    operands: readonly (Tensor | number)[],
    attributes: A = {} as A,
  ): readonly Tensor[] {
    const values = this.tape.run(op, this.#valuesOf(op.name, operands), attributes);
    return values.map((value) => this.wrap(value));
  }

  /**
   * Calls an op whose result replaces the target's elements.
   *
   * @internal
   */
  applyInPlace<A extends Attributes, T extends Tensor>(
    op: Op<A>,
    target: T,
    operands: readonly (Tensor | number)[],
    attributes: A = {} as A,
  ): T {
    this.requireLive(target, `${op.name} in place`);
    this.tape.applyInPlace(op, target.value, this.#valuesOf(op.name, operands), attributes);
    return target;
  }

  /**
   * A tensor for a value of the graph.
   *
   * @internal
   */
  wrap(value: Value): Tensor {
    return new Tensor({ device: this, value });
  }

  /**
   * A tensor with these elements, in row-major order.
   *
   * @example
   * ```ts
   * import { device } from "holdfast";
   * const cpu = await device("cpu");
   * const x = cpu.fromHost(new Float32Array([1, 2, 3, 4]), [2, 2], "bf16");
   * console.log(x.tolist(), x.dtype); // → [ [ 1, 2 ], [ 3, 4 ] ] bf16
   * cpu.close();
   * ```
   */
  fromHost(values: ArrayLike<number>, shape: Shape, dtype: Dtype, label = "tensor"): Tensor {
    return this.make(() => values, shape, dtype, label);
  }

  /**
   * A tensor of values that are computed on the host after the device memory is allocated.
   *
   * @internal
   */
  make(values: () => ArrayLike<number>, shape: Shape, dtype: Dtype, label = "tensor"): Tensor {
    this.requireOpen();
    const array = allocateArray(this.runtime, shape, dtype, label);
    const { storage } = array;
    if (!storage) return this.wrap(new Value(array));
    try {
      this.runtime.upload([{ source: encodeElements(values(), dtype), target: storage }]);
      return this.wrap(new Value(array));
    } catch (error) {
      this.runtime.arena.free(storage);
      throw error instanceof RangeError ? tooLargeForHost(shape, dtype, error) : error;
    }
  }

  /**
   * Overwrites the elements of a contiguous tensor, at its address.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const x = zeros([2, 2]);
   * cpu.write(x, [1, 2, 3, 4]);
   * console.log(x.tolist()); // → [ [ 1, 2 ], [ 3, 4 ] ]
   * cpu.close();
   * ```
   */
  write(tensor: Tensor, values: ArrayLike<number>): void {
    this.requireLive(tensor, "write");
    const { storage, dtype, shape } = tensor.array;
    if (values.length !== sizeOf(shape)) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `"${tensor.name}" has shape ${formatShape(shape)} and was given ${values.length} elements to hold.`,
      );
    }
    if (!storage) return;
    this.runtime.upload([{ source: encodeElements(values, dtype), target: storage }]);
    noteWrite(storage);
  }

  /**
   * A tensor over existing memory.
   *
   * @internal
   */
  fromStorage(storage: Storage | undefined, shape: Shape, dtype: Dtype, name?: string): Tensor {
    const value = new Value({ shape, strides: contiguousStrides(shape), dtype, storage });
    return new Tensor({ device: this, value }, name);
  }

  /**
   * Runs backward from a tensor; used by `backward()`.
   *
   * @internal
   */
  backward(root: Tensor, gradient: Tensor | undefined, options: { readonly retainGraph?: boolean }): void {
    this.requireLive(root, "backward");
    const { value } = root;
    if (!value.requiresGrad) {
      throw new HoldfastError(
        "NO_GRADIENT",
        `backward() of "${root.name}": ${whyNoGraph[value.cutBy ?? "none"]}`,
      );
    }
    this.tape.backward(value, this.#seedOf(root, gradient), options);
  }

  /**
   * Reads a tensor's elements; used by `dataSync()`.
   *
   * @internal
   */
  readElements(tensor: Tensor): ElementArray<"f32" | "f64" | "i32" | "u8"> {
    this.requireLive(tensor, "read-back");
    return readArray(this, tensor.array);
  }

  /**
   * Lets a tensor outlive its step; used by `keep()`.
   *
   * @internal
   */
  keep(tensor: Tensor): Tensor {
    this.requireLive(tensor, "keep");
    return this.#lifetimes.keep(tensor);
  }

  /**
   * A new handle to the memory of a compiled step's result; tensors over the old one are dead.
   *
   * @internal
   */
  renewResult(storage: Storage, step: string): Storage {
    return this.#lifetimes.renewResult(storage, step);
  }

  /**
   * Frees a tensor's memory; used by `release()`.
   *
   * @internal
   */
  release(tensor: Tensor): void {
    this.requireLive(tensor, "release");
    this.#lifetimes.release(tensor);
  }

  /**
   * The gradient storage of a leaf, with the leaf's lifetime.
   *
   * @internal
   */
  makeGradient(tensor: Tensor): GradientHolder {
    return this.#lifetimes.makeGradient(tensor, this.#step);
  }

  /**
   * Rejects a dead tensor, by its name, its op and the step in which it died.
   *
   * @internal
   */
  requireLive(tensor: Tensor, use: string): void {
    this.requireOpen();
    this.#lifetimes.requireLive(tensor, use);
  }

  /**
   * Rejects work on a closed device.
   *
   * @internal
   */
  requireOpen(): void {
    if (this.#isOpen) return;
    throw new HoldfastError(
      "CLOSED",
      `Device "${this.name}" is closed, and its tensors with it. Open a new one.`,
    );
  }

  /**
   * Closes the device and ends every tensor on it. Idempotent.
   *
   * @example
   * ```ts
   * import { device, HoldfastError, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const x = ones([2]);
   * cpu.close();
   * try {
   *   x.tolist();
   * } catch (error) {
   *   if (error instanceof HoldfastError) console.log(error.code); // → CLOSED
   * }
   * ```
   */
  close(): void {
    if (!this.#isOpen) return;
    this.tape.release();
    this.#isOpen = false;
    this.#forgetSeed();
    noteClosed(this);
    this.runtime.close();
  }

  #valuesOf(op: string, operands: readonly (Tensor | number)[]): (Value | number)[] {
    return operands.map((operand) => {
      if (typeof operand === "number") return operand;
      if (!(operand instanceof Tensor)) throw notAnOperand(op, operand);
      const { device } = operand;
      if (device !== this) {
        throw new HoldfastError(
          "OTHER_DEVICE",
          `${op}: "${operand.name}" is on another device than the first operand. Create both on one device.`,
          { numbers: { op } },
        );
      }
      this.requireLive(operand, op);
      return operand.value;
    });
  }

  #seedOf(root: Tensor, gradient: Tensor | undefined): DeviceArray {
    const { shape, dtype } = root;
    if (gradient) {
      this.requireLive(gradient, "backward");
      if (isSameShape(gradient.shape, shape) && gradient.dtype === dtype) return gradient.array;
      throw new HoldfastError(
        "BAD_SHAPE",
        `backward() of ${dtype} ${formatShape(shape)} was given a gradient of ${gradient.dtype} ${formatShape(gradient.shape)}; ` +
          "it has to have the tensor's own shape and dtype.",
      );
    }
    const one = this.#seeds.oneOf(dtype);
    if (one && sizeOf(shape) === 1) return { ...one, shape, strides: shape.map(() => 0) };
    throw new HoldfastError(
      "BAD_SHAPE",
      `backward() of shape ${formatShape(shape)}: without a gradient it starts from a single number. ` +
        "Reduce it first, with sum() or mean(), or pass a gradient of that shape.",
    );
  }
}

/** TypeScript rejects this at compile time; JavaScript does not. */
function notAnOperand(op: string, given: unknown): HoldfastError {
  const what = Array.isArray(given) ? "an array" : given === null ? "null" : typeof given;
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${op} takes tensors and numbers, but got ${what}. Create a tensor from arrays: tensor([1, 2]).`,
    { numbers: { op } },
  );
}

/**
 * Opens a device: "cpu", "cuda" for an NVIDIA GPU, or "auto" for the first GPU that can be used and else the CPU. "cuda"
 * without one is an error that says what is missing.
 *
 * @example
 * ```ts
 * import { device, tensor } from "holdfast";
 * const cpu = await device("cpu", { memory: "512MiB" });
 * console.log(tensor([1, 2, 3]).sum().item()); // → 6
 * cpu.close();
 * ```
 */
export async function device(name: DeviceName | "auto", options: DeviceOptions = {}): Promise<Device> {
  if (name === "cpu" || name === "cuda") return new Device(name, options);
  if (name !== "auto") {
    throw new HoldfastError(
      "UNSUPPORTED",
      `There is no device "${name}". There are "cuda", "cpu", and "auto" for the first of them that works.`,
    );
  }
  try {
    return new Device("cuda", options);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === "NO_CUDA") return new Device("cpu", options);
    throw error;
  }
}

/** Why a tensor has no graph, and what to do. */
const nothingRequiresOne =
  "nothing that it was made of requires a gradient. Set requiresGrad on the inputs, and compute it outside noGrad().";
const whyNoGraph: Readonly<Record<Cut | "none", string>> = {
  none: nothingRequiresOne,
  "keep without a graph": nothingRequiresOne,
  detach: "it is cut off from any graph. Call backward() on the tensor that detach() was called on.",
  keep: "keep() has cut it off from its graph, which ends with its step. Call backward() inside the step, before keep().",
  "compiled step":
    "it is a result of a compiled step, and its graph ended with the step. Call backward() inside the compiled function.",
};

/** V8's error for an allocation that is too large has neither the shape nor advice. */
function tooLargeForHost(shape: Shape, dtype: Dtype, cause: RangeError): HoldfastError {
  const elements = sizeOf(shape);
  return new HoldfastError(
    "OUT_OF_MEMORY",
    `A tensor of ${formatShape(shape)} has ${elements} elements of ${dtype}. The host has no memory to upload them ` +
      `(${cause.message}). Create smaller tensors.`,
    { numbers: { elements }, cause },
  );
}
