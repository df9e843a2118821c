/** The rule `order`: what each call finds in its memory is what the program's calls before it have left there. */

import { beat } from "../../units/index.js";
import type { Access } from "../program/program.js";
import { LatestPlaces } from "./latest-indices.js";
import { nameSlice, rejection } from "./plan-error.js";
import { accessesAt, nameCallAt, type Proposal } from "./proposal.js";
import { none, type Order } from "./streams.js";
import type { Line } from "./timeline.js";

/**
 * Goes through the program and compares each access with the latest ones of every branch before it. Accesses that a
 * write has come between need not be forgotten: they are before that write, and it is compared with as well.
 */
export function requireOrder(proposal: Proposal, order: Order, line: Line): void {
  const writes = new LatestPlaces(line.bounds, order.streams);
  const reads = new LatestPlaces(line.bounds, order.streams);

  for (const [index, call] of proposal.program.entries()) {
    beat();
    const accesses = proposal.accesses[index] ?? [];
    const place = proposal.places.get(call) ?? none;
    for (const access of accesses) {
      const { start, end } = line.rangeOf(access.slice);
      for (const earlier of access.writes ? [writes, reads] : [writes]) {
        for (const other of earlier.latest(start, end)) {
          if (other === none || order.isBefore(other, place)) continue;
          throw disorder(proposal, line, { access, place, other });
        }
      }
    }
    // Only now: a call does not wait for itself.
    for (const { slice, reads: isRead, writes: isWritten } of accesses) {
      const { start, end } = line.rangeOf(slice);
      if (isWritten) writes.note(start, end, order.streamAt(place), place);
      if (isRead) reads.note(start, end, order.streamAt(place), place);
    }
  }
}

interface Meeting {
  readonly access: Access;
  readonly place: number;
  /** The place of a call that the program has before it. */
  readonly other: number;
}

function disorder(proposal: Proposal, line: Line, { access, place, other }: Meeting): Error {
  const { start, end } = line.rangeOf(access.slice);
  const met = accessesAt(proposal, other).find(({ slice, writes }) => {
    const range = line.rangeOf(slice);
    return (writes || access.writes) && range.start < end && start < range.end;
  });
  const finding =
    `${nameCallAt(proposal, place)}, ${verbOf(access)} ${nameSlice(access.slice)}; before it in the program ` +
    `${nameCallAt(proposal, other)}, ${met === undefined ? "meets it there" : `${verbOf(met)} ${nameSlice(met.slice)}`}` +
    " and need not have ended by then";
  return rejection("order", finding, { firstPlace: other, secondPlace: place });
}

function verbOf({ reads, writes }: Access): string {
  if (reads && writes) return "reads and writes";
  return writes ? "writes" : "reads";
}
