/** Containers: modules in sequence, or in a list. Their children are named "0", "1", … */

import { type GuardedField, stateChanged, tracing } from "../../autograd/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { Module } from "../module.js";

/** A module that maps one tensor to one tensor. */
export interface Layer extends Module {
  forward(x: Tensor): Tensor;
}

/**
 * Applies layers in sequence.
 *
 * @example
 * ```ts
 * import { device, nn, ones } from "holdfast";
 * const cpu = await device("cpu");
 * const model = new nn.Sequential(new nn.Linear(4, 8), new nn.ReLU(), new nn.Linear(8, 1)).to(cpu);
 * console.log(model.forward(ones([2, 4])).shape); // → [ 2, 1 ]
 * console.log([...model.namedParameters()].map(([name]) => name).join()); // → 0.weight,0.bias,2.weight,2.bias
 * console.log(String(model));
 * // → Sequential(
 * // →   (0): Linear(inFeatures=4, outFeatures=8, bias=true)
 * // →   (1): ReLU()
 * // →   (2): Linear(inFeatures=8, outFeatures=1, bias=true)
 * // → )
 * cpu.close();
 * ```
 */
export class Sequential extends Module implements Iterable<Layer> {
  readonly #layers: readonly Layer[];

  constructor(...layers: readonly Layer[]) {
    super();
    this.#layers = layers;
  }

  /**
   * The number of layers.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.Sequential(new nn.Linear(2, 4), new nn.ReLU()).length); // → 2
   * ```
   */
  get length(): number {
    return this.#layers.length;
  }

  /**
   * The layer at an index; negative indices count from the end.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Linear(2, 4), new nn.ReLU());
   * console.log(String(model.at(-1))); // → ReLU()
   * ```
   */
  at(index: number): Layer {
    return itemAt(this.#layers, index);
  }

  /** Applies all layers in sequence. */
  forward(x: Tensor): Tensor {
    return this.#layers.reduce((value, layer) => layer.forward(value), x);
  }

  /**
   * The layers, named by index.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const model = new nn.Sequential(new nn.Linear(2, 4), new nn.ReLU());
   * console.log([...model.namedChildren()].map(([name, layer]) => `${name}: ${layer}`)[1]); // → 1: ReLU()
   * ```
   */
  override *namedChildren(): Generator<[name: string, module: Module]> {
    yield* numbered(this.#layers);
    // A subclass may have its own fields.
    yield* super.namedChildren();
  }

  [Symbol.iterator](): Iterator<Layer> {
    return this.#layers[Symbol.iterator]();
  }
}

/**
 * Modules in a list, for your own `forward`.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const blocks = new nn.ModuleList([new nn.Linear(4, 4), new nn.Linear(4, 2)]);
 * console.log(blocks.length, blocks.at(-1).outFeatures); // → 2 2
 * ```
 */
export class ModuleList<M extends Module = Module> extends Module implements Iterable<M> {
  #modules: readonly M[];
  static readonly #field: GuardedField<ModuleList> = {
    read: (list) => list.#modules,
    write: (list, modules) => {
      list.#modules = modules as readonly Module[];
    },
  };

  constructor(modules: Iterable<M> = []) {
    super();
    this.#modules = [...modules];
  }

  #read(): readonly M[] {
    const modules = this.#modules;
    tracing.guards?.noteRead<ModuleList>(
      this,
      ModuleList.#field,
      modules,
      () => "the modules of a ModuleList",
    );
    return modules;
  }

  /**
   * The number of modules.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * console.log(new nn.ModuleList([new nn.ReLU(), new nn.Tanh()]).length); // → 2
   * ```
   */
  get length(): number {
    return this.#read().length;
  }

  /**
   * The module at an index; negative indices count from the end.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const blocks = new nn.ModuleList([new nn.Linear(2, 4), new nn.Linear(4, 8)]);
   * console.log(blocks.at(0).outFeatures, blocks.at(-1).outFeatures); // → 4 8
   * ```
   */
  at(index: number): M {
    return itemAt(this.#read(), index);
  }

  /**
   * Appends a module, before the list moves to a device.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const blocks = new nn.ModuleList<nn.Linear>();
   * for (const width of [8, 4]) blocks.append(new nn.Linear(16, width));
   * console.log([...blocks].map(({ outFeatures }) => outFeatures)); // → [ 8, 4 ]
   * ```
   */
  append(module: M): this {
    this.#modules = [...this.#modules, module];
    stateChanged();
    return this;
  }

  /**
   * The modules, named by index.
   *
   * @example
   * ```ts
   * import { nn } from "holdfast";
   * const blocks = new nn.ModuleList([new nn.ReLU(), new nn.Tanh()]);
   * console.log([...blocks.namedChildren()].map(([name]) => name)); // → [ '0', '1' ]
   * ```
   */
  override *namedChildren(): Generator<[name: string, module: Module]> {
    yield* numbered(this.#read());
    // A subclass may have its own fields.
    yield* super.namedChildren();
  }

  [Symbol.iterator](): Iterator<M> {
    return this.#read()[Symbol.iterator]();
  }
}

function itemAt<M>(modules: readonly M[], index: number): M {
  const module = modules.at(index);
  if (module) return module;
  const { length } = modules;
  throw new HoldfastError("BAD_INDEX", `A list of ${length} modules has no index ${index}.`, {
    numbers: { index, length },
  });
}

function* numbered(modules: readonly Module[]): Generator<[name: string, module: Module]> {
  for (const [index, module] of modules.entries()) yield [String(index), module];
}
