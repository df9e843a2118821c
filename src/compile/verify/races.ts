/** Rule `races`: the kernels of one launch run concurrently, so none may access memory that another writes. */

import type { Access } from "../program/program.js";
import type { AddressSpace } from "./address-space.js";
import { nameCall, nameSlice, rejection } from "./plan-error.js";
import type { Proposal } from "./proposal.js";

interface MemberAccess {
  readonly member: number;
  readonly access: Access;
  readonly start: number;
  readonly end: number;
}

export function requireNoRaces({ program, members: membersByCall }: Proposal, space: AddressSpace): void {
  for (const [index, call] of program.entries()) {
    const members = membersByCall[index] ?? [];
    const race = raceIn(accessesOfMembers(members, space));
    if (!race) continue;
    const [first, second] = race;
    const finding =
      `${nameCall(call, index)} launches ${members.length} kernels concurrently; kernels ${first.member} and ${second.member} race on ` +
      `${nameSlice(first.access.slice)} and ${nameSlice(second.access.slice)} (at least one writes)`;
    throw rejection("races", finding, { call: index, first: first.member, second: second.member });
  }
}

/** Sorted by their first bytes. */
function accessesOfMembers(
  members: readonly (readonly Access[])[],
  space: AddressSpace,
): readonly MemberAccess[] {
  const all = members.flatMap((accesses, member) =>
    accesses.map((access) => ({ member, access, ...space.rangeOf(access.slice) })),
  );
  return all.sort((a, b) => a.start - b.start);
}

/** Two accesses of different members that overlap, at least one of them a write. */
function raceIn(accesses: readonly MemberAccess[]): readonly [MemberAccess, MemberAccess] | undefined {
  for (const [index, first] of accesses.entries()) {
    for (let next = index + 1; next < accesses.length; next++) {
      const second = accesses[next];
      if (!second || second.start >= first.end) break;
      if (second.member !== first.member && (first.access.writes || second.access.writes))
        return [first, second];
    }
  }
  return undefined;
}
