/**
 * A parameter: a tensor that a module learns. It is created with its shape and initializer, and gets its memory when its module
 * moves to a device. The memory is persistent, has a constant address, and is next to the module's other parameters.
 */

import { Value } from "../autograd/index.js";
import { checkOptions } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { contiguousStrides, formatShape, type Shape } from "../ops/index.js";
import type { Storage } from "../runtime/index.js";
import { type Device, LeafGradient } from "../tensor/index.js";
import { type Initializer, ModuleTensor, requireShapeAndInitializer } from "./module-tensor.js";

/** Options of a `Parameter`. */
export interface ParameterOptions {
  readonly dtype?: Dtype;
  readonly requiresGrad?: boolean;
  readonly name?: string;
}

/** The storages of a parameter and its gradient. That of a frozen parameter is placed when it is first trained. */
export interface ParameterMemory {
  readonly weight: Storage;
  readonly gradient: Storage | (() => Storage);
}

/**
 * A tensor that a module learns: a shape and an initializer. `Module.to` places it.
 *
 * @example
 * ```ts
 * import { device, nn, ones, type Tensor } from "holdfast";
 * const cpu = await device("cpu");
 * class Shift extends nn.Module {
 *   readonly by = new nn.Parameter([2], nn.init.constant(0.5));
 *   forward(x: Tensor): Tensor {
 *     return x.add(this.by);
 *   }
 * }
 * console.log(new Shift().to(cpu).forward(ones([2])).tolist()); // → [ 1.5, 1.5 ]
 * cpu.close();
 * ```
 */
export class Parameter extends ModuleTensor {
  #requiresGrad: boolean;
  #gradient: ParameterMemory["gradient"] | undefined;

  /** The draw is taken here, so first values depend on the seed and the order in which parameters are created. */
  constructor(shape: Shape, initializer: Initializer, options: ParameterOptions = {}) {
    const given = checkOptions("nn.Parameter", options, { dtype: true, requiresGrad: true, name: true });
    requireShapeAndInitializer("nn.Parameter", shape, initializer);
    const { dtype = "f32", requiresGrad = true, name = `parameter ${formatShape(shape)}` } = given;
    super(shape, initializer, dtype, name);
    this.#requiresGrad = requiresGrad;
  }

  /**
   * True if it is trained. A frozen parameter gets no gradient.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(2, 1).to(cpu);
   * layer.weight.requiresGrad = false;
   * layer.forward(ones([1, 2])).sum().backward();
   * console.log(layer.weight.grad, layer.bias?.grad?.tolist()); // → null [ 1 ]
   * cpu.close();
   * ```
   */
  override get requiresGrad(): boolean {
    return this.isPlaced ? this.value.leaf !== undefined : this.#requiresGrad;
  }

  /** A frozen parameter gets no gradient, and optimizers skip it. */
  override set requiresGrad(requiresGrad: boolean) {
    this.#requiresGrad = requiresGrad;
    // Here, and not when the first gradient arrives: a compiled step can't place memory.
    if (requiresGrad) this.#gradientStorage();
    if (this.isPlaced) this.value.leaf = requiresGrad ? this.gradientHolder : undefined;
  }

  /**
   * Assigns the memory that its module has placed; the module writes the values.
   *
   * @internal
   */
  settleIn(device: Device, { weight, gradient }: ParameterMemory, dtype: Dtype): void {
    const { requiresGrad } = this;
    const strides = contiguousStrides(this.shape);
    const array = { shape: this.shape, strides, dtype, storage: weight };
    this.#gradient = gradient;
    const holder = new LeafGradient(device.runtime, () => ({ ...array, storage: this.#gradientStorage() }));
    this.settle({ device, value: new Value(array, requiresGrad ? { leaf: holder } : {}) }, dtype);
    this.setGradientHolder(holder);
  }

  /**
   * Forgets the memory of its gradient, which its module has freed.
   *
   * @internal
   */
  loseGradient(place: () => Storage): void {
    this.#gradient = place;
    this.gradientHolder?.release();
  }

  #gradientStorage(): Storage | undefined {
    const gradient = typeof this.#gradient === "function" ? this.#gradient() : this.#gradient;
    this.#gradient = gradient;
    return gradient;
  }
}
