/** The rule `members`: of what one launch runs side by side nobody knows which comes first. */

import { type Access, membersOf } from "../program/program.js";
import { nameCall, nameSlice, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";
import type { Line } from "./timeline.js";

interface Touch {
  readonly member: number;
  readonly access: Access;
  readonly start: number;
  readonly end: number;
}

export function requireDisjointGroup({ program }: Proposal, line: Line): void {
  for (const [index, call] of program.entries()) {
    const members = membersOf(call);
    const met = meetingIn(touchesOf(members, line));
    if (!met) continue;
    const [one, other] = met;
    const finding =
      `${nameCall(call, index)} runs ${members.length} kernels side by side, of which number ${one.member} meets ` +
      `${nameSlice(one.access.slice)} and number ${other.member} ${nameSlice(other.access.slice)}, and one of them writes there`;
    throw rejection("members", finding, { call: index, first: one.member, second: other.member });
  }
}

/** In the order of their first bytes. */
function touchesOf(members: readonly (readonly Access[])[], line: Line): readonly Touch[] {
  const touches = members.flatMap((accesses, member) =>
    accesses.map((access) => ({ member, access, ...line.rangeOf(access.slice) })),
  );
  return touches.sort((a, b) => a.start - b.start);
}

/** Two of different members that share bytes, and of which one writes. */
function meetingIn(touches: readonly Touch[]): readonly [Touch, Touch] | undefined {
  for (const [place, one] of touches.entries()) {
    for (let next = place + 1; next < touches.length; next++) {
      const other = touches[next];
      if (!other || other.start >= one.end) break;
      if (other.member !== one.member && (one.access.writes || other.access.writes)) return [one, other];
    }
  }
  return undefined;
}
