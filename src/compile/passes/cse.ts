/** Common subexpression elimination: calls that do the same work on the same values run once. */

import { literalKey } from "../../units/index.js";
import { kindOf } from "../program/kinds/index.js";
import type { KeyParts } from "../program/kinds/kind.js";
import { accessesOf, type Buffer, type BufferSlice, type Call, mapSlices } from "../program/program.js";
import { usesOf } from "../program/uses.js";

/** `keyOfLiterals`: the text of numbers and layouts in a key; a test passes a lossy one to show that it matters. */
export function eliminateCommonCalls(
  calls: readonly Call[],
  keyOfLiterals: (value: unknown) => string = literalKey,
): readonly Call[] {
  const uses = usesOf(calls);
  const identities = new Identities();
  /** How often each buffer has been written so far. */
  const versions = new Map<Buffer, number>();
  const versionOf = (buffer: Buffer): number => versions.get(buffer) ?? 0;
  const parts: KeyParts = {
    read: ({ buffer, offset, size }) => `${buffer.id}.${versionOf(buffer)}+${offset}:${size}`,
    written: ({ size }) => `>${size}`,
    literal: keyOfLiterals,
    identity: (object) => identities.of(object),
  };
  const known = new Map<string, Call>();
  const same = new Map<Buffer, Buffer>();
  const left: Call[] = [];
  for (const call of calls) {
    const moved = { ...call, work: mapSlices(call.work, (slice) => seenAt(slice, same)) };
    const accesses = accessesOf(moved);
    const outputs = accesses.filter(({ writes }) => writes);
    // Its results must be whole step buffers that no other call writes.
    const isPure =
      outputs.length > 0 &&
      outputs.every(
        ({ slice, reads }) =>
          !reads &&
          !slice.buffer.storage &&
          slice.size === slice.buffer.bytes &&
          uses.get(slice.buffer)?.writers.length === 1,
      );
    const key = isPure ? `${moved.work.kind} ${kindOf(moved.work).key(moved.work, parts)}` : undefined;
    const first = key === undefined ? undefined : known.get(key);
    if (first) {
      const made = accessesOf(first).filter(({ writes }) => writes);
      for (const [index, { slice }] of outputs.entries()) {
        const other = made[index]?.slice.buffer;
        if (other) same.set(slice.buffer, other);
      }
      continue;
    }
    if (key !== undefined) known.set(key, moved);
    for (const { slice } of outputs) versions.set(slice.buffer, versionOf(slice.buffer) + 1);
    left.push(moved);
  }
  return left;
}

function seenAt(slice: BufferSlice, same: ReadonlyMap<Buffer, Buffer>): BufferSlice {
  const buffer = same.get(slice.buffer);
  return buffer ? { ...slice, buffer } : slice;
}

/** Numbers objects, so that a key can contain them. */
class Identities {
  readonly #known = new Map<object, number>();

  of(object: object): string {
    const number = this.#known.get(object) ?? this.#known.size;
    this.#known.set(object, number);
    return `#${number}`;
  }
}
