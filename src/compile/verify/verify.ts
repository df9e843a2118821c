/**
 * The verifier: the last check of a compiled step before it runs. It does not check the program itself, but that the schedule and the
 * memory plan run it as written. It shares no code with the passes, the scheduler and the planner. effects.ts lists its assumptions.
 */

import type { Span } from "../../units/index.js";
import type { Call, Plan, Schedule } from "../program/program.js";
import { addressSpaceOf } from "./address-space.js";
import { requireBounds, requireOwnMemory, requirePeak } from "./bounds.js";
import { requireEveryCall } from "./calls.js";
import { requireCopies } from "./copies.js";
import { requireLifetimes } from "./lifetimes.js";
import { requireOrder } from "./order.js";
import { requirePdl } from "./pdl.js";
import { proposalOf } from "./proposal.js";
import { requireNoRaces } from "./races.js";
import { orderOf, requireJoins, requireWaits } from "./streams.js";
import { requireWritten } from "./written.js";

export { type PlanRule, planRules } from "./plan-error.js";

/**
 * Throws PLAN_REJECTED unless the schedule and the plan run the program as written. The error's `numbers.rule` is the first
 * broken rule of `planRules`. Rules are checked in the order in which one relies on another.
 *
 * Takes O(a log a) time for a accesses, times the number of streams.
 *
 * @param block The address range of the plan's memory, once it is known.
 */
export function verifyPlan(program: readonly Call[], schedule: Schedule, plan: Plan, block?: Span): void {
  const proposal = proposalOf(program, schedule, plan, block);
  requireEveryCall(proposal);
  requireWaits(proposal);
  const order = orderOf(schedule);
  requireJoins(proposal, order);
  requireOwnMemory(proposal);
  requireBounds(proposal);
  requirePeak(proposal);
  const space = addressSpaceOf(proposal);
  requireOrder(proposal, order, space);
  requireNoRaces(proposal, space);
  requirePdl(proposal, space);
  requireLifetimes(proposal, order);
  requireWritten(proposal, space);
  requireCopies(proposal);
}
