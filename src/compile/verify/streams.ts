/**
 * The rule `branches`, and the order that branches and waits leave: which call has surely ended when another begins.
 * A branch whose first call waits for nothing begins with the step itself.
 */

import type { Schedule } from "../program/program.js";
import { refusal } from "./plan-error.js";
import { nameCallAt, type Proposal } from "./proposal.js";

/** Devices run few branches side by side, and every rule asks about each of them. */
const mostBranches = 64;

/** Stands for the place of a call that is not there. */
export const none = -1;

export interface Order {
  /** Branches are counted in the order in which they begin. */
  readonly branches: number;
  branchAt(place: number): number;
  /** Whether the call at one place has surely ended when the one at the other begins; never true of one and the same. */
  isBefore(earlier: number, later: number): boolean;
}

/** Holds for each call by itself; the order of a schedule is known once this has held. */
export function requireWaits(proposal: Proposal): void {
  const { calls } = proposal.schedule;
  const seen = new Set<number>();
  for (const [place, { branch, after }] of calls.entries()) {
    if (!Number.isSafeInteger(branch) || branch < 0) {
      const finding = `${nameCallAt(proposal, place)}, is on branch ${branch}; they are counted 0, 1, 2, …`;
      throw refusal("branches", finding, { place, branch });
    }
    if (seen.add(branch).size > mostBranches) {
      const finding = `${nameCallAt(proposal, place)}, begins branch ${branch}, and there may be ${mostBranches}`;
      throw refusal("branches", finding, { place, branch, most: mostBranches });
    }
    for (const waited of after) {
      const earlier = waited < place ? calls[waited] : undefined;
      if (earlier !== undefined && earlier.branch !== branch) continue;
      const finding =
        `${nameCallAt(proposal, place)}, on branch ${branch} waits for place ${waited}, which is ` +
        `${earlier === undefined ? "not an earlier one" : "on the same branch"}`;
      throw refusal("branches", finding, { place, branch, waited });
    }
  }
}

/** The step ends with the last call of the main branch: whatever that one does not wait for would still be running. */
export function requireJoins(proposal: Proposal, order: Order): void {
  const { calls } = proposal.schedule;
  const end = calls.findLastIndex(({ branch }) => branch === 0);
  const lasts = new Map(calls.map(({ branch }, place) => [branch, place]));
  lasts.delete(0);
  for (const [branch, place] of lasts) {
    if (end !== none && order.isBefore(place, end)) continue;
    const finding = `no call of the main branch waits for ${nameCallAt(proposal, place)}, the last of branch ${branch}`;
    throw refusal("branches", finding, { place, branch });
  }
}

/** Vector clocks: for each call, the latest place of each branch that has ended before it. */
export function orderOf({ calls }: Schedule): Order {
  const numbers = new Map<number, number>();
  for (const { branch } of calls) if (!numbers.has(branch)) numbers.set(branch, numbers.size);
  const branches = numbers.size;
  const branchAt = Int32Array.from(calls, ({ branch }) => numbers.get(branch) ?? none);
  const clocks = new Int32Array(calls.length * branches).fill(none);
  const latest = new Int32Array(branches).fill(none);

  for (const [place, { after }] of calls.entries()) {
    const clock = clocks.subarray(place * branches, (place + 1) * branches);
    const branch = branchAt[place] ?? none;
    const previous = latest[branch] ?? none;
    for (const ended of previous === none ? after : [previous, ...after]) {
      for (let other = 0; other < branches; other++) {
        clock[other] = Math.max(clock[other] ?? none, clocks[ended * branches + other] ?? none);
      }
      const itsBranch = branchAt[ended] ?? none;
      clock[itsBranch] = Math.max(clock[itsBranch] ?? none, ended);
    }
    latest[branch] = place;
  }

  return {
    branches,
    branchAt: (place) => branchAt[place] ?? none,
    isBefore: (earlier, later) => earlier <= (clocks[later * branches + (branchAt[earlier] ?? none)] ?? none),
  };
}
