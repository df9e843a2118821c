/** Methods of a device that create tensors from host values or memory, and write or keep their elements. */

import { noteWrite, Value } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Dtype } from "../../ir/index.js";
import {
  allocateArray,
  contiguousStrides,
  drawArray,
  formatShape,
  type Random,
  type Shape,
  sizeOf,
} from "../../ops/index.js";
import type { Storage } from "../../runtime/index.js";
import { defineMethods } from "../define-methods.js";
import { Device } from "../device.js";
import { encodeElements, type HostValues } from "../host-values.js";
import type { Draw } from "../seed.js";
import { Tensor } from "../tensor.js";
import { rejectDraw } from "../vmap/dispatch.js";

declare module "../device.js" {
  interface Device {
    /** The seed and counter of all random numbers of the device, in persistent memory. */
    readonly randomState: Tensor;

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
    fromHost(values: HostValues, shape: Shape, dtype: Dtype, label?: string): Tensor;

    /**
     * A tensor of values that are computed on the host after the device memory is allocated.
     *
     * @internal
     */
    make(values: () => HostValues, shape: Shape, dtype: Dtype, label?: string): Tensor;

    /**
     * Overwrites the elements of a contiguous float tensor with random values, which the device draws.
     *
     * @internal
     */
    drawInto(tensor: Tensor, random: Random, draw: Draw): void;

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
    write(tensor: Tensor, values: HostValues): void;

    /**
     * A tensor over existing memory.
     *
     * @internal
     */
    fromStorage(storage: Storage | undefined, shape: Shape, dtype: Dtype, name?: string): Tensor;

    /**
     * Lets a tensor outlive its step; used by `keep()`.
     *
     * @internal
     */
    keep(tensor: Tensor): Tensor;
  }
}

type ElementMethods = Pick<
  Device,
  "randomState" | "fromHost" | "make" | "drawInto" | "write" | "fromStorage" | "keep"
>;

const elementMethods: ElementMethods & ThisType<Device> = {
  get randomState(): Tensor {
    return new Tensor({ device: this, value: this.randomValue }, "random state");
  },

  fromHost(values, shape, dtype, label = "tensor") {
    return this.make(() => values, shape, dtype, label);
  },

  make(values, shape, dtype, label = "tensor") {
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
  },

  drawInto(tensor, random, draw) {
    rejectDraw();
    this.requireLive(tensor, "draw");
    const { array } = tensor;
    drawArray(this.runtime, array, random, draw);
    if (array.storage) noteWrite(array.storage);
  },

  write(tensor, values) {
    this.requireLive(tensor, "write");
    const { storage, dtype, shape } = tensor.array;
    if (values.length !== sizeOf(shape)) {
      throw new HoldfastError(
        "BAD_SHAPE",
        `"${tensor.name}" has shape ${formatShape(shape)}, but write() got ${values.length} elements for it.`,
      );
    }
    if (!storage) return;
    this.runtime.upload([{ source: encodeElements(values, dtype), target: storage }]);
    noteWrite(storage);
  },

  fromStorage(storage, shape, dtype, name) {
    const value = new Value({ shape, strides: contiguousStrides(shape), dtype, storage });
    return new Tensor({ device: this, value }, name);
  },

  keep(tensor) {
    this.requireLive(tensor, "keep");
    this.lifetimes.requireKeepable(tensor);
    const { source, cutBy } = tensor.value;
    const hadGraph = source !== undefined || cutBy === "compiled step";
    const kept = this.lifetimes.isStepResult(tensor) ? tensor.detach().clone() : tensor;
    this.lifetimes.keep(kept);
    return kept.cutOff(hadGraph ? "keep" : "keep without a graph");
  },
};

defineMethods(Device, elementMethods);

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
