/** Methods of a device that run ops of the table on tensors, forward and backward. */

import type { Cut, Value } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import {
  type Attributes,
  type DeviceArray,
  formatShape,
  isSameShape,
  type Op,
  sizeOf,
} from "../../ops/index.js";
import { defineMethods } from "../define-methods.js";
import { Device } from "../device.js";
import { Tensor } from "../tensor.js";

type Operands = readonly (Tensor | number)[];

declare module "../device.js" {
  interface Device {
    /**
     * Calls an op of the table and returns its first output; used by Tensor's methods.
     *
     * @internal
     */
    apply<A extends Attributes>(op: Op<A>, operands: Operands, attributes?: A): Tensor;

    /**
     * Calls an op of the table and returns all outputs.
     *
     * @internal
     */
    applyAll<A extends Attributes>(op: Op<A>, operands: Operands, attributes?: A): readonly Tensor[];

    /**
     * Calls an op whose result replaces the target's elements.
     *
     * @internal
     */
    applyInPlace<A extends Attributes, T extends Tensor>(
      op: Op<A>,
      target: T,
      operands: Operands,
      attributes?: A,
    ): T;

    /**
     * A tensor for a value of the graph.
     *
     * @internal
     */
    wrap(value: Value): Tensor;

    /**
     * Runs backward from a tensor; used by `backward()`.
     *
     * @internal
     */
    backward(root: Tensor, gradient: Tensor | undefined, options: { readonly retainGraph?: boolean }): void;
  }
}

type OpMethods = Pick<Device, "apply" | "applyAll" | "applyInPlace" | "wrap" | "backward">;

const opMethods: OpMethods & ThisType<Device> = {
  apply<A extends Attributes>(op: Op<A>, operands: Operands, attributes: A = {} as A): Tensor {
    return this.wrap(this.tape.apply(op, valuesOf(this, op.name, operands), attributes));
  },

  applyAll<A extends Attributes>(op: Op<A>, operands: Operands, attributes: A = {} as A): readonly Tensor[] {
    const values = this.tape.run(op, valuesOf(this, op.name, operands), attributes);
    return values.map((value) => this.wrap(value));
  },

  applyInPlace<A extends Attributes, T extends Tensor>(
    op: Op<A>,
    target: T,
    operands: Operands,
    attributes: A = {} as A,
  ): T {
    this.requireLive(target, `${op.name} in place`);
    this.tape.applyInPlace(op, target.value, valuesOf(this, op.name, operands), attributes);
    return target;
  },

  wrap(value: Value): Tensor {
    return new Tensor({ device: this, value });
  },

  backward(root: Tensor, gradient: Tensor | undefined, options: { readonly retainGraph?: boolean }): void {
    this.requireLive(root, "backward");
    const { value } = root;
    if (!value.requiresGrad) {
      throw new HoldfastError(
        "NO_GRADIENT",
        `backward() of "${root.name}": ${whyNoGraph[value.cutBy ?? "none"]}`,
      );
    }
    this.tape.backward(value, initialGradient(this, root, gradient), options);
  },
};

defineMethods(Device, opMethods);

function valuesOf(device: Device, op: string, operands: Operands): (Value | number)[] {
  return operands.map((operand) => {
    if (typeof operand === "number") return operand;
    if (!(operand instanceof Tensor)) throw notAnOperand(op, operand);
    if (operand.device !== device) {
      throw new HoldfastError(
        "OTHER_DEVICE",
        `${op}: "${operand.name}" is on another device than the first operand. Create both on one device.`,
        { numbers: { op } },
      );
    }
    device.requireLive(operand, op);
    return operand.value;
  });
}

/** The gradient that backward starts from: the argument, or 1 for a single number. */
function initialGradient(device: Device, root: Tensor, gradient: Tensor | undefined): DeviceArray {
  const { shape, dtype } = root;
  if (gradient) {
    device.requireLive(gradient, "backward");
    if (isSameShape(gradient.shape, shape) && gradient.dtype === dtype) return gradient.array;
    throw new HoldfastError(
      "BAD_SHAPE",
      `backward() of ${dtype} ${formatShape(shape)} got a gradient of ${gradient.dtype} ${formatShape(gradient.shape)}; ` +
        "pass a gradient with the shape and dtype of the tensor.",
    );
  }
  const scalarOne = device.seeds.oneOf(dtype);
  if (scalarOne && sizeOf(shape) === 1) return { ...scalarOne, shape, strides: shape.map(() => 0) };
  throw new HoldfastError(
    "BAD_SHAPE",
    `backward() of shape ${formatShape(shape)}: without a gradient it starts from a single number. ` +
      "Reduce it first, with sum() or mean(), or pass a gradient of that shape.",
  );
}

/** TypeScript rejects this at compile time; JavaScript does not. */
function notAnOperand(op: string, operand: unknown): HoldfastError {
  const kind = Array.isArray(operand) ? "an array" : operand === null ? "null" : typeof operand;
  return new HoldfastError(
    "BAD_ARGUMENT",
    `${op} takes tensors and numbers, but got ${kind}. Create a tensor from arrays: tensor([1, 2]).`,
    { numbers: { op } },
  );
}

/** Why a tensor has no graph, and what to do. */
const nothingRequiresOne =
  "none of its inputs requires a gradient. Set requiresGrad on the inputs, and compute it outside noGrad().";
const whyNoGraph: Readonly<Record<Cut | "none", string>> = {
  none: nothingRequiresOne,
  "keep without a graph": nothingRequiresOne,
  detach: "it is detached from its graph. Call backward() on the tensor that detach() was called on.",
  keep: "keep() has detached it from its graph, which ends with its step. Call backward() inside the step, before keep().",
  "compiled step":
    "it is a result of a compiled step, and its graph ended with the step. Call backward() inside the compiled function.",
};
