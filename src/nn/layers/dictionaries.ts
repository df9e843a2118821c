/** ModuleDict, ParameterList and ParameterDict: modules by key, and parameters by index or key. */

import { type GuardedField, stateChanged, tracing } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import { Module } from "../module.js";
import type { Parameter } from "../parameter.js";

/**
 * Modules by key, for your own `forward`. The keys are the names of the modules.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const heads = new nn.ModuleDict({ up: new nn.Linear(4, 1), down: new nn.Linear(4, 2) }).to(cpu);
 * console.log(heads.get("down").forward(ones([1, 4])).shape, [...heads.keys()]); // → [ 1, 2 ] [ 'up', 'down' ]
 * console.log([...heads.namedParameters()].map(([name]) => name)[0]); // → up.weight
 * cpu.close();
 * ```
 */
export class ModuleDict<M extends Module = Module> extends Module implements Iterable<[string, M]> {
  #modules: ReadonlyMap<string, M>;
  static readonly #field: GuardedField<ModuleDict> = {
    read: (dict) => dict.#modules,
    write: (dict, modules) => {
      dict.#modules = modules as ReadonlyMap<string, Module>;
    },
  };

  constructor(modules: Readonly<Record<string, M>> = {}) {
    super();
    this.#modules = new Map(Object.entries(modules));
    for (const key of this.#modules.keys()) requireKey("ModuleDict", key);
  }

  #read(): ReadonlyMap<string, M> {
    const modules = this.#modules;
    tracing.guards?.noteRead<ModuleDict>(
      this,
      ModuleDict.#field,
      modules,
      () => "the modules of a ModuleDict",
    );
    return modules;
  }

  /**
   * The number of modules.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ModuleDict({ a: new nn.ReLU(), b: new nn.Tanh() }).size); // → 2
   * ```
   */
  get size(): number {
    return this.#read().size;
  }

  /**
   * The module of a key; an unknown key is an error.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(String(new nn.ModuleDict({ act: new nn.ReLU() }).get("act"))); // → ReLU()
   * ```
   */
  get(key: string): M {
    const modules = this.#read();
    return modules.get(key) ?? unknownKey("ModuleDict", key, modules.keys());
  }

  /**
   * True if there is a module of this key.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ModuleDict({ act: new nn.ReLU() }).has("norm")); // → false
   * ```
   */
  has(key: string): boolean {
    return this.#read().has(key);
  }

  /**
   * Sets the module of a key, before the dictionary moves to a device.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const blocks = new nn.ModuleDict<nn.Linear>();
   * for (const width of [8, 4]) blocks.set(`to${width}`, new nn.Linear(16, width));
   * console.log([...blocks.keys()]); // → [ 'to8', 'to4' ]
   * ```
   */
  set(key: string, module: M): this {
    requireKey("ModuleDict", key);
    this.#modules = new Map(this.#modules).set(key, module);
    stateChanged();
    return this;
  }

  /**
   * Removes the module of a key; false if there was none.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const blocks = new nn.ModuleDict({ act: new nn.ReLU() });
   * console.log(blocks.delete("act"), blocks.size); // → true 0
   * ```
   */
  delete(key: string): boolean {
    const modules = new Map(this.#modules);
    const isRemoved = modules.delete(key);
    this.#modules = modules;
    stateChanged();
    return isRemoved;
  }

  /**
   * The keys, in order.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log([...new nn.ModuleDict({ act: new nn.ReLU() }).keys()]); // → [ 'act' ]
   * ```
   */
  keys(): IterableIterator<string> {
    return this.#read().keys();
  }

  /**
   * The modules, in the order of their keys.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log([...new nn.ModuleDict({ act: new nn.ReLU() }).values()].join()); // → ReLU()
   * ```
   */
  values(): IterableIterator<M> {
    return this.#read().values();
  }

  /**
   * The modules, named by key.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const blocks = new nn.ModuleDict({ act: new nn.ReLU() });
   * console.log([...blocks.namedChildren()].map(([name]) => name)); // → [ 'act' ]
   * ```
   */
  override *namedChildren(): Generator<[name: string, module: Module]> {
    yield* this.#read();
    // A subclass may have its own fields.
    yield* super.namedChildren();
  }

  [Symbol.iterator](): Iterator<[string, M]> {
    return this.#read()[Symbol.iterator]();
  }
}

