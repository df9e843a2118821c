/**
 * The verifier: the last look at a compiled step before anything of it runs. It takes the program for the truth and
 * asks of the schedule and the plan only what can be seen from them; it shares no code with whatever made them.
 */

import type { Span } from "../../units/index.js";
import type { Call, Plan, Schedule } from "../program/program.js";
import { requireOwnMemory, requirePeak, requirePlaces } from "./bounds.js";
import { requireEveryCall } from "./calls.js";
import { requireLifetimes } from "./lifetimes.js";
import { requireDisjointGroup } from "./members.js";
import { requireOrder } from "./order.js";
import { requirePdl } from "./pdl.js";
import { proposalOf } from "./proposal.js";
import { orderOf, requireJoins, requireWaits } from "./streams.js";
import { lineOf } from "./timeline.js";
import { requireWritten } from "./written.js";

export { type PlanRule, planRules } from "./plan-error.js";

/**
 * Returns if the schedule and the plan run the program as it is written, and throws PLAN_REJECTED otherwise; the error's
 * `numbers.rule` is the name of the first rule in `planRules` that is broken. The rules are looked at in the order in
 * which one relies on another.
 *
 * The time is that of sorting what the calls touch, times the number of branches.
 *
 * @param block Where the plan's memory lies, once that is known.
 */
export function verifyPlan(program: readonly Call[], schedule: Schedule, plan: Plan, block?: Span): void {
  const proposal = proposalOf(program, schedule, plan, block);
  requireEveryCall(proposal);
  requireWaits(proposal);
  const order = orderOf(schedule);
  requireJoins(proposal, order);
  requireOwnMemory(proposal);
  requirePlaces(proposal);
  requirePeak(proposal);
  const line = lineOf(proposal);
  requireOrder(proposal, order, line);
  requireDisjointGroup(proposal, line);
  requirePdl(proposal, line);
  requireLifetimes(proposal, order);
  requireWritten(proposal, line);
}
