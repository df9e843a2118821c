/**
 * Tensor: an array on a device, with its gradient. This file has its properties. Its methods are in methods/, one family per
 * file; each calls one entry of the op table.
 */

import { type Cut, retainsGradient, Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { type DeviceArray, isContiguous, type Shape, sizeOf } from "../ops/index.js";
import type { Device } from "./device.js";
import { describeTensor } from "./format/print.js";
import type { GradientHolder } from "./tensor-handle.js";

/** A value of the graph and the device that holds it. */
export interface DeviceValue {
  readonly device: Device;
  readonly value: Value;
}

/**
 * An n-dimensional array on a device.
 *
 * A tensor created inside a step dies at the end of the step; `keep()` prevents that. A tensor created outside a step lives
 * until it is released or its device is closed.
 *
 * @example
 * ```ts
 * import { device, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * const x = tensor([[1, 2], [3, 4]]);
 * console.log(x.mul(10).sum(0)); // → tensor([40. 60.], shape [2], f32, cpu)
 * console.log(cpu.step(() => x.matmul(x.t()).sum().item())); // → 52
 * cpu.close();
 * ```
 */
export class Tensor {
  #deviceValue: DeviceValue | undefined;
  #name: string | undefined;
  #holder: GradientHolder | undefined;

  constructor(deviceValue: DeviceValue | undefined, name?: string) {
    this.#deviceValue = deviceValue;
    this.#name = name;
  }

  /**
   * The device that has its memory and runs its ops.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1]);
   * console.log(x.device === cpu, x.device.name); // → true cpu
   * cpu.close();
   * ```
   */
  get device(): Device {
    return this.requireDeviceValue().device;
  }

  /**
   * Its value in the graph; for the layers above.
   *
   * @internal
   */
  get value(): Value {
    return this.requireDeviceValue().value;
  }

  /**
   * Its memory with shape, strides and dtype; for the layers above.
   *
   * @internal
   */
  get array(): DeviceArray {
    return this.value.array;
  }

  /**
   * The sizes of its axes; a single number has none.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const [rows, columns] = tensor([[1, 2, 3], [4, 5, 6]]).shape;
   * console.log(rows, columns, tensor(5).shape); // → 2 3 []
   * cpu.close();
   * ```
   */
  get shape(): Shape {
    return this.array.shape;
  }

  /**
   * The element type: f32, f64, bf16, f16, i64, i32, i8, u8 or bool.
   *
   * @example
   * ```ts
   * import { arange, device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([1, 2]).dtype, tensor([true]).dtype, arange(3).dtype); // → f32 bool i32
   * cpu.close();
   * ```
   */
  get dtype(): Dtype {
    return this.array.dtype;
  }

  /**
   * The number of axes.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2]]).ndim, tensor(3).ndim); // → 2 0
   * cpu.close();
   * ```
   */
  get ndim(): number {
    return this.shape.length;
  }

  /**
   * The number of elements.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([2, 3, 4]).numel, zeros([0, 5]).numel); // → 24 0
   * cpu.close();
   * ```
   */
  get numel(): number {
    return sizeOf(this.shape);
  }

  /**
   * A view with the axes in reverse order: the transpose of a matrix.
   *
   * @example
   * ```ts
   * import { device, tensor, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(tensor([[1, 2], [3, 4]]).T.tolist(), zeros([2, 3, 4]).T.shape); // → [ [ 1, 3 ], [ 2, 4 ] ] [ 4, 3, 2 ]
   * cpu.close();
   * ```
   */
  get T(): Tensor {
    return this.permute(this.shape.map((_, axis) => this.ndim - 1 - axis));
  }

  /**
   * A view with the last two axes exchanged: the transposes of a batch of matrices.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(zeros([5, 2, 3]).mT.shape); // → [ 5, 3, 2 ]
   * cpu.close();
   * ```
   */
  get mT(): Tensor {
    return this.transpose(-2, -1);
  }

  /**
   * True if its elements are in row-major order in memory, without gaps.
   *
   * @example
   * ```ts
   * import { device, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const x = zeros([2, 3]);
   * console.log(x.isContiguous, x.t().isContiguous, x.select(0, 1).isContiguous); // → true false true
   * cpu.close();
   * ```
   */
  get isContiguous(): boolean {
    return isContiguous(this.array);
  }

  /**
   * A name for messages: a parameter's path in its module, or the op that made the tensor.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2]);
   * x.name = "prices";
   * console.log(x.name, x.exp().name); // → prices exp
   * cpu.close();
   * ```
   */
  get name(): string {
    return this.#name ?? this.array.storage?.label ?? "empty";
  }

  set name(name: string) {
    this.#name = name;
  }

  /**
   * True if a gradient flows to or through this tensor. Set it on leaves: tensors that are not the result of a differentiable op.
   *
   * @example
   * ```ts
   * import { device, noGrad, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([1, 2]);
   * w.requiresGrad = true;
   * console.log(w.mul(3).requiresGrad, noGrad(() => w.mul(3)).requiresGrad); // → true false
   * cpu.close();
   * ```
   */
  get requiresGrad(): boolean {
    return this.value.requiresGrad;
  }

  /** Enables or disables the gradient; only for leaves. */
  set requiresGrad(isRequired: boolean) {
    const { value } = this.requireDeviceValue();
    if (value.source) {
      if (isRequired) return;
      throw new HoldfastError(
        "NO_GRADIENT",
        `"${this.name}" is the result of an op, so its gradient cannot be disabled. Use detach().`,
      );
    }
    if (!isRequired) {
      value.leaf = undefined;
      return;
    }
    value.leaf = this.accumulator();
  }

  /**
   * True if the user created it, not a recorded op.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([1, 2], { requiresGrad: true });
   * console.log(w.isLeaf, w.mul(2).isLeaf); // → true false
   * cpu.close();
   * ```
   */
  get isLeaf(): boolean {
    return this.value.source === undefined;
  }

  /**
   * True if it is the result of an op and `retainGrad()` was called on it.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * cpu.step(() => {
   *   const y = tensor([1, 2], { requiresGrad: true }).mul(3);
   *   const before = y.retainsGrad;
   *   y.retainGrad();
   *   console.log(before, y.retainsGrad); // → false true
   * });
   * cpu.close();
   * ```
   */
  get retainsGrad(): boolean {
    return retainsGradient(this.value);
  }

  /**
   * The gradient accumulated by backward(); null before the first backward(), and after zeroGrad().
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([1, 2], { requiresGrad: true });
   * for (let times = 0; times < 2; times++) w.mul(3).sum().backward();
   * console.log(w.grad?.tolist()); // → [ 6, 6 ]
   * cpu.close();
   * ```
   */
  get grad(): Tensor | null {
    const { gradient, source } = this.#holder ?? {};
    if (!gradient) return null;
    const value = new Value(gradient, source ? { source } : {});
    return new Tensor({ device: this.device, value }, `${this.name}.grad`);
  }

  /**
   * Its gradient and the memory of it; for the layers above.
   *
   * @internal
   */
  get gradientHolder(): GradientHolder | undefined {
    return this.#holder;
  }

  /**
   * What accumulates its gradient; for the layers above.
   *
   * @internal
   */
  accumulator(): GradientHolder {
    this.#holder ??= this.device.makeGradient(this);
    return this.#holder;
  }

  /**
   * The same memory, detached from the graph.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const w = tensor([2], { requiresGrad: true });
   * w.mul(w.detach()).sum().backward();
   * console.log(w.grad?.tolist()); // → [ 2 ]
   * cpu.close();
   * ```
   */
  detach(): Tensor {
    return this.cutOff("detach");
  }

  /**
   * The same memory without a graph, and the cause; for the layers above.
   *
   * @internal
   */
  cutOff(cutBy: Cut): Tensor {
    return new Tensor({ device: this.device, value: new Value(this.array, { cutBy }) }, this.#name);
  }

  /**
   * The elements as NumPy prints them, with shape, dtype and device; large ones are shortened.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * console.log(`${tensor([1, 2.5, -3], { requiresGrad: true })}`);
   * // → tensor([ 1.   2.5 -3. ], shape [3], f32, cpu, requires grad)
   * cpu.close();
   * ```
   */
  toString(): string {
    if (!this.#deviceValue) return `tensor("${this.#name ?? "parameter"}", on no device yet)`;
    const { shape, dtype, requiresGrad } = this;
    return describeTensor({
      shape,
      dtype,
      values: this.device.readExact(this),
      device: this.device.name,
      requiresGrad,
    });
  }

  /** Rejects JavaScript's operators: without this, `x + 1` would be a text, and `x < 1` would be false. `String(x)` and templates print. */
  [Symbol.toPrimitive](hint: "string" | "number" | "default"): string {
    if (hint === "string") return this.toString();
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "A tensor in an operator of JavaScript, such as + or <. Call methods instead, such as x.add(y) and x.lt(y). For the number of a tensor " +
        "with one element use item(), and for text String(x).",
    );
  }

  /** For console.log, the REPL and debuggers. A dead tensor prints why it is dead: an error here would hide the object that has it. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    try {
      return this.toString();
    } catch (error) {
      if (error instanceof HoldfastError && (error.code === "DEAD_TENSOR" || error.code === "CLOSED"))
        return `tensor(dead: ${error.message})`;
      throw error;
    }
  }

  /** Gives a tensor its memory; for parameters, which have none at first. */
  protected bind(deviceValue: DeviceValue): void {
    this.#deviceValue = deviceValue;
  }

  /** Sets the gradient; for tensors whose gradient has memory of its own. */
  protected setGradientHolder(holder: GradientHolder): void {
    this.#holder = holder;
  }

  protected requireDeviceValue(): DeviceValue {
    if (this.#deviceValue) return this.#deviceValue;
    throw new HoldfastError(
      "NO_DEVICE",
      `"${this.#name ?? "A parameter"}" is on no device yet. Move its module there first: model.to(cpu).`,
    );
  }
}
