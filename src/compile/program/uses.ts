/** The readers and writers of each buffer of a program. */

import { beat } from "../../units/index.js";
import { type Access, accessesOf, type Buffer, type BufferSlice, type Call } from "./program.js";
import { areDisjoint, extentOf } from "./slices.js";

export interface Uses {
  /** Indices of calls, ascending. */
  readonly writers: readonly number[];
  readonly readers: readonly number[];
}

export function usesOf(calls: readonly Call[]): ReadonlyMap<Buffer, Uses> {
  const uses = new Map<Buffer, { writers: number[]; readers: number[] }>();
  for (const [index, call] of calls.entries()) {
    beat();
    for (const { slice, reads, writes } of accessesOf(call)) {
      let own = uses.get(slice.buffer);
      if (!own) {
        own = { writers: [], readers: [] };
        uses.set(slice.buffer, own);
      }
      if (reads && own.readers.at(-1) !== index) own.readers.push(index);
      if (writes && own.writers.at(-1) !== index) own.writers.push(index);
    }
  }
  return uses;
}

/** True if a call accesses some of these slices, and `isMeant` holds for the access. */
export function accesses(
  call: Call,
  slices: readonly BufferSlice[],
  isMeant: (access: Access) => boolean = () => true,
): boolean {
  const extents = slices.map(extentOf);
  return accessesOf(call).some(
    (access) => isMeant(access) && extents.some((extent) => !areDisjoint(extent, extentOf(access.slice))),
  );
}

export const isReading = ({ reads }: Access): boolean => reads;
export const isWriting = ({ writes }: Access): boolean => writes;

/** True for step memory with a single writer. */
export function isMadeOnce(uses: ReadonlyMap<Buffer, Uses>, buffer: Buffer): boolean {
  return !buffer.storage && uses.get(buffer)?.writers.length === 1;
}

/** True for persistent memory that no call before this index has written. */
export function isUnchanged(uses: ReadonlyMap<Buffer, Uses>, buffer: Buffer, index: number): boolean {
  return buffer.storage !== undefined && !uses.get(buffer)?.writers.some((writer) => writer < index);
}

/** Makes step buffers with ids that are new to the program. */
export function bufferMaker(calls: readonly Call[]): (bytes: number, label: string) => Buffer {
  let last = 0;
  for (const call of calls) {
    beat();
    for (const { slice } of accessesOf(call)) last = Math.max(last, slice.buffer.id);
  }
  return (bytes, label) => {
    last++;
    return { id: last, bytes, label };
  };
}
