/**
 * A parameter: a tensor that a module learns. It is made with its shape and the way its first values are drawn, and gets
 * its memory when its module moves to a device: persistent, at one address for life, beside the module's others.
 */

import { type GuardedField, stateChanged, tracing, Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { contiguousStrides, formatShape, type Shape, sizeOf } from "../ops/index.js";
import type { Storage } from "../runtime/index.js";
import { type Device, LeafGradient, nextDraw, Tensor, type TensorPlace } from "../tensor/index.js";

/** The seed and the number of one draw; what is drawn follows from these alone. */
export type Draw = ReturnType<typeof nextDraw>;

/** First values, row by row; a function of the shape and, for random ones, of the draw. */
export type Initializer = (shape: Shape, draw: Draw) => ArrayLike<number>;

/** Options of a `Parameter`. */
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

/**
 * A tensor that a module learns: a shape and the way its first values are drawn. `Module.to` places it.
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
export class Parameter extends Tensor {
  readonly #shape: Shape;
  readonly #draw: Draw;
  #initializer: Initializer;
  #dtype: Dtype;
  #requiresGrad: boolean;
  #isPlaced = false;
  #place: TensorPlace | undefined;
  static readonly #placeField: GuardedField<Parameter> = {
    read: (parameter) => parameter.#place,
    write: (parameter, place) => {
      parameter.#place = place as TensorPlace;
    },
  };

  /** The draw is taken here, so first values follow from the seed and the order in which parameters are made. */
  constructor(
    shape: Shape,
    initializer: Initializer,
    { dtype = "f32", requiresGrad = true, name = `parameter ${formatShape(shape)}` }: ParameterOptions = {},
  ) {
    super(undefined, name);
    this.#shape = shape;
    this.#draw = nextDraw();
    this.#initializer = initializer;
    this.#dtype = dtype;
    this.#requiresGrad = requiresGrad;
  }

  /**
   * The sizes of its axes; known before it is placed.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Linear(3, 2).weight.shape); // → [ 2, 3 ]
   * ```
   */
  override get shape(): Shape {
    return this.#shape;
  }

  /**
   * What an element is; f32 unless its options or `Module.to` say otherwise.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Parameter([2], nn.init.zeros(), { dtype: "bf16" }).dtype); // → bf16
   * ```
   */
  override get dtype(): Dtype {
    return this.#dtype;
  }

  /**
   * Does it learn? A frozen one gets no gradient.
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
    return this.#isPlaced ? this.value.leaf !== undefined : this.#requiresGrad;
  }

  /** A frozen parameter gets no gradient, and optimizers leave it alone. */
  override set requiresGrad(wanted: boolean) {
    this.#requiresGrad = wanted;
    if (this.#isPlaced) this.value.leaf = wanted ? this.gradientHolder : undefined;
  }

  /**
   * Is it on a device yet?
   *
   * @example
   * ```ts
   * import { device, nn } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(2, 1);
   * const before = layer.weight.isPlaced;
   * layer.to(cpu);
   * console.log(before, layer.weight.isPlaced); // → false true
   * cpu.close();
   * ```
   */
  get isPlaced(): boolean {
    return this.#isPlaced;
  }

  /**
   * The values that it starts from.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Parameter([2], () => [0.5, 1.5]).initialValues()); // → [ 0.5, 1.5 ]
   * ```
   */
  initialValues(): ArrayLike<number> {
    return this.#initializer(this.#shape, this.#draw);
  }

  /**
   * Gives it other first values; where it is placed already they are written there.
   *
   * @example
   * ```ts
   * import { device, nn } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(2, 2).to(cpu);
   * layer.bias?.initialize(nn.init.zeros());
   * console.log(layer.bias?.tolist()); // → [ 0, 0 ]
   * cpu.close();
   * ```
   */
  initialize(initializer: Initializer): void {
    this.#initializer = initializer;
    if (this.#isPlaced) this.device.write(this, this.initialValues());
  }

  /**
   * Puts the parameter into memory that its module has placed; the values are written by the module.
   *
   * @internal
   */
  settleIn(device: Device, { weight, gradient }: ParameterMemory, dtype: Dtype): void {
    const { requiresGrad } = this;
    this.#dtype = dtype;
    const strides = contiguousStrides(this.#shape);
    const array = { shape: this.#shape, strides, dtype, storage: weight };
    const holder = new LeafGradient(device.runtime, () => ({ ...array, storage: gradient }));
    const place = { device, value: new Value(array, requiresGrad ? { leaf: holder } : {}) };
    this.settle(place);
    this.#place = place;
    stateChanged();
    this.settleGradient(holder);
    this.#isPlaced = true;
  }

  /** Where it lies is guarded in a trace: `Module.to` may place it anew. */
  protected override requirePlace(): TensorPlace {
    if (!this.#isPlaced) throw this.#unplaced();
    const place = super.requirePlace();
    tracing.guards?.noteRead(this, Parameter.#placeField, place, () => `the memory of "${this.name}"`);
    return place;
  }

  /**
   * How many numbers it learns.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Linear(3, 2).weight.numel); // → 6
   * ```
   */
  override get numel(): number {
    return sizeOf(this.#shape);
  }

  #unplaced(): HoldfastError {
    return new HoldfastError(
      "NO_DEVICE",
      `"${this.name}" is on no device yet. Move its module there first: model.to(cpu). If that was done, the model did not ` +
        "find it. A module looks into fields, arrays, plain objects, Maps and Sets; it can't see #private fields or into " +
        "other objects. Make the field public, or call this.registerModule(name, layer) or this.registerParameter(name, parameter).",
      { numbers: { shape: formatShape(this.#shape) } },
    );
  }
}
