/**
 * A parameter: a tensor that a module learns. It is made with its shape and the way its first values are drawn, and gets
 * its memory when its module moves to a device: persistent, at one address for life, beside the module's others.
 */

import { Value } from "../autograd/index.js";
import type { Dtype } from "../kernels/index.js";
import { contiguousStrides, type Shape, sizeOf } from "../ops/index.js";
import type { Storage } from "../runtime/index.js";
import { type Device, LeafGradient, nextDraw, Tensor } from "../tensor/index.js";

/** The seed and the number of one draw; what is drawn follows from these alone. */
export type Draw = ReturnType<typeof nextDraw>;

/** First values, row by row; a function of the shape and, for random ones, of the draw. */
export type Initializer = (shape: Shape, draw: Draw) => ArrayLike<number>;

export interface ParameterOptions {
  readonly dtype?: Dtype;
  readonly requiresGrad?: boolean;
  readonly name?: string;
}

/** The memory of one parameter: where it and its gradient lie. */
export interface ParameterMemory {
  readonly weight: Storage;
  readonly gradient: Storage;
}

/** A tensor that a module learns; placed by `Module.to`. */
export class Parameter extends Tensor {
  readonly #shape: Shape;
  readonly #draw: Draw;
  #initializer: Initializer;
  #dtype: Dtype;
  #requiresGrad: boolean;
  #isPlaced = false;

  /** The draw is taken here, so first values follow from the seed and the order in which parameters are made. */
  constructor(
    shape: Shape,
    initializer: Initializer,
    { dtype = "f32", requiresGrad = true, name = "parameter" }: ParameterOptions = {},
  ) {
    super(undefined, name);
    this.#shape = shape;
    this.#draw = nextDraw();
    this.#initializer = initializer;
    this.#dtype = dtype;
    this.#requiresGrad = requiresGrad;
  }

  override get shape(): Shape {
    return this.#shape;
  }

  override get dtype(): Dtype {
    return this.#dtype;
  }

  override get requiresGrad(): boolean {
    return this.#requiresGrad;
  }

  /** A frozen parameter gets no gradient, and optimizers leave it alone. */
  override set requiresGrad(wanted: boolean) {
    this.#requiresGrad = wanted;
    if (this.#isPlaced) this.value.leaf = wanted ? this.gradientHolder : undefined;
  }

  get isPlaced(): boolean {
    return this.#isPlaced;
  }

  /** The values that it starts from. */
  initialValues(): ArrayLike<number> {
    return this.#initializer(this.#shape, this.#draw);
  }

  /** Gives it other first values; where it is placed already they are written there. */
  initialize(initializer: Initializer): void {
    this.#initializer = initializer;
    if (this.#isPlaced) this.device.write(this, this.initialValues());
  }

  /** Puts the parameter into memory that its module has placed; the values are written by the module. */
  settleIn(device: Device, { weight, gradient }: ParameterMemory, dtype: Dtype): void {
    this.#dtype = dtype;
    const strides = contiguousStrides(this.#shape);
    const array = { shape: this.#shape, strides, dtype, storage: weight };
    const holder = new LeafGradient(device.runtime, () => ({ ...array, storage: gradient }));
    this.settle({ device, value: new Value(array, this.#requiresGrad ? { leaf: holder } : {}) });
    this.settleGradient(holder);
    this.#isPlaced = true;
  }

  override get numel(): number {
    return sizeOf(this.#shape);
  }
}
