/** Rule `calls`: no call of the program is lost, duplicated or invented. Calls are compared by identity. */

import { nameCall, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";

export function requireEveryCall({ program, schedule, indices, positions }: Proposal): void {
  for (const [index, call] of program.entries()) {
    const other = indices.get(call);
    if (other !== index) {
      const numbers = { first: index, second: other ?? -1 };
      throw rejection(
        "calls",
        `the program contains ${nameCall(call, index)} again as call ${other}`,
        numbers,
      );
    }
    if (!positions.has(call)) {
      throw rejection("calls", `${nameCall(call, index)} is missing from the schedule`, { call: index });
    }
  }
  for (const [position, { call }] of schedule.calls.entries()) {
    const index = indices.get(call);
    if (index === undefined) {
      const finding = `the call at index ${position} of the schedule (${call.op}) is not in the program`;
      throw rejection("calls", finding, { position });
    }
    const other = positions.get(call);
    if (other !== position) {
      const finding = `${nameCall(call, index)} is in the schedule twice, at indices ${position} and ${other}`;
      throw rejection("calls", finding, { call: index, first: position, second: other ?? -1 });
    }
  }
}
