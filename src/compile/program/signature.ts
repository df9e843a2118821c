/**
 * Signatures of traced calls: two traces of a step that do the same work have the same signatures in the same order. An
 * audit compares them.
 */

import { kernelKey } from "../../ir/index.js";
import { literalKey } from "../../units/index.js";
import type { Buffer, BufferSlice, Call } from "./program.js";

/** The signatures of one trace, call after call. */
export class Signatures {
  /** Step memory by the order in which calls first touch it. */
  readonly #numbers = new Map<Buffer, number>();

  of({ op, work }: Pick<Call, "op" | "work">): string {
    return `${op} ${this.#keyOf(work)}`;
  }

  /** Persistent memory counts by where it lies. */
  ofSlice({ buffer, offset, size }: BufferSlice): string {
    const { storage, bytes } = buffer;
    return `${storage ? `${storage.span.address}, ${bytes} B` : this.#numberOf(buffer)}+${offset}:${size}`;
  }

  #numberOf(buffer: Buffer): string {
    const number = this.#numbers.get(buffer) ?? this.#numbers.size;
    this.#numbers.set(buffer, number);
    return `buffer ${number}`;
  }

  #keyOf(value: unknown): string {
    if (typeof value !== "object" || value === null) return literalKey(value);
    if (Array.isArray(value)) return `[${value.map((one) => this.#keyOf(one)).join()}]`;
    if (isSlice(value)) return this.ofSlice(value);
    const members = Object.entries(value).map(([name, member]) => {
      const isKernel = name === "kernel" && isObject(member);
      return `${name}:${isKernel ? kernelKey(member) : this.#keyOf(member)}`;
    });
    return `{${members.join()}}`;
  }
}

function isSlice(value: object): value is BufferSlice {
  return "buffer" in value && "offset" in value && "size" in value;
}

function isObject(value: unknown): value is object {
  return typeof value === "object" && value !== null;
}
