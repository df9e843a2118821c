/** Hooks of modules: functions around `forward`, and around its backward pass. A module with hooks has a `forward` of its own that calls them. */

import { isRecording, stateChanged } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import { autograd, type HookHandle, Tensor } from "../tensor/index.js";

type Forward = (...inputs: unknown[]) => unknown;

/** Returns other arguments for `forward`, or undefined. */
export type ForwardPreHook<M> = (module: M, inputs: readonly unknown[]) => unknown;
/** Returns another result, or undefined. */
export type ForwardHook<M> = (module: M, inputs: readonly unknown[], output: unknown) => unknown;
/** Returns other gradients of the arguments, or undefined. Arguments without a gradient have null. */
export type FullBackwardHook<M> = (
  module: M,
  gradInputs: readonly (Tensor | null)[],
  gradOutputs: readonly Tensor[],
) => unknown;

interface Hooks {
  readonly forwardPre: readonly ForwardPreHook<never>[];
  readonly forward: readonly ForwardHook<never>[];
  readonly fullBackward: readonly FullBackwardHook<never>[];
}

const none: Hooks = { forwardPre: [], forward: [], fullBackward: [] };
const hooksOf = new WeakMap<
  object,
  { readonly inner: PropertyDescriptor | undefined; readonly hooks: Hooks }
>();

export function addHook<K extends keyof Hooks>(module: object, kind: K, hook: Hooks[K][number]): HookHandle {
  const { hooks } = hooksOf.get(module) ?? { hooks: none };
  setHooks(module, { ...hooks, [kind]: [...hooks[kind], hook] });
  return {
    remove() {
      const { hooks: present } = hooksOf.get(module) ?? { hooks: none };
      setHooks(module, { ...present, [kind]: present[kind].filter((other) => other !== hook) });
    },
  };
}

/** The module's own `forward`, which exists if it has hooks; a trace guards it. */
export function ownForward(module: object): unknown {
  return Object.getOwnPropertyDescriptor(module, "forward")?.value;
}

function setHooks(module: object, hooks: Hooks): void {
  const inner = hooksOf.has(module)
    ? hooksOf.get(module)?.inner
    : Object.getOwnPropertyDescriptor(module, "forward");
  if (inner) Object.defineProperty(module, "forward", inner);
  else Reflect.deleteProperty(module, "forward");
  hooksOf.delete(module);
  stateChanged();
  if (Object.values(hooks).every(({ length }) => length === 0)) return;
  const { forward } = module as { readonly forward?: Forward };
  if (typeof forward !== "function") {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `${module.constructor.name} has no forward() for a hook to run at.`,
    );
  }
  hooksOf.set(module, { inner, hooks });
  const value = (...inputs: unknown[]): unknown => callWithHooks(module, hooks, forward, inputs);
  Object.defineProperty(module, "forward", { value, configurable: true, writable: true, enumerable: false });
}

function callWithHooks(module: object, hooks: Hooks, forward: Forward, given: readonly unknown[]): unknown {
  const of = module as never;
  let inputs = given;
  for (const hook of hooks.forwardPre) {
    const result = hook(of, inputs);
    if (result !== undefined && result !== null) inputs = Array.isArray(result) ? result : [result];
  }
  const gates =
    hooks.fullBackward.length > 0 && isRecording() ? makeGates(module, hooks.fullBackward) : undefined;
  const gated = gates ? gates.enter(inputs) : inputs;
  let output = forward.apply(module, [...gated]);
  for (const hook of hooks.forward) output = hook(of, inputs, output) ?? output;
  return gates ? gates.leave(output) : output;
}

/** Identities around a call: the second sees the gradients of the results, and then the first those of the arguments. */
function makeGates(module: object, hooks: readonly FullBackwardHook<never>[]) {
  let gradOutputs: readonly Tensor[] = [];
  let hasInputs = false;
  const runHooks = (gradients: readonly (Tensor | null)[]): readonly (Tensor | null)[] => {
    let present = gradients;
    for (const hook of hooks) {
      const result = hook(module as never, present, gradOutputs);
      if (result !== undefined && result !== null) {
        present = (Array.isArray(result) ? result : [result]) as readonly (Tensor | null)[];
      }
    }
    return present;
  };
  const identity = (backward: (gradients: readonly Tensor[]) => readonly (Tensor | null)[]) =>
    class extends autograd.Function {
      static override readonly name = `${module.constructor.name} hooks`;
      static forward(_: autograd.FunctionContext, ...tensors: Tensor[]): Tensor[] {
        return tensors;
      }
      static backward(_: autograd.FunctionContext, ...gradients: Tensor[]): readonly (Tensor | null)[] {
        return backward(gradients);
      }
    };
  const Entry = identity(runHooksOfInputs);
  const Exit = identity((gradients) => {
    gradOutputs = gradients;
    if (!hasInputs) runHooks([]);
    return gradients;
  });
  let positions: readonly number[] = [];
  let count = 0;

  return {
    enter(inputs: readonly unknown[]): readonly unknown[] {
      count = inputs.length;
      positions = inputs.flatMap((input, index) =>
        input instanceof Tensor && input.requiresGrad ? [index] : [],
      );
      hasInputs = positions.length > 0;
      if (!hasInputs) return inputs;
      const passed = Entry.apply(...positions.map((index) => inputs[index] as Tensor));
      return inputs.map((input, index) =>
        positions.includes(index) ? passed[positions.indexOf(index)] : input,
      );
    },
    leave(output: unknown): unknown {
      if (output instanceof Tensor) return output.requiresGrad ? Exit.apply(output)[0] : output;
      if (Array.isArray(output) && output.every((item) => item instanceof Tensor))
        return Exit.apply(...output);
      return output;
    },
  };

  function runHooksOfInputs(gradients: readonly Tensor[]): readonly (Tensor | null)[] {
    const all = Array.from({ length: count }, (_, index) => gradients[positions.indexOf(index)] ?? null);
    const result = runHooks(all);
    return positions.map((index) => result[index] ?? null);
  }
}
