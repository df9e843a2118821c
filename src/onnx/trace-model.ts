/** Traces a model's forward pass at one size of its dynamic axes. */

import { Guards, noGrad, Value } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { Module } from "../nn/index.js";
import { allocateArray, type Shape } from "../ops/index.js";
import { type Device, rejectingDraws, Tensor } from "../tensor/index.js";
import { ForwardTrace, type KeptComposites, type TracedCall, type TracedValue } from "./forward-trace.js";

/** A module with a forward pass, or a function of tensors. */
export type ExportedModel = Module | ((...inputs: Tensor[]) => unknown);

/** What is traced. */
export interface ForwardPass {
  /** Traced in evaluation mode; its parameters and layers have the names of their paths. */
  readonly module: Module | undefined;
  run(...inputs: Tensor[]): unknown;
}

export function forwardPass(model: ExportedModel): ForwardPass {
  return model instanceof Module
    ? { module: model, run: forwardOf(model) }
    : { module: undefined, run: model };
}

export interface InputType {
  readonly name: string;
  readonly shape: Shape;
  readonly dtype: Dtype;
}

export interface ModelTrace {
  readonly calls: readonly TracedCall[];
  readonly values: readonly TracedValue[];
  /** The ids of the results by name. */
  readonly results: ReadonlyMap<string, number>;
}

export function traceModel(
  device: Device,
  { module, run: forward }: ForwardPass,
  inputs: readonly InputType[],
  composites: KeptComposites,
): ModelTrace {
  const { runtime } = device;
  const trace = new ForwardTrace(runtime, composites);
  const results = new Map<string, number>();
  const guards = new Guards();
  const restore = module ? noteLayers(module, trace) : () => undefined;
  const run = (): void => {
    const tensors = inputs.map(({ name, shape, dtype }, index) => {
      const array = allocateArray(runtime, shape, dtype, name);
      trace.addInput(array, index);
      return new Tensor({ device, value: new Value(array) }, name);
    });
    for (const [name, tensor] of resultsOf(forward(...tensors)))
      results.set(name, trace.resolve(tensor.array));
  };
  try {
    const traced = (): void => noGrad(() => rejectingDraws(rejectDraw, () => guards.watch(device, run)));
    runtime.traceWith(trace, () => device.inTracedStep(traced));
  } finally {
    restore();
    guards.undo();
  }
  return { calls: trace.calls, values: trace.values, results };
}

function forwardOf(model: Module): (...inputs: Tensor[]) => unknown {
  const { forward } = model as { readonly forward?: unknown };
  if (typeof forward === "function") return (...inputs) => forward.apply(model, inputs);
  throw new HoldfastError("BAD_ARGUMENT", `exportOnnx: ${model.constructor.name} has no forward().`);
}

/** Evaluation mode, and hooks that tell the trace which module runs. Returns the function that restores the model. */
function noteLayers(model: Module, trace: ForwardTrace): () => void {
  const modules = [...model.namedModules()];
  const training = modules.filter(([, module]) => module.isTraining);
  model.eval();
  const handles = modules.flatMap(([path, module]) => {
    if (path === "" || !("forward" in module)) return [];
    return [
      module.registerForwardPreHook(() => trace.enterLayer(path)),
      module.registerForwardHook(() => trace.leaveLayer()),
    ];
  });
  return () => {
    for (const handle of handles) handle.remove();
    for (const [, module] of training) setTraining(module);
  };
}

/** Without its submodules. */
function setTraining(module: Module): void {
  const modes = [...module.namedModules()].slice(1).map(([, child]) => [child, child.isTraining] as const);
  module.train();
  for (const [child, isTraining] of modes) if (!isTraining) child.eval();
}

/** The tensors of a result by name: "output" for a single one, and paths of names and positions otherwise. */
function resultsOf(result: unknown, path = ""): readonly (readonly [string, Tensor])[] {
  if (result instanceof Tensor) return [[path || "output", result]];
  if (Array.isArray(result))
    return result.flatMap((item, index) => resultsOf(item, path ? `${path}.${index}` : `output.${index}`));
  if (typeof result === "object" && result !== null)
    return Object.entries(result).flatMap(([key, item]) => resultsOf(item, path ? `${path}.${key}` : key));
  return [];
}

function rejectDraw(): never {
  throw new HoldfastError(
    "UNSUPPORTED",
    "This model can't be exported to ONNX: it draws random numbers on the host. Pass them as an input.",
  );
}
