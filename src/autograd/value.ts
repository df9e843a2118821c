/** A value of the graph: an array, and its source if a gradient can flow back through it. */

import type { DeviceArray } from "../ops/index.js";
import { type GuardedField, stateChanged, tracing } from "./guards.js";
import type { Leaf, Source } from "./node.js";
import { recordedVersionOf } from "./versions.js";

/** Where a value comes from; empty if the user created it. */
export interface Origin {
  readonly source?: Source;
  readonly leaf?: Leaf;
  /** The value that it is a view of. */
  readonly base?: Value | undefined;
  /** The cause of its detachment from a graph, for backward's message. */
  readonly cutBy?: Cut | undefined;
}

/** The cause of a value's detachment from its graph: a call of the user, or the end of the step. */
export type Cut = "detach" | "keep" | "keep without a graph" | "compiled step";

export class Value {
  readonly array: DeviceArray;
  readonly base: Value | undefined;
  readonly cutBy: Cut | undefined;
  /** Set if the value needs a gradient. An in-place op gives its value a new source. */
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
    tracing.guards?.noteCreated(this);
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

  /** True if it was detached on purpose: writes recorded through other values do not affect it. */
  get isDetached(): boolean {
    return this.cutBy !== undefined && this.cutBy !== "compiled step";
  }

  /** True if an op recorded through another value has since overwritten its memory. */
  get isOverwritten(): boolean {
    return !this.isDetached && this.#recordedVersion !== recordedVersionOf(this.array.storage);
  }

  /** Sets the source after a recorded write. */
  replaceSource(source: Source | undefined): void {
    this.source = source;
    this.#recordedVersion = recordedVersionOf(this.array.storage);
  }

  get requiresGrad(): boolean {
    return this.source !== undefined || this.leaf !== undefined;
  }
}
