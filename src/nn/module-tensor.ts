/**
 * The base of parameters and buffers: a tensor of a module, which is created with its shape and initializer and gets persistent memory
 * when its module moves to a device.
 */

import { type GuardedField, stateChanged, tracing } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { formatShape, isDrawable, type Random, type Shape, sizeOf } from "../ops/index.js";
import { type DeviceValue, type Draw, nextDraw, Tensor } from "../tensor/index.js";

/** First values, row-major; a function of the shape and, for random ones, of the draw. */
export interface Initializer {
  (shape: Shape, draw: Draw): ArrayLike<number>;
  /**
   * The random values that the function returns, so that a device can draw them by itself. The initializers of `nn.init` have it.
   *
   * @internal
   */
  readonly random?: (shape: Shape) => Random;
  /**
   * True if all values are 0: placed memory has them already.
   *
   * @internal
   */
  readonly isZero?: boolean;
}

/** Rejects arguments that are not a shape and an initializer: in PyTorch a parameter is made of a tensor. */
export function requireShapeAndInitializer(type: string, shape: Shape, initializer: Initializer): void {
  if (Array.isArray(shape) && typeof initializer === "function") return;
  const values =
    type === "nn.Buffer" ? 'registerBuffer("name", x)' : `new ${type}(x.shape, () => x.dataSync())`;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${type} takes a shape and an initializer: new ${type}([3], nn.init.zeros()). For the values of a tensor x: ${values}.`,
  );
}

export abstract class ModuleTensor extends Tensor {
  readonly #shape: Shape;
  /**
   * The draw of its first values.
   *
   * @internal
   */
  readonly draw: Draw;
  #initializer: Initializer;
  #dtype: Dtype;
  #isPlaced = false;
  #place: DeviceValue | undefined;
  static readonly #placeField: GuardedField<ModuleTensor> = {
    read: (tensor) => tensor.#place,
    write: (tensor, place) => {
      tensor.#place = place as DeviceValue;
    },
  };

  /** The draw is taken here, so first values depend on the seed and the order in which parameters and buffers are created. */
  constructor(shape: Shape, initializer: Initializer, dtype: Dtype, name: string) {
    super(undefined, name);
    this.#shape = shape;
    this.draw = nextDraw();
    this.#initializer = initializer;
    this.#dtype = dtype;
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
   * The element type. Default: f32, or as set by its options or `Module.to`.
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
   * True if it is on a device.
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
   * Its first values, computed on the host. A device that the parameter is moved to has the same values, without a copy from the host if
   * the initializer is one of `nn.init`.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Parameter([2], () => [0.5, 1.5]).initialValues()); // → [ 0.5, 1.5 ]
   * ```
   */
  initialValues(): ArrayLike<number> {
    return this.#initializer(this.#shape, this.draw);
  }

  /**
   * Sets another initializer; a placed parameter is overwritten.
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
    if (!this.#isPlaced) return;
    const random = this.initialRandom(this.#dtype);
    if (random) this.device.drawInto(this, random, this.draw);
    else this.device.write(this, this.initialValues());
  }

  /**
   * The random values that a device can draw as first values of a dtype; undefined if the host must compute them.
   *
   * @internal
   */
  initialRandom(dtype: Dtype): Random | undefined {
    return isDrawable(dtype) ? this.#initializer.random?.(this.#shape) : undefined;
  }

  /**
   * True if all first values are 0.
   *
   * @internal
   */
  get startsAsZeros(): boolean {
    return this.#initializer.isZero === true;
  }

  /**
   * Sets its memory, which its module has placed.
   *
   * @internal
   */
  protected settle(place: DeviceValue, dtype: Dtype): void {
    this.#dtype = dtype;
    this.bind(place);
    this.#place = place;
    stateChanged();
    this.#isPlaced = true;
  }

  /** Its memory is guarded in a trace: `Module.to` may place it again. */
  protected override requireDeviceValue(): DeviceValue {
    if (!this.#isPlaced) throw this.#unplaced();
    const place = super.requireDeviceValue();
    tracing.guards?.noteRead(this, ModuleTensor.#placeField, place, () => `the memory of "${this.name}"`);
    return place;
  }

  /**
   * The number of elements.
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
      `"${this.name}" is not on a device yet. Move its module first: model.to(cpu). If you did, the model did not ` +
        "find it. A module searches fields, arrays, plain objects, Maps and Sets, but not #private fields or " +
        "other objects. Make the field public, or call this.registerModule(name, layer) or this.registerParameter(name, parameter).",
      { numbers: { shape: formatShape(this.#shape) } },
    );
  }
}
