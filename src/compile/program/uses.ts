/** Which calls of a program read and write each buffer. */

import { beat } from "../../units/index.js";
import { type Access, accessesOf, type Buffer, type BufferSlice, type Call } from "./program.js";
import { areDisjoint, extentOf } from "./slices.js";

export interface Uses {
  /** Places of calls, ascending. */
  readonly writers: readonly number[];
  readonly readers: readonly number[];
}

export function usesOf(calls: readonly Call[]): ReadonlyMap<Buffer, Uses> {
  const uses = new Map<Buffer, { writers: number[]; readers: number[] }>();
  for (const [place, call] of calls.entries()) {
    beat();
    for (const { slice, reads, writes } of accessesOf(call)) {
      let own = uses.get(slice.buffer);
      if (!own) {
        own = { writers: [], readers: [] };
        uses.set(slice.buffer, own);
      }
      if (reads && own.readers.at(-1) !== place) own.readers.push(place);
      if (writes && own.writers.at(-1) !== place) own.writers.push(place);
    }
  }
  return uses;
}

/** Does a call touch some of these parts, in a way that is meant? */
export function meets(
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

/** Is it step memory that one call writes, and no other? */
export function isMadeOnce(uses: ReadonlyMap<Buffer, Uses>, buffer: Buffer): boolean {
  return !buffer.storage && uses.get(buffer)?.writers.length === 1;
}

/** Is it persistent, and at this place still as it was before the step? */
export function isUnchanged(uses: ReadonlyMap<Buffer, Uses>, buffer: Buffer, place: number): boolean {
  return buffer.storage !== undefined && !uses.get(buffer)?.writers.some((writer) => writer < place);
}

/** Makes step buffers whose numbers no other of the program has. */
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
