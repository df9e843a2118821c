/** Functions whose gradient the user defines. */

import { asValue, type Node, noGrad, type RecordedOperand, Value } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import {
  expand,
  formatShape,
  functions,
  isSameShape,
  type KernelOp,
  type ValueType,
} from "../../ops/index.js";
import type { Device } from "../device.js";
import { Tensor } from "../tensor.js";
import { FunctionContext } from "./function-context.js";

type Gradient = Tensor | null | undefined;

/** The static methods of a function. `backward` gets a gradient for each result, and returns one for each argument, or null. */
export interface FunctionDefinition<Inputs extends readonly unknown[], Result> {
  readonly name: string;
  forward(context: FunctionContext, ...inputs: Inputs): Result;
  backward(context: FunctionContext, ...gradients: Tensor[]): Gradient | readonly Gradient[];
}

/**
 * A function with a gradient of your own. Extend it with static methods `forward` and `backward`, and call `apply`. `forward` runs without
 * recording. Gradients of gradients work if `backward` consists of ops with a gradient. In a compiled step both run while the step is
 * traced, and their ops are part of the step.
 *
 * @example
 * ```ts
 * import { autograd, device, type Tensor, tensor } from "holdfast";
 * // The identity, with a gradient that is clipped.
 * class ClippedGradient extends autograd.Function {
 *   static forward(_: autograd.FunctionContext, x: Tensor): Tensor {
 *     return x.clone();
 *   }
 *   static backward(_: autograd.FunctionContext, gradient: Tensor): Tensor {
 *     return gradient.clamp(-1, 1);
 *   }
 * }
 * const cpu = await device("cpu");
 * const x = tensor([1, 2], { requiresGrad: true });
 * ClippedGradient.apply(x).mul(tensor([0.5, 30])).sum().backward();
 * console.log(x.grad?.tolist()); // → [ 0.5, 1 ]
 * cpu.close();
 * ```
 */
// biome-ignore lint/complexity/noStaticOnlyClass: users extend it, as PyTorch's.
export abstract class CustomFunction {
  /**
   * Calls `forward`, and records that `backward` computes the gradient.
   *
   * @example
   * ```ts
   * import { autograd, device, type Tensor, tensor } from "holdfast";
   * class Square extends autograd.Function {
   *   static forward(context: autograd.FunctionContext, x: Tensor): Tensor {
   *     context.saveForBackward(x);
   *     return x.mul(x);
   *   }
   *   static backward({ savedTensors: [x] }: autograd.FunctionContext, gradient: Tensor): Tensor | undefined {
   *     return x?.mul(gradient).mul(2);
   *   }
   * }
   * const cpu = await device("cpu");
   * const x = tensor([1, 2], { requiresGrad: true });
   * Square.apply(x).sum().backward();
   * console.log(x.grad?.tolist()); // → [ 2, 4 ]
   * cpu.close();
   * ```
   */
  static apply<Inputs extends readonly unknown[], Result extends Tensor | readonly Tensor[]>(
    this: FunctionDefinition<Inputs, Result>,
    ...inputs: Inputs
  ): Result {
    // biome-ignore lint/complexity/noThisInStatic: the subclass that it is called on has forward and backward.
    return applyFunction(this, inputs);
  }
}

