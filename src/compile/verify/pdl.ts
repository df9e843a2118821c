/** The rule `handovers`: what is fetched while another call may still run is nothing that this one writes. */

import { namePart, refusal } from "./plan-error.js";
import { accessesAt, nameCallAt, type Proposal } from "./proposal.js";
import type { Line } from "./timeline.js";

export function requireHandovers(proposal: Proposal, line: Line): void {
  const latest = new Map<number, number>();
  for (const [place, { branch, after, early }] of proposal.schedule.calls.entries()) {
    const before = latest.get(branch);
    latest.set(branch, place);
    if (!early) continue;
    const name = nameCallAt(proposal, place);
    if (before === undefined)
      throw refusal("handovers", `${name} begins before another has ended, and there is none`, { place });
    if (after.length > 0)
      throw refusal("handovers", `${name} begins early, and waits for calls of other branches`, { place });
    const own = accessesAt(proposal, place);
    for (const part of early) {
      if (!own.some((access) => access.part === part && access.reads))
        throw refusal("handovers", `${name} fetches ${namePart(part)}, which it does not read`, { place });
      const { start, end } = line.rangeOf(part);
      const met = accessesAt(proposal, before).find(({ part: other, writes }) => {
        const range = line.rangeOf(other);
        return writes && range.start < end && start < range.end;
      });
      if (met)
        throw refusal(
          "handovers",
          `${name} fetches ${namePart(part)} while ${nameCallAt(proposal, before)} writes ${namePart(met.part)}`,
          { place, before },
        );
    }
  }
}
