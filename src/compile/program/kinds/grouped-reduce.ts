/** Column reductions in one launch, or in two if there is scratch memory for the partials between the phases. */

import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import { type ColumnCall, column, columnLaunchOf } from "./column.js";
import { countNames, type Kind } from "./kind.js";
import { type PartialReduceCall, partialColumnsOf, partialReduce } from "./partial-reduce.js";

export interface GroupedReduceCall {
  readonly kind: "grouped-reduce";
  readonly columns: readonly ColumnCall[];
  readonly scratch?: BufferSlice;
  /** Reductions whose first phase an earlier call has run: this call only combines their partials. */
  readonly partials?: PartialReduceCall;
}

export const groupedReduce: Kind<GroupedReduceCall> = {
  accesses: (work) => membersOf(work).flat(),
  members: membersOf,
  mapSlices: ({ columns, scratch, partials }, to) => ({
    kind: "grouped-reduce",
    columns: columns.map((member) => column.mapSlices(member, to)),
    ...(scratch && { scratch: to(scratch) }),
    ...(partials && { partials: partialReduce.mapSlices(partials, to) }),
  }),
  key: ({ columns }, parts) => columns.map((member) => column.key(member, parts)).join(" | "),
  name: ({ columns, partials }) =>
    [...countNames(columns), ...(partials ? [`${partials.columns.length} combined`] : [])].join(" + "),
  shape: ({ columns, partials }) => [...columns, ...(partials?.columns ?? [])].map(column.shape).join(", "),
  emit({ columns, scratch, partials }, emission) {
    const launches = columns.map((member) => columnLaunchOf(member, emission));
    return emission.backend.lowerColumnGroup(launches, {
      scratch: scratch && emission.resolve(scratch),
      earlier: partials && partialColumnsOf(partials, emission),
      op: emission.op,
    });
  },
};

function membersOf({ columns, scratch, partials }: GroupedReduceCall) {
  const combined = partials?.columns.map((member) => column.accesses(member).filter(({ writes }) => writes));
  return [
    ...(partials ? [[accessOf(partials.scratch, "in")], ...(combined ?? [])] : []),
    ...columns.map(column.accesses),
    ...(scratch ? [[accessOf(scratch, "out")]] : []),
  ];
}