function applyFunction<Inputs extends readonly unknown[], Result extends Tensor | readonly Tensor[]>(
  definition: FunctionDefinition<Inputs, Result>,
  inputs: Inputs,
): Result {
  const { name } = definition;
  const operands = inputs.flatMap((input) => (input instanceof Tensor ? [input] : []));
  const [first] = operands;
  if (!first)
    throw new HoldfastError("BAD_ARGUMENT", `${name}.apply takes at least one tensor, but got none.`);
  const { device } = first;
  for (const operand of operands) {
    device.requireLive(operand, name);
    if (operand.device === device) continue;
    throw new HoldfastError(
      "OTHER_DEVICE",
      `${name}: "${operand.name}" is on another device than the first tensor. Create both on one device.`,
    );
  }
  const context = new FunctionContext(inputs.map((input) => input instanceof Tensor && input.requiresGrad));
  const result = noGrad(() => definition.forward(context, ...inputs));
  const outputs = (Array.isArray(result) ? result : [result]) as readonly Tensor[];
  if (outputs.length === 0 || outputs.some((output) => !(output instanceof Tensor))) {
    throw new HoldfastError("BAD_ARGUMENT", `${name}.forward must return a tensor, or an array of tensors.`);
  }
  const saved = context.savedTensors;
  const recall = (node: Node, isRecorded: boolean): readonly Tensor[] =>
    saved.map((tensor, index) => {
      const [operand, output] = [operands.indexOf(tensor), outputs.indexOf(tensor)];
      const origin = operand >= 0 ? node.edges[operand] : output >= 0 ? { source: { node, output } } : {};
      return device.wrap(new Value(node.output(outputs.length + index), isRecorded ? origin : {}));
    });
  const values = device.tape.recordFunction(
    opOf(definition),
    operands.map(({ value }) => value),
    {
      outputs: outputs.map(({ array }) => array),
      saved: saved.map(({ array }) => array),
      gradient: (node, upstreams, isRecorded) => {
        const gradients = outputs.map((_, index) => gradientOf(device, node, upstreams, index));
        const returned = context.withSaved(
          () => recall(node, isRecorded),
          () => definition.backward(context, ...gradients),
        );
        return gradientsOfOperands(name, inputs, returned);
      },
    },
  );
  const wrapped = values.map((value) => device.wrap(value));
  return (Array.isArray(result) ? wrapped : wrapped[0]) as Result;
}

/** The gradient of a result: zeros if nothing has used it. */
function gradientOf(
  device: Device,
  node: Node,
  upstreams: readonly (RecordedOperand | undefined)[],
  index: number,
): Tensor {
  const upstream = upstreams[index];
  if (upstream) return device.wrap(asValue(upstream));
  const { shape, dtype } = node.outputTypes[index] ?? { shape: [], dtype: "f32" };
  const one = device.seeds.oneOf(dtype) ?? device.seeds.oneOf("f32");
  if (!one) throw new HoldfastError("BAD_DTYPE", `A gradient of ${dtype} does not exist.`);
  const zero = device.apply(functions.fill, [device.wrap(new Value(one))], { value: 0 });
  return device.apply(expand, [zero], { shape });
}

/** Checks what `backward` returned, and leaves out the arguments that are no tensors. */
function gradientsOfOperands(
  name: string,
  inputs: readonly unknown[],
  returned: Gradient | readonly Gradient[],
): readonly (RecordedOperand | undefined)[] {
  const list = (Array.isArray(returned) ? returned : [returned]) as readonly Gradient[];
  if (list.length !== inputs.length) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${name}.backward returned ${list.length} gradients for ${inputs.length} arguments. Return one for each, and null for those without.`,
    );
  }
  return inputs.flatMap((input, index) => {
    if (!(input instanceof Tensor)) return [];
    const gradient = list[index];
    if (!gradient) return [undefined];
    requireType(name, index, gradient, input.array);
    return [gradient.value];
  });
}

function requireType(name: string, index: number, gradient: Tensor, { shape, dtype }: ValueType): void {
  if (isSameShape(gradient.shape, shape) && gradient.dtype === dtype) return;
  throw new HoldfastError(
    "BAD_SHAPE",
    `${name}.backward returned ${gradient.dtype} ${formatShape(gradient.shape)} for argument ${index}, which is ${dtype} ` +
      `${formatShape(shape)}. A gradient has the type of its argument.`,
  );
}

const ops = new WeakMap<object, KernelOp>();

/** One op for all calls of a function: a recomputation compares them. */
function opOf(definition: { readonly name: string }): KernelOp {
  const existing = ops.get(definition);
  if (existing) return existing;
  const op: KernelOp = {
    kind: "kernel",
    name: definition.name,
    infer: () => [],
    saves: (_, { outputs, saved }) => ({
      outputs: Array.from({ length: Number(saved) }, (_, index) => Number(outputs) + index),
    }),
    lower: () => undefined,
  };
  ops.set(definition, op);
  return op;
}
