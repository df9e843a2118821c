/** A buffer: a tensor of a module that is not learned, such as running statistics. It moves to a device with its module. */

import { Value } from "../autograd/index.js";
import { checkOptions } from "../errors/index.js";
import { type Dtype, dtypes } from "../ir/index.js";
import { contiguousStrides, formatShape, type Shape } from "../ops/index.js";
import type { Storage } from "../runtime/index.js";
import type { Device } from "../tensor/index.js";
import { type Initializer, ModuleTensor, requireShapeAndInitializer } from "./module-tensor.js";

/** Options of a `Buffer`. */
export interface BufferOptions {
  /** Default: f32. */
  readonly dtype?: Dtype;
  /** In the module's state dict. Default: true. */
  readonly persistent?: boolean;
  /** `Module.to` with a half float converts it to f32, not to that dtype: for statistics. Default: false. */
  readonly staysF32?: boolean;
  readonly name?: string;
}

/**
 * A tensor of a module that is not learned: a shape and an initializer. `Module.to` places it, and converts it if it has floats.
 *
 * @example
 * ```ts
 * import { device, nn, type Tensor, tensor } from "holdfast";
 * const cpu = await device("cpu");
 * class Total extends nn.Module {
 *   readonly seen = new nn.Buffer([2], nn.init.zeros());
 *   forward(x: Tensor): Tensor {
 *     return this.seen.add_(x);
 *   }
 * }
 * const total = new Total().to(cpu);
 * for (const x of [tensor([1, 2]), tensor([3, 4])]) total.forward(x);
 * console.log(total.stateDict()["seen"]?.tolist(), total.parameters().length); // → [ 4, 6 ] 0
 * cpu.close();
 * ```
 */
export class Buffer extends ModuleTensor {
  static {
    // A bundler renames the class, because Node has a Buffer too.
    Object.defineProperty(Buffer, "name", { value: "Buffer" });
  }

  /** True if it is in the module's state dict. */
  readonly persistent: boolean;
  readonly #staysF32: boolean;

  constructor(shape: Shape, initializer: Initializer, options: BufferOptions = {}) {
    const given = checkOptions("nn.Buffer", options, {
      dtype: true,
      persistent: true,
      staysF32: true,
      name: true,
    });
    requireShapeAndInitializer("nn.Buffer", shape, initializer);
    const {
      dtype = "f32",
      persistent = true,
      staysF32 = false,
      name = `buffer ${formatShape(shape)}`,
    } = given;
    super(shape, initializer, dtype, name);
    this.persistent = persistent;
    this.#staysF32 = staysF32;
  }

  /**
   * The dtype that it gets when its module is converted to a dtype.
   *
   * @internal
   */
  dtypeAs(dtype: Dtype | undefined): Dtype {
    if (dtype === undefined || dtypes[this.dtype].kind !== "float" || dtypes[dtype].kind !== "float")
      return this.dtype;
    return this.#staysF32 && dtypes[dtype].bytes < 4 ? "f32" : dtype;
  }

  /**
   * Assigns the memory that its module has placed; the module writes the values.
   *
   * @internal
   */
  settleIn(device: Device, storage: Storage, dtype: Dtype): void {
    const { shape } = this;
    this.settle(
      { device, value: new Value({ shape, strides: contiguousStrides(shape), dtype, storage }) },
      dtype,
    );
  }
}
