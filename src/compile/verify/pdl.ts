/** The rule `handovers`: what is fetched while another call may still run is nothing that this one writes. */

import { nameSlice, rejection } from "./plan-error.js";
import { accessesAt, nameCallAt, type Proposal } from "./proposal.js";
import type { Line } from "./timeline.js";

export function requirePdl(proposal: Proposal, line: Line): void {
  const latest = new Map<number, number>();
  for (const [place, { stream, after, prefetches: early }] of proposal.schedule.calls.entries()) {
    const before = latest.get(stream);
    latest.set(stream, place);
    if (!early) continue;
    const name = nameCallAt(proposal, place);
    if (before === undefined)
      throw rejection("pdl", `${name} begins before another has ended, and there is none`, { place });
    if (after.length > 0)
      throw rejection("pdl", `${name} begins early, and waits for calls of other branches`, { place });
    const own = accessesAt(proposal, place);
    for (const slice of early) {
      if (!own.some((access) => access.slice === slice && access.reads))
        throw rejection("pdl", `${name} fetches ${nameSlice(slice)}, which it does not read`, { place });
      const { start, end } = line.rangeOf(slice);
      const met = accessesAt(proposal, before).find(({ slice: other, writes }) => {
        const range = line.rangeOf(other);
        return writes && range.start < end && start < range.end;
      });
      if (met)
        throw rejection(
          "pdl",
          `${name} fetches ${nameSlice(slice)} while ${nameCallAt(proposal, before)} writes ${nameSlice(met.slice)}`,
          { place, before },
        );
    }
  }
}
