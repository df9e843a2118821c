/**
 * An open device: it owns the memory of tensors, and its steps end them. Its methods that take or return tensors are in
 * device-methods/ and compiled/, because tensors import their device.
 */

import { Tape, Value } from "../autograd/index.js";
import { localGpu } from "../distributed/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import { compareOnDevice } from "../kernels/index.js";
import {
  type Diagnostics,
  openRuntime,
  type Runtime,
  type RuntimeOptions,
  type Storage,
} from "../runtime/index.js";
import { AutocastMode } from "./autocast-mode.js";
import { DeviceSeeds } from "./device-seeds.js";
import type { GradientExchange } from "./gradient-exchange.js";
import { asExactNumbers } from "./host-values.js";
import { Lifetimes } from "./lifetimes.js";
import { rejectNaN } from "./nan-check.js";
import { type ExactElements, type HostElements, readArray } from "./read-array.js";
import { currentSeed, onNewSeed } from "./seed.js";
import type { GradientHolder, TensorHandle } from "./tensor-handle.js";

/** A kind of device. */
export type DeviceName = "cpu" | "cuda";

/** Options of `device()`. */
export interface DeviceOptions extends Omit<RuntimeOptions, "device"> {
  /** Reject the first op, forward or backward, whose result has a NaN. Reads every result back: for debugging. */
  readonly detectNaN?: boolean;
}

/** The result of a function that must not be async: no promise has this type. */
export type Synchronous<T> = T extends PromiseLike<unknown> ? never : T;

const openDevices = new Set<Device>();

/**
 * An open device: it has the memory of tensors and runs their ops. `device("cpu")` opens one.
 *
 * @example
 * ```ts
 * import { device, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const total = cpu.step(() => ones([1000]).sum().item());
 * console.log(total, cpu.diagnostics().arena.live); // → 1000 0
 * cpu.close();
 * ```
 */
export class Device {
  readonly name: DeviceName;
  /**
   * Memory, transfers and launches; for the layers above and for `holdfast/internals`.
   *
   * @internal
   */
  readonly runtime: Runtime;
  /**
   * The ops that are recorded for backward.
   *
   * @internal
   */
  readonly tape: Tape;
  /**
   * The state of the random numbers, and the 1 of each dtype that backward starts from.
   *
   * @internal
   */
  readonly seeds: DeviceSeeds;
  /**
   * The random state as a value of the graph.
   *
   * @internal
   */
  readonly randomValue: Value;
  /**
   * The lifetimes of its tensors.
   *
   * @internal
   */
  readonly lifetimes: Lifetimes;
  /**
   * The autocast region that it is in.
   *
   * @internal
   */
  readonly autocastMode = new AutocastMode();
  /**
   * Averages gradients over ranks, in the function of a step that is compiled with the option `parallel`.
   *
   * @internal
   */
  gradientExchange: GradientExchange | undefined;
  readonly #stopListeningToSeed: () => void;
  #step = 0;
  #isOpen = true;

