/**
 * Dead code elimination: drops calls whose results no call reads, in step memory or in persistent memory that is dead on exit. Other
 * writes to persistent memory stay.
 */

import type { Access, BufferSlice, Node, Program } from "../program/program.js";
import { isDeadOnExit } from "../trace/dead-on-exit.js";

export function eliminateDeadCalls(program: Program, deadOnExit: readonly BufferSlice[] = []): void {
  const isNeeded = (node: Node, { slice, writes }: Access): boolean => {
    if (!writes) return false;
    if (slice.buffer.storage && !isDeadOnExit(deadOnExit, slice)) return true;
    const lastReader = program.uses(slice.buffer).readers.at(-1);
    return lastReader !== undefined && node.isBefore(lastReader);
  };
  // From the last call to the first: a call whose only readers were dropped is dropped, too.
  for (const node of program.nodes.toReversed())
    if (!node.accesses.some((access) => isNeeded(node, access))) program.remove(node);
}
