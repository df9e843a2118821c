/** A value of a graph: an array, and where it came from if a gradient can flow back through it. */

import type { DeviceArray } from "../ops/index.js";
import type { Node } from "./node.js";

/** Where gradients end: a tensor that asked for its own. */
export interface Leaf {
  /** Adds to what has arrived before. The array is only lent. */
  accumulate(gradient: DeviceArray): void;
}

export interface Source {
  readonly node: Node;
  readonly output: number;
}

export class Value {
  readonly array: DeviceArray;
  /** Exactly one of these is there where a gradient is wanted. An op in place gives its value a new source. */
  source: Source | undefined;
  leaf: Leaf | undefined;

  constructor(array: DeviceArray, from: { readonly source?: Source; readonly leaf?: Leaf } = {}) {
    this.array = array;
    this.source = from.source;
    this.leaf = from.leaf;
  }

  get requiresGrad(): boolean {
    return this.source !== undefined || this.leaf !== undefined;
  }
}
