/** A value of a graph: an array, and where it came from if a gradient can flow back through it. */

import type { DeviceArray } from "../ops/index.js";
import { type GuardedField, stateChanged, tracing } from "./guards.js";
import type { Node } from "./node.js";
import { recordedVersionOf } from "./versions.js";

/** Where gradients end: a tensor that asked for its own. */
export interface Leaf {
  /** Adds to what has arrived before. The array is only lent. */
  accumulate(gradient: DeviceArray): void;
  /**
   * Where a first gradient belongs, and nothing where one has arrived. Whoever is told it copies one there: from here on it
   * counts as arrived.
   */
  takePlace(): DeviceArray | undefined;
}

export interface Source {
  readonly node: Node;
  readonly output: number;
}

/** Where a value comes from; nothing of it where the user made it. */
export interface Origin {
  readonly source?: Source;
  readonly leaf?: Leaf;
  /** What it is a view of. */
  readonly base?: Value | undefined;
  /** What has cut it off from a graph that it was part of; backward says so. */
  readonly cutBy?: Cut | undefined;
}

/** What cuts a value off from its graph: the user, or the end of the step whose graph it was. */
export type Cut = "detach" | "keep" | "keep without a graph" | "compiled step";

export class Value {
  readonly array: DeviceArray;
  readonly base: Value | undefined;
  readonly cutBy: Cut | undefined;
  /** Exactly one of these is there where a gradient is wanted. An op in place gives its value a new source. */
  source: Source | undefined;
  #leaf: Leaf | undefined;
  static readonly #leafField: GuardedField<Value> = {
    read: (value) => value.#leaf,
    write: (value, leaf) => {
      value.#leaf = leaf as Leaf | undefined;
    },
  };
  #recordedVersion: number;

  constructor(array: DeviceArray, { source, leaf, base, cutBy }: Origin = {}) {
    this.array = array;
    this.source = source;
    this.#leaf = leaf;
    this.base = base;
    this.cutBy = cutBy;
    this.#recordedVersion = recordedVersionOf(array.storage);
    tracing.guards?.noteMade(this);
  }

  get leaf(): Leaf | undefined {
    tracing.guards?.noteRead(this, Value.#leafField, this.#leaf, () => this.#guardName);
    return this.#leaf;
  }

  set leaf(leaf: Leaf | undefined) {
    tracing.guards?.noteWrite(this, Value.#leafField, leaf, () => this.#guardName);
    this.#leaf = leaf;
    stateChanged();
  }

  get #guardName(): string {
    return `requiresGrad of "${this.array.storage?.label ?? "an empty tensor"}"`;
  }

  /** Cut off on purpose: writes that are recorded through others are no concern of it. */
  get isDetached(): boolean {
    return this.cutBy !== undefined && this.cutBy !== "compiled step";
  }

  /** Was its memory since written to by an op that was recorded for another value over it? */
  get isOverwritten(): boolean {
    return !this.isDetached && this.#recordedVersion !== recordedVersionOf(this.array.storage);
  }

  /** It stands for what a recorded write has just put there. */
  replaceSource(source: Source | undefined): void {
    this.source = source;
    this.#recordedVersion = recordedVersionOf(this.array.storage);
  }

  get requiresGrad(): boolean {
    return this.source !== undefined || this.leaf !== undefined;
  }
}
