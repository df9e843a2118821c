/** The memory traffic of a call. */

import { accessesOf, type BufferSlice, type Call } from "./program.js";

/**
 * The bytes of the slices that a call reads and writes, each slice once. A slice that is accessed with gaps, or of which rows are picked
 * by index, counts whole.
 */
export function bytesOf(call: Call): { readonly read: number; readonly written: number } {
  const [reads, writes]: [Map<string, number>, Map<string, number>] = [new Map(), new Map()];
  const note = (into: Map<string, number>, { buffer, offset, size }: BufferSlice): void =>
    void into.set(`${buffer.id} ${offset} ${size}`, size);
  for (const access of accessesOf(call)) {
    if (access.reads) note(reads, access.slice);
    if (access.writes) note(writes, access.slice);
  }
  return { read: sum(reads.values()), written: sum(writes.values()) };
}

function sum(sizes: Iterable<number>): number {
  let total = 0;
  for (const size of sizes) total += size;
  return total;
}
