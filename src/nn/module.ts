/**
 * Module: what models are made of. Parameters and submodules are found in a module's own properties, so that a class
 * with fields is all there is to write.
 */

import type { Dtype } from "../kernels/index.js";
import type { Device, Tensor } from "../tensor/index.js";
import { Parameter } from "./parameter.js";
import { placeParameters } from "./placement.js";
import { type LoadableState, type LoadResult, matchState, writeState } from "./state.js";

/**
 * The base of all layers and models. Assign parameters and modules to fields, and say in `forward` what is computed.
 *
 * @example
 * ```ts
 * import { device, nn, type Tensor, ones } from "holdfast";
 * class Scale extends nn.Module {
 *   readonly factor = new nn.Parameter([1], () => [3]);
 *   forward(x: Tensor): Tensor {
 *     return x.mul(this.factor);
 *   }
 * }
 * const cpu = await device("cpu");
 * const model = new Scale().to(cpu);
 * console.log(model.forward(ones([2])).tolist()); // → [ 3, 3 ]
 * console.log([...model.namedParameters()].map(([name]) => name)); // → [ 'factor' ]
 * cpu.close();
 * ```
 */
export abstract class Module {
  #isTraining = true;

  /** Is the module in training mode? Dropout acts only then. */
  get isTraining(): boolean {
    return this.#isTraining;
  }

  /** Submodules by the names of their fields; arrays of modules count by their indices. Containers give their own. */
  *namedChildren(): Generator<[name: string, module: Module]> {
    for (const [name, field] of Object.entries(this)) {
      if (field instanceof Module) yield [name, field];
      else if (Array.isArray(field)) {
        for (const [index, item] of field.entries()) {
          if (item instanceof Module) yield [`${name}.${index}`, item];
        }
      }
    }
  }

  /** This module and all below it, each once, with its path. */
  *namedModules(path = "", seen = new Set<Module>()): Generator<[path: string, module: Module]> {
    if (seen.has(this)) return;
    seen.add(this);
    yield [path, this];
    for (const [name, child] of this.namedChildren()) {
      yield* child.namedModules(path ? `${path}.${name}` : name, seen);
    }
  }

  /** All parameters with their paths, each once, in the order of the fields. */
  *namedParameters(): Generator<[path: string, parameter: Parameter]> {
    const seen = new Set<Parameter>();
    for (const [path, module] of this.namedModules()) {
      for (const [name, field] of Object.entries(module)) {
        if (!(field instanceof Parameter) || seen.has(field)) continue;
        seen.add(field);
        yield [path ? `${path}.${name}` : name, field];
      }
    }
  }

  /** All parameters, each once. */
  parameters(): Parameter[] {
    return [...this.namedParameters()].map(([, parameter]) => parameter);
  }

  /** How many numbers the module learns. */
  get parameterCount(): number {
    return this.parameters().reduce((count, { numel }) => count + numel, 0);
  }

  /** Places all parameters on a device, side by side in persistent memory; with a dtype, converted to it. */
  to(device: Device, dtype?: Dtype): this {
    const named = [...this.namedParameters()];
    for (const [path, parameter] of named) parameter.name = path;
    placeParameters(
      device,
      this.constructor.name,
      named.map(([, parameter]) => parameter),
      dtype,
    );
    return this;
  }

  /** Training mode for this module and all below it, or evaluation. */
  train(isTraining = true): this {
    for (const [, module] of this.namedModules()) module.#isTraining = isTraining;
    return this;
  }

  /** Evaluation mode: dropout lets everything pass. */
  eval(): this {
    return this.train(false);
  }

  /** Asks for gradients of all parameters, or freezes them. */
  requiresGrad_(wanted = true): this {
    for (const parameter of this.parameters()) parameter.requiresGrad = wanted;
    return this;
  }

  zeroGrad(): void {
    for (const parameter of this.parameters()) if (parameter.isPlaced) parameter.zeroGrad();
  }

  /** The parameters by path. These are the parameters themselves, not copies. */
  stateDict(): Record<string, Tensor> {
    return Object.fromEntries(this.namedParameters());
  }

  /**
   * Takes over the values of a state: tensors, or elements as files hold them. Strict: every name has to be in both, with
   * the same shape. Loose: what is in both is loaded, and the rest is returned; a shape that differs is an error either
   * way. Nothing is written unless all fits.
   */
  loadStateDict(state: LoadableState, { strict = true }: { readonly strict?: boolean } = {}): LoadResult {
    const own = new Map(this.namedParameters());
    const result = matchState(this.constructor.name, own, state, strict);
    writeState(own, state);
    return result;
  }

  toString(): string {
    const lines = [...this.namedChildren()].map(
      ([name, child]) => `  (${name}): ${String(child).replaceAll("\n", "\n  ")}`,
    );
    const head = `${this.constructor.name}(${this.describe()}`;
    return lines.length > 0 ? `${head}\n${lines.join("\n")}\n)` : `${head})`;
  }

  /** What stands in the brackets when the module is printed: its sizes. */
  protected describe(): string {
    return "";
  }
}
