/** Rule `order`: calls that access the same memory run in program order, unless both only read. */

import { beat } from "../../units/index.js";
import type { Access } from "../program/program.js";
import type { AddressSpace } from "./address-space.js";
import { LatestIndices } from "./latest-indices.js";
import { nameSlice, rejection } from "./plan-error.js";
import { accessesAt, nameCallAt, type Proposal } from "./proposal.js";
import { none, type Order } from "./streams.js";

/**
 * Compares each access with the latest earlier accesses of every stream. Accesses older than the latest write stay recorded; that
 * is harmless, because they precede that write, which is compared too.
 */
export function requireOrder(proposal: Proposal, order: Order, space: AddressSpace): void {
  const writes = new LatestIndices(space.bounds, order.streams);
  const reads = new LatestIndices(space.bounds, order.streams);

  for (const [index, call] of proposal.program.entries()) {
    beat();
    const accesses = proposal.accesses[index] ?? [];
    const position = proposal.positions.get(call) ?? none;
    for (const access of accesses) {
      const { start, end } = space.rangeOf(access.slice);
      for (const earlier of access.writes ? [writes, reads] : [writes]) {
        for (const other of earlier.latest(start, end)) {
          if (other === none || order.isBefore(other, position)) continue;
          throw disorder(proposal, space, { access, position, other });
        }
      }
    }
    // Recorded after the comparison, because a call does not wait for itself.
    for (const { slice, reads: isRead, writes: isWritten } of accesses) {
      const { start, end } = space.rangeOf(slice);
      if (isWritten) writes.note(start, end, order.streamAt(position), position);
      if (isRead) reads.note(start, end, order.streamAt(position), position);
    }
  }
}

interface Conflict {
  readonly access: Access;
  readonly position: number;
  /** The schedule position of a call that precedes it in the program. */
  readonly other: number;
}

function disorder(proposal: Proposal, space: AddressSpace, { access, position, other }: Conflict): Error {
  const { start, end } = space.rangeOf(access.slice);
  const conflicting = accessesAt(proposal, other).find(({ slice, writes }) => {
    const range = space.rangeOf(slice);
    return (writes || access.writes) && range.start < end && start < range.end;
  });
  const finding =
    `${nameCallAt(proposal, position)}, ${verbOf(access)} ${nameSlice(access.slice)}; before it in the program ` +
    `${nameCallAt(proposal, other)}, ${conflicting === undefined ? "accesses it too" : `${verbOf(conflicting)} ${nameSlice(conflicting.slice)}`}` +
    " and may still be running";
  return rejection("order", finding, { firstPosition: other, secondPosition: position });
}

function verbOf({ reads, writes }: Access): string {
  if (reads && writes) return "reads and writes";
  return writes ? "writes" : "reads";
}