/**
 * Parameters in a list, named "0", "1", ….
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const scales = new nn.ParameterList([1, 2].map((size) => new nn.Parameter([size], nn.init.ones())));
 * console.log(scales.length, scales.at(-1).shape, [...scales.namedParameters()].map(([name]) => name));
 * // → 2 [ 2 ] [ '0', '1' ]
 * ```
 */
export class ParameterList extends Module implements Iterable<Parameter> {
  readonly #list: Parameter[] = [];

  constructor(parameters: Iterable<Parameter> = []) {
    super();
    for (const parameter of parameters) this.append(parameter);
  }

  /**
   * The number of parameters.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ParameterList([new nn.Parameter([1], nn.init.ones())]).length); // → 1
   * ```
   */
  get length(): number {
    return this.#list.length;
  }

  /**
   * The parameter at an index; negative indices count from the end.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ParameterList([new nn.Parameter([3], nn.init.ones())]).at(0).shape); // → [ 3 ]
   * ```
   */
  at(index: number): Parameter {
    const parameter = this.#list.at(index);
    if (parameter) return parameter;
    const { length } = this.#list;
    throw new HoldfastError("BAD_INDEX", `A list of ${length} parameters has no index ${index}.`, {
      numbers: { index, length },
    });
  }

  /**
   * Appends a parameter, before the list moves to a device.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const scales = new nn.ParameterList().append(new nn.Parameter([1], nn.init.ones()));
   * console.log(scales.parameterCount); // → 1
   * ```
   */
  append(parameter: Parameter): this {
    this.registerParameter(String(this.#list.length), parameter);
    this.#list.push(parameter);
    stateChanged();
    return this;
  }

  [Symbol.iterator](): Iterator<Parameter> {
    return this.#list[Symbol.iterator]();
  }
}

/**
 * Parameters by key. The keys are their names.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const scales = new nn.ParameterDict({ left: new nn.Parameter([1], nn.init.ones()) });
 * console.log(scales.get("left").shape, [...scales.namedParameters()].map(([name]) => name)); // → [ 1 ] [ 'left' ]
 * ```
 */
export class ParameterDict extends Module implements Iterable<[string, Parameter]> {
  readonly #byKey = new Map<string, Parameter>();

  constructor(parameters: Readonly<Record<string, Parameter>> = {}) {
    super();
    for (const [key, parameter] of Object.entries(parameters)) this.set(key, parameter);
  }

  /**
   * The number of parameters.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ParameterDict({ a: new nn.Parameter([1], nn.init.ones()) }).size); // → 1
   * ```
   */
  get size(): number {
    return this.#byKey.size;
  }

  /**
   * The parameter of a key; an unknown key is an error.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ParameterDict({ a: new nn.Parameter([3], nn.init.ones()) }).get("a").shape); // → [ 3 ]
   * ```
   */
  get(key: string): Parameter {
    return this.#byKey.get(key) ?? unknownKey("ParameterDict", key, this.#byKey.keys());
  }

  /**
   * True if there is a parameter of this key.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ParameterDict().has("a")); // → false
   * ```
   */
  has(key: string): boolean {
    return this.#byKey.has(key);
  }

  /**
   * Adds a parameter under a new key, before the dictionary moves to a device.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const scales = new nn.ParameterDict().set("a", new nn.Parameter([1], nn.init.ones()));
   * console.log([...scales.keys()]); // → [ 'a' ]
   * ```
   */
  set(key: string, parameter: Parameter): this {
    this.registerParameter(key, parameter);
    this.#byKey.set(key, parameter);
    stateChanged();
    return this;
  }

  /**
   * The keys, in order.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log([...new nn.ParameterDict({ a: new nn.Parameter([1], nn.init.ones()) }).keys()]); // → [ 'a' ]
   * ```
   */
  keys(): IterableIterator<string> {
    return this.#byKey.keys();
  }

  [Symbol.iterator](): Iterator<[string, Parameter]> {
    return this.#byKey[Symbol.iterator]();
  }
}

function requireKey(owner: string, key: string): void {
  if (key !== "" && !key.includes(".")) return;
  throw new HoldfastError(
    "BAD_ARGUMENT",
    `${owner}: the key ${JSON.stringify(key)} must be a text without dots.`,
  );
}

function unknownKey(owner: string, key: string, keys: Iterable<string>): never {
  throw new HoldfastError(
    "BAD_INDEX",
    `A ${owner} has no key ${JSON.stringify(key)}. It has: ${[...keys].join(", ") || "none"}.`,
    { numbers: { key } },
  );
}
