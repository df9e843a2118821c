/** Module weights that are computed from other parameters at every read, for `weightNorm` and `spectralNorm`. */

import { noGrad, stateChanged } from "../autograd/index.js";
import { HoldfastError } from "../errors/index.js";
import type { HookHandle, Tensor } from "../tensor/index.js";
import type { Buffer } from "./buffer.js";
import type { Module } from "./module.js";
import { Parameter } from "./parameter.js";

/** A weight that is computed. */
export interface ComputedWeight {
  /** The function of `nn.utils` that made it. */
  readonly kind: "weightNorm" | "spectralNorm";
  /** The module's own parameter, which becomes one of the parts. */
  readonly parameter: Parameter;
  /** The parameters and buffers that the module has instead, by their names. */
  readonly parts: Readonly<Record<string, Parameter | Buffer>>;
  readonly compute: () => Tensor;
  /** Runs before each forward pass. */
  readonly hook?: HookHandle;
}

const computedWeights = new WeakMap<Module, Map<string, ComputedWeight>>();

/** The parameter in a field of a module. */
export function parameterOf(caller: string, module: Module, name: string): Parameter {
  const found = Object.getOwnPropertyDescriptor(module, name)?.value;
  if (found instanceof Parameter) return found;
  const computed = computedWeights.get(module)?.get(name);
  const own = Object.entries(module).flatMap(([key, field]) => (field instanceof Parameter ? [key] : []));
  const reason = computed
    ? `is computed by ${computed.kind} already`
    : "is not a field that holds a parameter";
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `nn.utils.${caller}: ${module.constructor.name}.${name} ${reason}. Such fields: ${own.join(", ") || "none"}.`,
  );
}

/** Gives a module a computed weight in place of a parameter. */
export function computeWeight<M extends Module>(module: M, name: string, weight: ComputedWeight): M {
  Reflect.deleteProperty(module, name);
  // Not enumerable, so that the module does not count it as a tensor of its own.
  Object.defineProperty(module, name, { get: weight.compute, configurable: true, enumerable: false });
  Object.assign(module, weight.parts);
  computedWeights.set(module, (computedWeights.get(module) ?? new Map()).set(name, weight));
  stateChanged();
  if (weight.parameter.isPlaced) module.to(weight.parameter.device);
  return module;
}

/** Makes the parameter the module's weight again, with the computed values. */
export function restoreWeight<M extends Module>(kind: ComputedWeight["kind"], module: M, name: string): M {
  const weight = computedWeights.get(module)?.get(name);
  if (weight?.kind !== kind) {
    throw new HoldfastError(
      "BAD_ARGUMENT",
      `nn.utils: ${module.constructor.name}.${name} has no ${kind} that could be removed.`,
    );
  }
  const { parameter, parts, compute, hook } = weight;
  if (parameter.isPlaced) parameter.device.step(() => noGrad(() => parameter.copy_(compute())));
  hook?.remove();
  for (const part of Object.keys(parts)) Reflect.deleteProperty(module, part);
  Object.defineProperty(module, name, {
    value: parameter,
    configurable: true,
    writable: true,
    enumerable: true,
  });
  computedWeights.get(module)?.delete(name);
  stateChanged();
  return module;
}
