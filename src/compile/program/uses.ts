/** Questions that passes ask about the uses of memory. */

import { beat } from "../../units/index.js";
import {
  type Access,
  accessesOf,
  type Buffer,
  type BufferSlice,
  type Call,
  type Node,
  type Program,
} from "./program.js";
import { areDisjoint, extentOf } from "./slices.js";

/** True if one of the accesses shares bytes with one of the slices, and `isMeant` holds for the access. */
export function touches(
  accesses: readonly Access[],
  slices: readonly BufferSlice[],
  isMeant: (access: Access) => boolean = () => true,
): boolean {
  return accesses.some((access) => {
    if (!isMeant(access)) return false;
    const extent = extentOf(access.slice);
    return slices.some((slice) => !areDisjoint(extent, extentOf(slice)));
  });
}

export const isReading = ({ reads }: Access): boolean => reads;
export const isWriting = ({ writes }: Access): boolean => writes;

/** True for step memory with a single writer. */
export function isWrittenOnce(program: Program, buffer: Buffer): boolean {
  return !buffer.storage && program.uses(buffer).writers.length === 1;
}

/** True for persistent memory that no call before a node writes. */
export function isUnchangedBefore(program: Program, buffer: Buffer, node: Node): boolean {
  const [firstWriter] = program.uses(buffer).writers;
  return buffer.storage !== undefined && !firstWriter?.isBefore(node);
}

/** True if a node other than these reads a buffer. */
export function isReadByOthers(program: Program, buffer: Buffer, nodes: readonly Node[]): boolean {
  return program.uses(buffer).readers.some((reader) => !nodes.includes(reader));
}

/** True if another node reads a buffer after the first of these. Earlier ones read what was there before. */
export function isReadAfterFirst(program: Program, buffer: Buffer, nodes: readonly Node[]): boolean {
  return program
    .uses(buffer)
    .readers.some((reader) => !nodes.includes(reader) && !nodes.every((node) => reader.isBefore(node)));
}

/** Makes step buffers with ids that are new to these calls. */
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
