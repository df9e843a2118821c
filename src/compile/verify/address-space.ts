/**
 * All memory that a program accesses, in one address space. Persistent memory keeps its addresses, so that two buffers over the
 * same bytes alias. Each step buffer gets a separate range: rule `lifetimes` checks that the plan shares memory correctly.
 */

import { endOf } from "../../units/index.js";
import type { Buffer, BufferSlice } from "../program/program.js";
import { type Bounds, boundsOf } from "./latest-indices.js";
import type { Proposal } from "./proposal.js";

interface Range {
  readonly start: number;
  readonly end: number;
}

export interface AddressSpace {
  rangeOf(slice: BufferSlice): Range;
  /** The start and end of every accessed slice. */
  readonly bounds: Bounds;
}

export function addressSpaceOf({ buffers, accesses }: Proposal): AddressSpace {
  const starts = new Map<Buffer, number>();
  let end = 0;
  for (const buffer of buffers) {
    if (buffer.storage === undefined) continue;
    starts.set(buffer, buffer.storage.span.address);
    end = Math.max(end, endOf(buffer.storage.span));
  }
  for (const buffer of buffers) {
    if (buffer.storage !== undefined) continue;
    starts.set(buffer, end);
    end += buffer.bytes;
  }
  const rangeOf = ({ buffer, offset, size }: BufferSlice): Range => {
    const start = (starts.get(buffer) ?? 0) + offset;
    return { start, end: start + size };
  };
  const ranges = accesses.flat().map(({ slice }) => rangeOf(slice));
  return { rangeOf, bounds: boundsOf(ranges.flatMap(({ start, end: last }) => [start, last])) };
}
