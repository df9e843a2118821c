/** The rule `calls`: nothing of the program is lost, doubled or made up. Calls are told apart by identity. */

import { nameCall, refusal } from "./plan-error.js";
import type { Proposal } from "./proposal.js";

export function requireEveryCall({ program, schedule, indices, places }: Proposal): void {
  for (const [index, call] of program.entries()) {
    const other = indices.get(call);
    if (other !== index) {
      const numbers = { first: index, second: other ?? -1 };
      throw refusal("calls", `the program holds ${nameCall(call, index)} again as call ${other}`, numbers);
    }
    if (!places.has(call)) {
      throw refusal("calls", `${nameCall(call, index)} is missing from the schedule`, { call: index });
    }
  }
  for (const [place, { call }] of schedule.calls.entries()) {
    const index = indices.get(call);
    if (index === undefined) {
      const finding = `the call at place ${place} of the schedule (${call.op}) is not in the program`;
      throw refusal("calls", finding, { place });
    }
    const other = places.get(call);
    if (other !== place) {
      const finding = `${nameCall(call, index)} stands twice in the schedule, at places ${place} and ${other}`;
      throw refusal("calls", finding, { call: index, first: place, second: other ?? -1 });
    }
  }
}
