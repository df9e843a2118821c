/**
 * Signatures of traced calls: two traces of a step that do the same work have the same signatures in the same order. An
 * audit compares them.
 */

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
      return `${name}:${isKernel ? idOf(member) : this.#keyOf(member)}`;
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

/**
 * A number for each structure of a kernel: kernels may be made anew for every trace. Their expressions share parts, so each
 * part is looked at once.
 */
const ids = new WeakMap<object, string>();
const idsByStructure = new Map<string, string>();

function idOf(one: object): string {
  const known = ids.get(one);
  if (known !== undefined) return known;
  const members = Object.entries(one).map(
    ([name, member]) => `${name}:${isObject(member) ? idOf(member) : literalKey(member)}`,
  );
  const structure = `${Array.isArray(one) ? "list" : ""}${members.join()}`;
  const id = idsByStructure.get(structure) ?? `#${idsByStructure.size}`;
  idsByStructure.set(structure, id);
  ids.set(one, id);
  return id;
}
