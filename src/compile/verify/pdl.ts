/** Rule `pdl`: operands prefetched before the grid dependency wait must not be written by the preceding launch. */

import type { AddressSpace } from "./address-space.js";
import { earlyReadsOf } from "./effects.js";
import { nameSlice, rejection } from "./plan-error.js";
import { accessesAt, nameCallAt, type Proposal } from "./proposal.js";

export function requirePdl(proposal: Proposal, space: AddressSpace): void {
  const latest = new Map<number, number>();
  for (const [position, { call, stream, after, prefetches }] of proposal.schedule.calls.entries()) {
    const previous = latest.get(stream);
    latest.set(stream, position);
    if (!prefetches) continue;
    const name = nameCallAt(proposal, position);
    if (previous === undefined)
      throw rejection(
        "pdl",
        `${name} is marked for programmatic dependent launch but is first on its stream`,
        { position },
      );
    if (after.length > 0)
      throw rejection(
        "pdl",
        `${name} is marked for programmatic dependent launch but waits for other streams`,
        { position },
      );
    const accesses = accessesAt(proposal, position);
    for (const slice of earlyReadsOf(call)) {
      if (!prefetches.includes(slice))
        throw rejection(
          "pdl",
          `${name} reads ${nameSlice(slice)} before it waits, and its mark does not say so`,
          {
            position,
          },
        );
    }
    for (const slice of prefetches) {
      if (!accesses.some((access) => access.slice === slice && access.reads))
        throw rejection("pdl", `${name} prefetches ${nameSlice(slice)}, which it does not read`, {
          position,
        });
      const { start, end } = space.rangeOf(slice);
      const written = accessesAt(proposal, previous).find(({ slice: other, writes }) => {
        const range = space.rangeOf(other);
        return writes && range.start < end && start < range.end;
      });
      if (written)
        throw rejection(
          "pdl",
          `${name} prefetches ${nameSlice(slice)} while ${nameCallAt(proposal, previous)} writes ${nameSlice(written.slice)}`,
          { position, previous },
        );
    }
  }
}
