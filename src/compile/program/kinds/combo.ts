/** A combo kernel: independent row kernels in one launch. */

import { countNames, type Kind } from "./kind.js";
import { type RowCall, row, rowLaunchOf } from "./row.js";

export interface ComboCall {
  readonly kind: "combo";
  readonly rows: readonly RowCall[];
}

export const combo: Kind<ComboCall> = {
  accesses: ({ rows }) => rows.flatMap(row.accesses),
  members: ({ rows }) => rows.map(row.accesses),
  mapSlices: ({ rows }, to) => ({ kind: "combo", rows: rows.map((member) => row.mapSlices(member, to)) }),
  // Passes build combos from calls that already differ.
  key: (work, { identity }) => identity(work),
  name: ({ rows }) => countNames(rows).join(" + "),
  shape: ({ rows }) => rows.map(row.shape).join(", "),
  prefetchable: ({ rows }) => rows.flatMap((member) => row.prefetchable?.(member) ?? []),
  emit({ rows }, emission) {
    const launches = rows.map((member) => rowLaunchOf(member, emission));
    return emission.backend.lowerRowCombo(launches, emission.op);
  },
};
