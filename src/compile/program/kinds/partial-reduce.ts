/** The first phase of split column reductions: writes partials that a later grouped reduction combines. */

import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import { type ColumnCall, column, columnLaunchOf } from "./column.js";
import { countNames, type Emission, type Kind } from "./kind.js";

export interface PartialReduceCall {
  readonly kind: "partial-reduce";
  readonly columns: readonly ColumnCall[];
  /** The partials. */
  readonly scratch: BufferSlice;
}

export const partialReduce: Kind<PartialReduceCall> = {
  accesses: (work) => membersOf(work).flat(),
  members: membersOf,
  mapSlices: ({ columns, scratch }, to) => ({
    kind: "partial-reduce",
    columns: columns.map((member) => column.mapSlices(member, to)),
    scratch: to(scratch),
  }),
  // Passes build them from calls that already differ.
  key: (work, { identity }) => identity(work),
  name: ({ columns }) => countNames(columns).join(" + "),
  shape: ({ columns }) => columns.map(column.shape).join(", "),
  emit: (work, emission) => emission.backend.lowerPartials(partialColumnsOf(work, emission), emission.op),
};

/** The reductions and the memory of their partials, as the backends take them. */
export function partialColumnsOf({ columns, scratch }: PartialReduceCall, emission: Emission) {
  const members = columns.map((member) => columnLaunchOf(member, emission));
  return { members, scratch: emission.resolve(scratch) };
}

function membersOf({ columns, scratch }: PartialReduceCall) {
  const read = columns.map((member) => column.accesses(member).filter(({ writes }) => !writes));
  return [...read, [accessOf(scratch, "out")]];
}
