/** Containers: modules one behind the other, or in a list. Their children are named "0", "1", … */

import { HoldfastError } from "../../errors/index.js";
import type { Tensor } from "../../tensor/index.js";
import { Module } from "../module.js";

/** A module that takes one tensor and gives one. */
export interface Layer extends Module {
  forward(x: Tensor): Tensor;
}

/**
 * Layers one behind the other.
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

  get length(): number {
    return this.#layers.length;
  }

  forward(x: Tensor): Tensor {
    return this.#layers.reduce((value, layer) => layer.forward(value), x);
  }

  override *namedChildren(): Generator<[name: string, module: Module]> {
    yield* numbered(this.#layers);
  }

  [Symbol.iterator](): Iterator<Layer> {
    return this.#layers[Symbol.iterator]();
  }
}

/**
 * Modules in a list, for a `forward` of your own to go through.
 *
 * @example
 * ```ts
 * import { nn } from "holdfast";
 * const blocks = new nn.ModuleList([new nn.Linear(4, 4), new nn.Linear(4, 2)]);
 * console.log(blocks.length, blocks.at(-1).outFeatures); // → 2 2
 * ```
 */
export class ModuleList<M extends Module = Module> extends Module implements Iterable<M> {
  readonly #modules: M[];

  constructor(modules: Iterable<M> = []) {
    super();
    this.#modules = [...modules];
  }

  get length(): number {
    return this.#modules.length;
  }

  /** The module at a place, counted from the end where negative. */
  at(index: number): M {
    const module = this.#modules.at(index);
    if (module) return module;
    throw new HoldfastError("BAD_INDEX", `A list of ${this.length} modules has none at ${index}.`, {
      numbers: { index, length: this.length },
    });
  }

  /** Puts one more behind the others; before the list moves to a device. */
  append(module: M): this {
    this.#modules.push(module);
    return this;
  }

  override *namedChildren(): Generator<[name: string, module: Module]> {
    yield* numbered(this.#modules);
  }

  [Symbol.iterator](): Iterator<M> {
    return this.#modules[Symbol.iterator]();
  }
}

function* numbered(modules: readonly Module[]): Generator<[name: string, module: Module]> {
  for (const [index, module] of modules.entries()) yield [String(index), module];
}
