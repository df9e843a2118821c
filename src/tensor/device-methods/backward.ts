/** Methods of a device that differentiate tensors. */

import { type Accumulator, type Cut, type Leaf, type Root, Value } from "../../autograd/index.js";
import { HoldfastError, type OptionNames } from "../../errors/index.js";
import { formatShape, isSameShape, sizeOf } from "../../ops/index.js";
import { defineMethods } from "../define-methods.js";
import { Device } from "../device.js";
import type { GradientExchange } from "../gradient-exchange.js";
import { Tensor } from "../tensor.js";
import { gradOfMembers } from "../vmap/grad.js";

/** Options of `backward()`. */
export interface BackwardOptions {
  /** Keep the saved tensors, for another pass through the same graph. Default: the value of `createGraph`. */
  readonly retainGraph?: boolean;
  /** Record backward, so that the gradients can be differentiated. */
  readonly createGraph?: boolean;
  /** The only tensors that accumulate a gradient. Default: all leaves. */
  readonly inputs?: readonly Tensor[];
}

export const backwardOptionNames: OptionNames<BackwardOptions> = {
  retainGraph: true,
  createGraph: true,
  inputs: true,
};

declare module "../device.js" {
  interface Device {
    /**
     * Runs backward from tensors; used by `backward()`.
     *
     * @internal
     */
    backward(
      roots: readonly Tensor[],
      gradients: readonly (Tensor | null | undefined)[],
      options: BackwardOptions,
    ): void;

    /**
     * The gradients of inputs; used by `autograd.grad`.
     *
     * @internal
     */
    grad(
      roots: readonly Tensor[],
      gradients: readonly (Tensor | null | undefined)[],
      inputs: readonly Tensor[],
      options: Omit<BackwardOptions, "inputs">,
    ): readonly (Tensor | null)[];

    /**
     * Hands the gradients of leaves to functions, each as soon as it is complete. The leaves accumulate none.
     *
     * @internal
     */
    deliverGradients(root: Tensor, receivers: ReadonlyMap<Leaf, (gradient: Tensor) => void>): void;
  }
}

const backwardMethods: Pick<Device, "backward" | "grad" | "deliverGradients"> & ThisType<Device> = {
  backward(roots, gradients, all) {
    const { inputs, ...options } = all;
    const seeded = rootsOf(this, "backward", roots, gradients);
    if (this.gradientExchange && exchangeGradients(this, this.gradientExchange, seeded, all)) return;
    const accumulators = inputs?.map((input): Accumulator => {
      requireGraph(this, "backward", input);
      return { value: input.value, into: input.accumulator() };
    });
    this.tape.backward(seeded, {
      ...options,
      ...(accumulators && { inputs: accumulators }),
    });
  },

  grad(roots, gradients, inputs, options) {
    const members = gradOfMembers(this, roots, gradients, inputs, options);
    if (members) return members;
    for (const input of inputs) requireGraph(this, "grad", input);
    const values = inputs.map(({ value }) => value);
    const results = this.tape.grad(rootsOf(this, "grad", roots, gradients), values, options);
    return results.map((value) => (value ? this.wrap(value) : null));
  },

  deliverGradients(root, receivers) {
    const taking = Array.from(
      receivers,
      ([leaf, receive]) => [leaf, (value: Value) => receive(this.wrap(value))] as const,
    );
    this.tape.deliver(rootsOf(this, "backward", [root], []), new Map(taking));
  },
};

/** A backward pass in a step of several ranks. False if this pass exchanges nothing. */
function exchangeGradients(
  device: Device,
  exchange: GradientExchange,
  roots: readonly Root<Value>[],
  { inputs, createGraph, ...options }: BackwardOptions,
): boolean {
  const reached = device.tape.leavesOf(roots);
  const leaves = inputs?.map((input): Leaf => input.accumulator()) ?? reached;
  const delivery = exchange.begin(leaves.filter((leaf) => reached.includes(leaf)));
  if (!delivery) return false;
  if (createGraph || inputs?.some(({ isLeaf }) => !isLeaf))
    throw new HoldfastError(
      "BAD_ARGUMENT",
      "backward() in a step of several ranks: createGraph, and inputs that are results of ops, can't be averaged over ranks. Use autograd.grad() " +
        "for them; its gradients stay on their rank.",
    );
  const own = (leaf: Leaf): readonly [Leaf, (gradient: Value) => void] => [
    leaf,
    ({ array }) => leaf.accumulate(array),
  ];
  device.tape.deliver(roots, new Map([...leaves.map(own), ...delivery.receivers]), options);
  delivery.finish();
  return true;
}

defineMethods(Device, backwardMethods);

function rootsOf(
  device: Device,
  call: string,
  roots: readonly Tensor[],
  gradients: readonly (Tensor | null | undefined)[],
): readonly Root<Value>[] {
  return roots.map((root, index) => {
    requireGraph(device, call, root);
    return { value: root.value, seed: initialGradient(device, call, root, gradients[index]) };
  });
}

function requireGraph(device: Device, call: string, tensor: Tensor): void {
  device.requireLive(tensor, call);
  const { value } = tensor;
  if (tensor.device !== device) {
    throw new HoldfastError(
      "OTHER_DEVICE",
      `${call}: "${tensor.name}" is on another device than the first tensor. Create all of them on one device.`,
    );
  }
  if (value.requiresGrad) return;
  throw new HoldfastError(
    "NO_GRADIENT",
    `${call}() of "${tensor.name}": ${whyNoGraph[value.cutBy ?? "none"]}`,
  );
}

/** The gradient that backward starts from: the argument, or 1 for a single number. */
function initialGradient(
  device: Device,
  call: string,
  root: Tensor,
  gradient: Tensor | null | undefined,
): Value {
  const { shape, dtype } = root;
  if (gradient) {
    if (!(gradient instanceof Tensor)) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${call}() got ${Object.keys(gradient).join(", ") || String(gradient)} in place of a gradient. The options come after the gradient: ` +
          "backward(undefined, { retainGraph: true }).",
      );
    }
    device.requireLive(gradient, call);
    if (isSameShape(gradient.shape, shape) && gradient.dtype === dtype) return gradient.value;
    throw new HoldfastError(
      "BAD_SHAPE",
      `${call}() of ${dtype} ${formatShape(shape)} got a gradient of ${gradient.dtype} ${formatShape(gradient.shape)}; ` +
        "pass a gradient with the shape and dtype of the tensor.",
    );
  }
  const scalarOne = device.seeds.oneOf(dtype);
  if (scalarOne && sizeOf(shape) === 1)
    return new Value({ ...scalarOne, shape, strides: shape.map(() => 0) });
  throw new HoldfastError(
    "BAD_SHAPE",
    `${call}() of shape ${formatShape(shape)}: without a gradient it starts from a single number. ` +
      "Reduce it first, with sum() or mean(), or pass a gradient of that shape.",
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
