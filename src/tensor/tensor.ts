/**
 * Tensor: what users touch. The class holds what a tensor is; its ops come in families, one record of methods a file,
 * and each method is one call of an op-table entry.
 */

import { type Leaf, Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { type Dtype, type ElementArray, viewElements } from "../kernels/index.js";
import {
  allocateArray,
  copyArray,
  type DeviceArray,
  formatShape,
  isContiguous,
  type Shape,
  sizeOf,
} from "../ops/index.js";
import type { Device } from "./device.js";
import { numberAt } from "./host-values.js";
import { elementwiseMethods } from "./methods/elementwise.js";
import { inPlaceMethods } from "./methods/in-place.js";
import { indexingMethods } from "./methods/indexing.js";
import { movementMethods } from "./methods/movement.js";
import { reductionMethods } from "./methods/reduction.js";
import { type NestedList, toNested } from "./nested.js";
import { describeTensor } from "./print.js";

/** Where a tensor is: its device, and its place in the graph. */
export interface TensorPlace {
  readonly device: Device;
  readonly value: Value;
}

/** A leaf that hands out what has arrived. */
export interface GradientHolder extends Leaf {
  readonly gradient: DeviceArray | undefined;
  clear(): void;
}

/**
 * An n-dimensional array on a device.
 *
 * Made inside a step it dies at the step's end, unless kept; made outside it lives until it is released or its device
 * is closed.
 */
// biome-ignore lint/suspicious/noUnsafeDeclarationMerging: every method of the interface is assigned to the prototype below
export class Tensor {
  #place: TensorPlace | undefined;
  #name: string | undefined;
  #holder: GradientHolder | undefined;

  constructor(place: TensorPlace | undefined, name?: string) {
    this.#place = place;
    this.#name = name;
  }

  get device(): Device {
    return this.requirePlace().device;
  }

  /** The tensor's place in the graph; for the layers above. */
  get value(): Value {
    return this.requirePlace().value;
  }

  get array(): DeviceArray {
    return this.value.array;
  }

  /** The sizes of its axes; a single number has none. */
  get shape(): Shape {
    return this.array.shape;
  }

  get dtype(): Dtype {
    return this.array.dtype;
  }

  /** How many axes it has. */
  get ndim(): number {
    return this.shape.length;
  }

  /** How many elements it has. */
  get numel(): number {
    return sizeOf(this.shape);
  }

  get isContiguous(): boolean {
    return isContiguous(this.array);
  }

  /** A name for messages: a parameter's path in its module, or the op that made the tensor. */
  get name(): string {
    return this.#name ?? this.array.storage?.label ?? "empty";
  }

  set name(name: string) {
    this.#name = name;
  }

  /** Does a gradient flow to or through this tensor? */
  get requiresGrad(): boolean {
    return this.value.requiresGrad;
  }

  /** Ask for a gradient, or no longer; only for tensors that no op with a gradient has made. */
  set requiresGrad(wanted: boolean) {
    const { value, device } = this.requirePlace();
    if (value.source) {
      if (wanted) return;
      throw new HoldfastError(
        "NO_GRADIENT",
        `"${this.name}" was made by an op, so its gradient can't be switched off. Use detach().`,
      );
    }
    if (!wanted) {
      value.leaf = undefined;
      return;
    }
    this.#holder ??= device.makeGradient(this);
    value.leaf = this.#holder;
  }

  /** Was it made by the user and not by a recorded op? */
  get isLeaf(): boolean {
    return this.value.source === undefined;
  }

  /** What backward() has added up here so far; null before anything has arrived, and after zeroGrad(). */
  get grad(): Tensor | null {
    const gradient = this.#holder?.gradient;
    return gradient
      ? new Tensor({ device: this.device, value: new Value(gradient) }, `${this.name}.grad`)
      : null;
  }

  /** Where the gradient arrives; for the layers above. */
  get gradientHolder(): GradientHolder | undefined {
    return this.#holder;
  }

  zeroGrad(): void {
    this.#holder?.clear();
  }

  /**
   * Sends a gradient back from here: 1 for a single number, or the given one, which has this tensor's shape.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const x = tensor([1, 2, 3], { requiresGrad: true });
   * x.mul(x).sum().backward();
   * console.log(x.grad?.tolist()); // → [ 2, 4, 6 ]
   * cpu.close();
   * ```
   */
  backward(gradient?: Tensor, options: { readonly retainGraph?: boolean } = {}): void {
    this.device.backward(this, gradient, options);
  }

  /** The elements on the host, in order, behind all work issued so far. Half floats come as f32. */
  async data(): Promise<ElementArray<"f32" | "f64" | "i32" | "u8">> {
    return this.dataSync();
  }

  /** `data()` without the promise. */
  dataSync(): ElementArray<"f32" | "f64" | "i32" | "u8"> {
    return this.device.readElements(this);
  }

  /** The value of a tensor of one element. */
  item(): number {
    if (this.numel !== 1) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `item() of "${this.name}" with shape ${formatShape(this.shape)}: it has ${this.numel} elements, and item() reads one. ` +
          "Use data() or tolist().",
      );
    }
    return numberAt(this.dataSync(), 0);
  }

  /** The elements as nested arrays, or one number. */
  tolist(): NestedList {
    return toNested(this.shape, this.dataSync(), this.dtype === "bool" ? "boolean" : "float");
  }

  /** The same memory, cut off from the graph. */
  detach(): Tensor {
    return new Tensor({ device: this.device, value: new Value(this.array) }, this.#name);
  }

  /**
   * Carries a tensor out of its step: its memory stays until `release()`, and it is cut off from the graph, which ends
   * with the step.
   *
   * @example
   * ```ts
   * import { device, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * const kept = cpu.step(() => tensor([1, 2]).mul(3).keep());
   * console.log(kept.tolist()); // → [ 3, 6 ]
   * cpu.close();
   * ```
   */
  keep(): Tensor {
    this.device.keep(this);
    return this.detach();
  }

  /** Ends a kept tensor's memory, or that of one made outside every step. */
  release(): void {
    this.device.release(this);
  }

  toString(): string {
    const place = this.#place;
    if (!place) return `tensor("${this.#name ?? "parameter"}", on no device yet)`;
    const { shape, dtype, requiresGrad } = this;
    return describeTensor({ shape, dtype, values: this.dataSync(), device: place.device.name, requiresGrad });
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }

  /** Puts a tensor that had none in its place; for parameters. */
  protected settle(place: TensorPlace): void {
    this.#place = place;
  }

  /** Where a gradient that was placed elsewhere arrives; for parameters. */
  protected settleGradient(holder: GradientHolder): void {
    this.#holder = holder;
  }

  protected requirePlace(): TensorPlace {
    if (this.#place) return this.#place;
    throw new HoldfastError(
      "NO_DEVICE",
      `"${this.#name ?? "A parameter"}" is on no device yet. Move its module there first: model.to(cpu).`,
    );
  }
}

// The families' methods stand on the prototype; the interface tells the compiler so.
export interface Tensor extends Families {}

type Families = typeof elementwiseMethods &
  typeof inPlaceMethods &
  typeof reductionMethods &
  typeof movementMethods &
  typeof indexingMethods;

const families = [elementwiseMethods, inPlaceMethods, reductionMethods, movementMethods, indexingMethods];
for (const family of families) {
  for (const [name, method] of Object.entries(family)) {
    Object.defineProperty(Tensor.prototype, name, { value: method, writable: true, configurable: true });
  }
}

/** An array's elements on the host: contiguous, and half floats widened. */
export function readArray(device: Device, array: DeviceArray): ElementArray<"f32" | "f64" | "i32" | "u8"> {
  const { runtime } = device;
  const dtype = array.dtype === "bf16" || array.dtype === "f16" ? "f32" : array.dtype;
  const isPlain = dtype === array.dtype && isContiguous(array);
  if (!array.storage) return viewElements(dtype, new Uint8Array(0)) as ElementArray<"f32">;
  if (isPlain) return viewElements(dtype, runtime.read(array.storage)) as ElementArray<"f32">;
  const copy = allocateArray(runtime, array.shape, dtype, "read-back");
  copyArray(runtime, array, copy);
  if (!copy.storage) return viewElements(dtype, new Uint8Array(0)) as ElementArray<"f32">;
  const bytes = runtime.read(copy.storage);
  runtime.arena.free(copy.storage);
  return viewElements(dtype, bytes) as ElementArray<"f32">;
}
