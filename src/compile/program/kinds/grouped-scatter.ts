/** Grouped scatters: independent ones with an index per row, in one launch. Scratch memory is shared by all of them. */

import { accessOf } from "../access.js";
import type { BufferSlice } from "../buffer.js";
import type { Kind } from "./kind.js";
import { type ScatterCall, scatter, scatterProblem } from "./scatter.js";

export interface GroupedScatterCall {
  readonly kind: "grouped-scatter";
  readonly scatters: readonly ScatterCall[];
  readonly scratch: readonly BufferSlice[];
}

export const groupedScatter: Kind<GroupedScatterCall> = {
  accesses: (work) => membersOf(work).flat(),
  members: (work) => membersOf(work),
  mapSlices: ({ scatters, scratch }, to) => ({
    kind: "grouped-scatter",
    scatters: scatters.map((member) => scatter.mapSlices(member, to)),
    scratch: scratch.map(to),
  }),
  key: ({ scatters }, parts) => scatters.map((member) => scatter.key(member, parts)).join(" | "),
  name: ({ scatters }) => (scatters[0] ? `${scatters.length} × ${scatter.name(scatters[0])}` : ""),
  shape: ({ scatters }) => scatters.map(scatter.shape).join(", "),
  emit({ scatters, scratch }, { backend, op, resolve }) {
    const members = scatters.map((member) => scatterProblem(member, resolve));
    return backend.lowerScatterGroup({ members, scratch: scratch.map(resolve) }, op);
  },
};

function membersOf({ scatters, scratch }: GroupedScatterCall) {
  return [
    ...scatters.map(scatter.accesses),
    ...(scratch.length > 0 ? [scratch.map((slice) => accessOf(slice, "out"))] : []),
  ];
}
