/** Maps the storages of a trace to slices of buffers. */

import { ownerOf, type PersistentStorage, type Runtime, type Storage } from "../../runtime/index.js";
import type { Buffer, BufferSlice } from "./program.js";

export class Buffers {
  readonly #runtime: Runtime;
  /** By the owner of the bytes: a region of persistent memory, or a storage of the arena. */
  readonly #known = new Map<object, Buffer>();
  #next = 0;

  constructor(runtime: Runtime) {
    this.#runtime = runtime;
  }

  /** A step buffer without a storage. */
  make(bytes: number, label: string): Buffer {
    return { id: this.#next++, bytes, label };
  }

  sliceOf(storage: Storage): BufferSlice {
    const owner = wholeOf(storage);
    const key = owner.kind === "persistent" ? owner.home : owner;
    const buffer = this.#known.get(key) ?? this.#add(key, owner);
    return { buffer, offset: storage.span.address - owner.span.address, size: storage.span.size };
  }

  #add(key: object, owner: Storage): Buffer {
    const { size } = owner.span;
    const isTraced = this.#runtime.arena.isTraced(owner);
    const buffer: Buffer = { ...this.make(size, owner.label), ...(!isTraced && { storage: owner }) };
    this.#known.set(key, buffer);
    return buffer;
  }
}

/** The owner of a storage's bytes. A region counts as one, so that no two buffers share memory. */
function wholeOf(storage: Storage): Storage {
  if (storage.kind === "persistent") return (storage as PersistentStorage).home.whole;
  return ownerOf(storage);
}
