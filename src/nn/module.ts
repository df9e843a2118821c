/**
 * Module: the base of models. Parameters, buffers and submodules are found in a module's properties, so a class with
 * fields is enough.
 */

import { beforeChange, type GuardedField, stateChanged, tracing } from "../autograd/index.js";
import { checkOptions, HoldfastError } from "../errors/index.js";
import type { Dtype } from "../ir/index.js";
import { type Device, type HookHandle, Tensor } from "../tensor/index.js";
import { Buffer } from "./buffer.js";
import { fieldsOf, registerFields } from "./field-guards.js";
import { addHook, type ForwardHook, type ForwardPreHook, type FullBackwardHook } from "./module-hooks.js";
import { itemsIn, type NamedItem, requireOwnNames } from "./module-items.js";
import type { ModuleTensor } from "./module-tensor.js";
import { Parameter } from "./parameter.js";
import {
  destinationOf,
  placeBuffers,
  placeParameters,
  releaseBuffers,
  releaseGradients,
} from "./placement.js";
import { type LoadableState, type LoadResult, matchState, writeState } from "./state.js";

/**
 * The base of all layers and models. Assign parameters, buffers and modules to fields, and compute in `forward`. They
 * are found in fields, and in arrays, plain objects, Maps and Sets there. `#private` fields are invisible: register
 * their contents with `registerModule`, `registerParameter` or `registerBuffer`.
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
  static readonly #mode: GuardedField<Module> = {
    read: (module) => module.#isTraining,
    write: (module, isTraining) => {
      module.#isTraining = isTraining === true;
    },
  };
  /** Items registered under a name, because no field shows them. */
  readonly #registered = new Map<string, Part>();

  /**
   * True in training mode. Dropout is active only then.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Dropout(0.1));
   * console.log(model.isTraining, model.eval().isTraining); // → true false
   * ```
   */
  get isTraining(): boolean {
    tracing.guards?.noteRead(this, Module.#mode, this.#isTraining, () => this.#modeName());
    return this.#isTraining;
  }

  /**
   * Registers a submodule under a name and returns it: for `#private` fields, which are invisible.
   *
   * @example
   * ```ts
   * import { nn, type Tensor } from "holdfast";
   * class Head extends nn.Module {
   *   readonly #out = this.registerModule("out", new nn.Linear(4, 2));
   *   forward(x: Tensor): Tensor {
   *     return this.#out.forward(x);
   *   }
   * }
   * console.log([...new Head().namedParameters()].map(([name]) => name)); // → [ 'out.weight', 'out.bias' ]
   * ```
   */
  registerModule<M extends Module>(name: string, module: M): M {
    return this.#register("registerModule", name, module, module instanceof Module);
  }

  /**
   * Registers a parameter under a name and returns it: for `#private` fields, which are invisible.
   *
   * @example
   * ```ts
   * import { nn, type Tensor } from "holdfast";
   * class Scale extends nn.Module {
   *   readonly #by = this.registerParameter("by", new nn.Parameter([1], nn.init.ones()));
   *   forward(x: Tensor): Tensor {
   *     return x.mul(this.#by);
   *   }
   * }
   * console.log([...new Scale().namedParameters()].map(([name]) => name)); // → [ 'by' ]
   * ```
   */
  registerParameter<P extends Parameter>(name: string, parameter: P): P {
    return this.#register("registerParameter", name, parameter, parameter instanceof Parameter);
  }

  /**
   * Registers a tensor that is not learned under a name, and returns it as a buffer: it moves with `to`, and is in the
   * state dict if it is `persistent`. Its values are copied. A `Buffer` in a field needs no registration.
   *
   * @example
   * ```ts
   * import { device, nn, type Tensor, tensor } from "holdfast";
   * const cpu = await device("cpu");
   * class Standardize extends nn.Module {
   *   readonly #mean = this.registerBuffer("mean", tensor([10, 20]));
   *   forward(x: Tensor): Tensor {
   *     return x.sub(this.#mean);
   *   }
   * }
   * const model = new Standardize().to(cpu);
   * console.log(model.forward(tensor([11, 22])).tolist(), Object.keys(model.stateDict())); // → [ 1, 2 ] [ 'mean' ]
   * cpu.close();
   * ```
   */
  registerBuffer(name: string, tensor: Tensor, options: { readonly persistent?: boolean } = {}): Buffer {
    const { persistent = true } = checkOptions("nn.Module.registerBuffer", options, { persistent: true });
    const isTensor = tensor instanceof Tensor && !(tensor instanceof Parameter);
    if (tensor instanceof Buffer || !isTensor)
      return this.#register("registerBuffer", name, tensor as Buffer, tensor instanceof Buffer);
    const { shape, dtype } = tensor;
    const values = tensor.dataSync();
    return this.#register(
      "registerBuffer",
      name,
      new Buffer(shape, () => values, { dtype, persistent }),
      true,
    );
  }

  /**
   * Calls a function before each `forward`, with the module and the arguments. It may return other arguments. In a compiled step hooks run
   * while the step is traced and audited.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(2, 1).to(cpu);
   * const handle = layer.registerForwardPreHook((_, [x]) => console.log(String(x)));
   * layer.forward(ones([1, 2])); // → tensor([[1. 1.]], shape [1, 2], f32, cpu)
   * handle.remove();
   * cpu.close();
   * ```
   */
  registerForwardPreHook(hook: ForwardPreHook<this>): HookHandle {
    return addHook(this, "forwardPre", hook);
  }

  /**
   * Calls a function after each `forward`, with the module, the arguments and the result. It may return another result.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(2, 1).to(cpu);
   * layer.registerForwardHook(() => ones([3]));
   * console.log(layer.forward(ones([1, 2])).shape); // → [ 3 ]
   * cpu.close();
   * ```
   */
  registerForwardHook(hook: ForwardHook<this>): HookHandle {
    return addHook(this, "forward", hook);
  }

  /**
   * Calls a function when backward has the gradients of the arguments and the results of `forward`. It may return other gradients of the
   * arguments. Results are a tensor or an array of tensors.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const layer = new nn.Linear(2, 1).to(cpu);
   * layer.registerFullBackwardHook((_, [gradInput], [gradOutput]) => {
   *   console.log(gradInput?.shape, gradOutput?.tolist()); // → [ 1, 2 ] [ [ 1 ] ]
   * });
   * layer.forward(ones([1, 2]).requiresGrad_()).sum().backward();
   * cpu.close();
   * ```
   */
  registerFullBackwardHook(hook: FullBackwardHook<this>): HookHandle {
    return addHook(this, "fullBackward", hook);
  }

  /**
   * Submodules by field name, including those in arrays, plain objects, Maps and Sets, and registered ones. Containers
   * override this.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const layer = new nn.TransformerEncoderLayer(4, 2);
   * console.log([...layer.namedChildren()].map(([name]) => name).slice(0, 3)); // → [ 'selfAttn', 'linear1', 'dropout' ]
   * ```
   */
  *namedChildren(): Generator<[name: string, module: Module]> {
    for (const [name, item] of this.#items()) if (item instanceof Module) yield [name, item];
  }

  /**
   * This module and all submodules, each once, with its path.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Sequential(new nn.ReLU()), new nn.Tanh());
   * console.log([...model.namedModules()].map(([path]) => path)); // → [ '', '0', '0.0', '1' ]
   * ```
   */
  *namedModules(path = "", seen = new Set<Module>()): Generator<[path: string, module: Module]> {
    if (seen.has(this)) return;
    seen.add(this);
    yield [path, this];
    for (const [name, child] of this.namedChildren()) {
      yield* child.namedModules(path ? `${path}.${name}` : name, seen);
    }
  }

  /**
   * All parameters with their paths, each once, in field order.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Linear(3, 2), new nn.LayerNorm(2));
   * for (const [path, { shape }] of model.namedParameters()) console.log(path, shape);
   * // → 0.weight [ 2, 3 ]
   * // → 0.bias [ 2 ]
   * // → 1.weight [ 2 ]
   * // → 1.bias [ 2 ]
   * ```
   */
  *namedParameters(): Generator<[path: string, parameter: Parameter]> {
    for (const [path, item] of this.#namedTensors()) if (item instanceof Parameter) yield [path, item];
  }

  /**
   * All buffers with their paths, each once, in field order.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * class Counter extends nn.Module {
   *   readonly count = new nn.Buffer([], nn.init.zeros(), { dtype: "i32" });
   * }
   * const model = new nn.ModuleList([new Counter(), new Counter()]);
   * console.log([...model.namedBuffers()].map(([path]) => path)); // → [ '0.count', '1.count' ]
   * ```
   */
  *namedBuffers(): Generator<[path: string, buffer: Buffer]> {
    for (const [path, item] of this.#namedTensors()) if (item instanceof Buffer) yield [path, item];
  }

  /** Parameters and buffers of this module and all submodules, each once. */
  *#namedTensors(): Generator<[path: string, tensor: Parameter | Buffer]> {
    const seen = new Set<Part>();
    for (const [path, module] of this.namedModules()) {
      for (const [name, item] of module.#items()) {
        if (item instanceof Module || seen.has(item)) continue;
        seen.add(item);
        yield [path ? `${path}.${name}` : name, item];
      }
    }
  }

  /**
   * All parameters, each once, for an optimizer.
   *
   * @example
   * ```ts
   * import { device, nn, optim } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(3, 2).to(cpu);
   * const optimizer = new optim.AdamW(model.parameters());
   * console.log(optimizer.parameters.length); // → 2
   * cpu.close();
   * ```
   */
  parameters(): Parameter[] {
    return [...this.namedParameters()].map(([, parameter]) => parameter);
  }

  /**
   * All buffers, each once.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * class Positions extends nn.Module {
   *   readonly rows = new nn.Buffer([8, 4], nn.init.normal(), { persistent: false });
   * }
   * const model = new Positions();
   * console.log(model.buffers().map(({ shape }) => shape), Object.keys(model.stateDict())); // → [ [ 8, 4 ] ] []
   * ```
   */
  buffers(): Buffer[] {
    return [...this.namedBuffers()].map(([, buffer]) => buffer);
  }

  /**
   * The number of learned elements.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Linear(100, 10).parameterCount); // → 1010
   * ```
   */
  get parameterCount(): number {
    return this.parameters().reduce((count, { numel }) => count + numel, 0);
  }

  /**
   * Places all parameters and buffers on a device, contiguously in persistent memory; converts those of floats to the
   * dtype, if set. A dtype alone converts a module that is on a device. Create the optimizer afterwards.
   *
   * @example
   * ```ts
   * import { device, nn } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(3, 2).to(cpu, "bf16");
   * console.log(model.weight.dtype, model.weight.device === cpu); // → bf16 true
   * console.log(model.to("f32").weight.dtype); // → f32
   * cpu.close();
   * ```
   */
  to(device: Device, dtype?: Dtype): this;
  to(dtype: Dtype): this;
  to(destination: Device | Dtype, floats?: Dtype): this {
    const { device, dtype } = destinationOf(this, destination, floats);
    registerFields(this, device);
    for (const [path, tensor] of this.#namedTensors()) tensor.name = path;
    const { name } = this.constructor;
    placeParameters(device, name, this.parameters(), dtype);
    placeBuffers(device, name, this.buffers(), dtype);
    return this;
  }

  /**
   * Frees the memory of its buffers, and of those of its submodules: for caches, which are used for a time.
   *
   * @internal
   */
  releaseBuffers(): void {
    releaseBuffers(this.buffers());
  }

  /**
   * Frees the memory of gradients of parameters that were frozen after they were placed, if all that were placed together are frozen.
   *
   * @internal
   */
  releaseGradients(): void {
    releaseGradients(this.parameters());
  }

  /**
   * Calls a function with every submodule, then with this module: for your own initialization.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 1));
   * model.apply((module) => {
   *   if (module instanceof nn.Linear) module.weight.initialize(nn.init.xavierUniform());
   * });
   * ```
   */
  apply(visit: (module: Module) => void): this {
    for (const [, child] of this.namedChildren()) child.apply(visit);
    visit(this);
    return this;
  }

  /**
   * Sets training mode for this module and all submodules, or evaluation mode.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Dropout(0.5)).eval();
   * model.train();
   * console.log([...model.namedModules()].every(([, module]) => module.isTraining)); // → true
   * ```
   */
  train(isTraining = true): this {
    for (const [, module] of this.namedModules()) {
      tracing.guards?.noteWrite(module, Module.#mode, isTraining, () => module.#modeName());
      beforeChange(module, Module.#mode);
      module.#isTraining = isTraining;
    }
    stateChanged();
    return this;
  }

  /**
   * Sets evaluation mode: dropout is inactive.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Sequential(new nn.Dropout(0.9)).eval();
   * console.log(model.forward(ones([3])).tolist()); // → [ 1, 1, 1 ]
   * cpu.close();
   * ```
   */
  eval(): this {
    return this.train(false);
  }

  /**
   * Requires gradients of all parameters, or freezes them.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Linear(3, 2), new nn.Linear(2, 1));
   * const [body] = model;
   * body?.requiresGrad_(false);
   * console.log(model.parameters().map(({ requiresGrad }) => requiresGrad)); // → [ false, false, true, true ]
   * ```
   */
  requiresGrad_(requiresGrad = true): this {
    for (const parameter of this.parameters()) parameter.requiresGrad = requiresGrad;
    return this;
  }

  /**
   * Clears the gradients of all parameters at no cost: the next ones overwrite them.
   *
   * @example
   * ```ts
   * import { device, nn, ones } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1).to(cpu);
   * model.forward(ones([1, 2])).sum().backward();
   * model.zeroGrad();
   * console.log(model.weight.grad); // → null
   * cpu.close();
   * ```
   */
  zeroGrad(): void {
    for (const parameter of this.parameters()) if (parameter.isPlaced) parameter.zeroGrad();
  }

  /**
   * The parameters and persistent buffers by path: the tensors themselves, not copies.
   *
   * @example
   * ```ts
   * import { device, nn } from "holdfast";
   * const cpu = await device("cpu");
   * const model = new nn.Linear(2, 1).to(cpu);
   * const state = model.stateDict();
   * console.log(Object.keys(state), state["weight"] === model.weight); // → [ 'weight', 'bias' ] true
   * cpu.close();
   * ```
   */
  stateDict(): Record<string, Tensor> {
    return Object.fromEntries(this.#namedState());
  }

  /** Parameters and persistent buffers. */
  *#namedState(): Generator<[path: string, tensor: ModuleTensor]> {
    for (const named of this.#namedTensors())
      if (named[1] instanceof Parameter || named[1].persistent) yield named;
  }

  /**
   * Loads the values of a state: tensors, or elements in file format. With `strict`, every name must be in both, with
   * the same shape. Otherwise names in both are loaded, and the others are returned; a different shape is always an
   * error. Nothing is written unless everything fits.
   *
   * @example
   * ```ts
   * import { device, nn, zeros } from "holdfast";
   * const cpu = await device("cpu");
   * const [trained, copy] = [new nn.Linear(2, 1).to(cpu), new nn.Linear(2, 1).to(cpu)];
   * copy.loadStateDict(trained.stateDict());
   * console.log(copy.weight.eq(trained.weight).all().tolist()); // → true
   * console.log(copy.loadStateDict({ bias: zeros([1]) }, { strict: false }));
   * // → { missing: [ 'weight' ], unexpected: [] }
   * cpu.close();
   * ```
   */
  loadStateDict(state: LoadableState, options: { readonly strict?: boolean } = {}): LoadResult {
    const { strict = true } = checkOptions("nn.Module.loadStateDict", options, { strict: true });
    const tensors = new Map(this.#namedState());
    const result = matchState(this.constructor.name, tensors, state, strict);
    writeState(tensors, state);
    return result;
  }

  /**
   * The module and its submodules with their sizes, in PyTorch's format.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(String(new nn.Sequential(new nn.Linear(2, 1), new nn.Sigmoid())));
   * // → Sequential(
   * // →   (0): Linear(inFeatures=2, outFeatures=1, bias=true)
   * // →   (1): Sigmoid()
   * // → )
   * ```
   */
  toString(): string {
    const lines = [...this.namedChildren()].map(
      ([name, child]) => `  (${name}): ${String(child).replaceAll("\n", "\n  ")}`,
    );
    const head = `${this.constructor.name}(${this.describe()}`;
    return lines.length > 0 ? `${head}\n${lines.join("\n")}\n)` : `${head})`;
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return this.toString();
  }

  #modeName(): string {
    return `isTraining of ${this.constructor.name}`;
  }

  /** The text in parentheses when the module is printed: its sizes. */
  protected describe(): string {
    return "";
  }

  #register<Item extends Part>(call: RegisterCall, name: string, item: Item, isOne: boolean): Item {
    const subject = `${this.constructor.name}.${call}(${JSON.stringify(name)}, …)`;
    if (!isOne) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${subject} takes a ${registered[call]} as its second argument.`,
      );
    }
    if (typeof name !== "string" || name === "" || name.includes(".")) {
      throw new HoldfastError("BAD_ARGUMENT", `${subject}: pass a name that is a text without dots.`);
    }
    const existing = this.#registered.get(name);
    if (existing !== undefined && existing !== item) {
      throw new HoldfastError(
        "BAD_ARGUMENT",
        `${subject}: the name is already used. Register each item under its own name.`,
      );
    }
    this.#registered.set(name, item);
    return item;
  }

  #items(): readonly NamedItem<Part>[] {
    const items = [...itemsIn(fieldsOf(this), isPart), ...this.#registered];
    requireOwnNames(this.constructor.name, items);
    return items;
  }
}

/** What a module is made of. */
type Part = Module | Parameter | Buffer;

const registered = {
  registerModule: "module",
  registerParameter: "parameter",
  registerBuffer: "tensor that is no parameter",
} as const;
type RegisterCall = keyof typeof registered;

function isPart(value: object): value is Part {
  return value instanceof Module || value instanceof Parameter || value instanceof Buffer;
}
