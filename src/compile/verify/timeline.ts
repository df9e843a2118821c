/**
 * All memory that a program touches, on one line. Persistent memory is at its addresses, so that two buffers over the same
 * bytes meet there; each step buffer lies apart, as sharing a place in the plan is a matter of the rule `lifetimes`.
 */

import { endOf } from "../../units/index.js";
import type { Buffer, BufferSlice } from "../program/program.js";
import { type Bounds, boundsOf } from "./latest-indices.js";
import type { Proposal } from "./proposal.js";

interface Range {
  readonly start: number;
  readonly end: number;
}

export interface Line {
  rangeOf(slice: BufferSlice): Range;
  /** Where any part that is touched begins or ends. */
  readonly bounds: Bounds;
}

export function lineOf({ buffers, accesses }: Proposal): Line {
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
  return { rangeOf, bounds: boundsOf(ranges.flatMap(({ start, end: behind }) => [start, behind])) };
}