  constructor(name: DeviceName, { detectNaN = false, ...options }: DeviceOptions = {}) {
    this.name = name;
    this.runtime = openRuntime({ index: localGpu, ...options, device: name });
    try {
      compareOnDevice(this.runtime);
      const onResult = detectNaN ? rejectNaN(this.runtime) : undefined;
      this.tape = new Tape({
        runtime: this.runtime,
        ...(onResult && { onResult }),
        isRandomState: (storage) => storage === this.seeds.randomState.storage,
      });
      this.seeds = new DeviceSeeds(this.runtime);
      this.lifetimes = new Lifetimes(this.runtime);
      this.randomValue = new Value(this.seeds.randomState);
      this.reseed(currentSeed());
      this.#stopListeningToSeed = onNewSeed((seed) => this.reseed(seed));
    } catch (error) {
      // No caller has the device yet, so nothing else would close the runtime.
      this.runtime.close();
      throw error;
    }
    openDevices.add(this);
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
   * Runs one step. At its end, every tensor created inside dies, except those that `keep()` was called on. Ops recorded for
   * backward end too. The function must be synchronous: await before or after the step. An async one is an error of types, and at run time.
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
  step<T>(body: (step: number) => Synchronous<T>): T {
    return this.runtime.step((step): T => {
      this.#step = step;
      const start = this.tape.position();
      try {
        return body(step);
      } finally {
        this.#step = 0;
        this.tape.release(start);
      }
    });
  }

  /**
   * Runs a function as a traced step.
   *
   * @internal
   */
  inTracedStep<T>(body: () => T): T {
    const start = this.tape.position();
    const outer = this.#step;
    this.#step = this.runtime.nextStep;
    try {
      return body();
    } finally {
      this.#step = outer;
      this.tape.release(start);
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
    this.seeds.reseed(seed);
  }

  /**
   * The state of the device's memory: the budget, the arena of the steps, and the transfers so far.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu", { memory: "512MiB" });
   * const x = ones([1000]);
   * const { budget, arena } = cpu.diagnostics();
   * console.log(budget.limit, arena.live >= 4000, budget.usedByLabel["data set"]); // → 536870912 true 0
   * x.release();
   * cpu.close();
   * ```
   */
  diagnostics(): Diagnostics {
    return this.runtime.diagnostics();
  }

  /**
   * Waits until the device has finished all work issued so far. Use it before you read a clock; reading a tensor waits anyway.
   *
   * @example
   * ```ts
   * import { device, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const x = ones([64, 64]);
   * const startedAt = performance.now();
   * x.matmul(x);
   * cpu.synchronize();
   * console.log(performance.now() > startedAt); // → true
   * cpu.close();
   * ```
   */
  synchronize(): void {
    this.requireOpen();
    this.runtime.synchronize();
  }

  /**
   * Reads a tensor's elements; used by `dataSync()`.
   *
   * @internal
   */
  readElements(tensor: TensorHandle): HostElements {
    const elements = this.readExact(tensor);
    return elements instanceof BigInt64Array ? asExactNumbers(elements, tensor.name) : elements;
  }

  /**
   * Reads a tensor's elements, those of i64 as bigints.
   *
   * @internal
   */
  readExact(tensor: TensorHandle): ExactElements {
    this.requireLive(tensor, "read-back");
    return readArray(this.runtime, tensor.value.array);
  }

  /**
   * A new handle to the memory of a compiled step's result; tensors with the old handle are dead.
   *
   * @internal
   */
  renewResult(storage: Storage, step: string): Storage {
    return this.lifetimes.renewResult(storage, step);
  }

  /**
   * Frees a tensor's memory; used by `release()`.
   *
   * @internal
   */
  release(tensor: TensorHandle): void {
    this.requireLive(tensor, "release");
    this.lifetimes.release(tensor);
  }

  /**
   * The gradient storage of a leaf, with the leaf's lifetime.
   *
   * @internal
   */
  makeGradient(tensor: TensorHandle): GradientHolder {
    return this.lifetimes.makeGradient(tensor, this.#step);
  }

  /**
   * Rejects a dead tensor. The error has its name, its op and the step in which it died.
   *
   * @internal
   */
  requireLive(tensor: TensorHandle, use: string): void {
    this.requireOpen();
    this.lifetimes.requireLive(tensor, use);
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
      `Device "${this.name}" is closed, and its tensors are dead. Open a new device.`,
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
    this.#stopListeningToSeed();
    openDevices.delete(this);
    this.runtime.close();
  }
}

/** The default device for new tensors: of the open devices, the one opened first. */
export function defaultDevice(): Device {
  for (const first of openDevices) return first;
  throw new HoldfastError("NO_DEVICE", 'No device is open. Open one first: const cpu = await device("cpu").');
}

/** The device that an option names, or the default one. Rejects all but open devices, for callers in JavaScript. */
export function deviceFor(given: Device | undefined): Device {
  return given === undefined ? defaultDevice() : requireDevice("The option device", given);
}

/** Rejects a name of a device and anything else that is none. */
export function requireDevice(what: string, given: unknown): Device {
  if (given instanceof Device) return given;
  const kind = typeof given === "string" ? `"${given}"` : given === null ? "null" : `of type ${typeof given}`;
  const [variable, name] = given === "cpu" ? ["cpu", "cpu"] : ["gpu", "cuda"];
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${what} is ${kind}. Pass an open device: const ${variable} = await device("${name}") opens one; then pass ${variable}.`,
  );
}

/**
 * Opens a device: "cpu", "cuda" for an NVIDIA GPU, or "auto" for the first usable GPU, else the CPU. If "cuda" finds no usable
 * GPU, the error says what is missing.
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
  checkOptions("device", options, {
    detectNaN: true,
    memory: true,
    arena: true,
    staging: true,
    poison: true,
    capture: true,
    onRejectedPlan: true,
    verifyUploads: true,
    stallAfter: true,
    onStall: true,
    reports: true,
    log: true,
    precision: true,
    cache: true,
    cudaPath: true,
    threads: true,
    blas: true,
    print: true,
    index: true,
    driver: true,
    environment: true,
    hostRoot: true,
    clock: true,
    chunk: true,
  });
  if (name === "cpu" || name === "cuda") return new Device(name, options);
  if (name !== "auto") {
    throw new HoldfastError(
      "UNSUPPORTED",
      `There is no device "${name}". Use "cuda", "cpu", or "auto" for the first of the two that works.`,
    );
  }
  try {
    return new Device("cuda", options);
  } catch (error) {
    if (error instanceof HoldfastError && error.code === "NO_CUDA") return new Device("cpu", options);
    throw error;
  }
}
