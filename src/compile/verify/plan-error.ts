/** The rules that a plan is held to, and the words in which one is rejected. */

import { type ErrorNumbers, HoldfastError } from "../../errors/index.js";
import type { Buffer, BufferSlice, Call } from "../program/program.js";

/** What each rule says, by the name under which a rejection gives it. */
export const planRules = {
  calls: "the schedule holds every call of the program once, and no other",
  streams: "a call waits only for earlier ones on other branches, and the main branch waits for all",
  persistent: "memory that is persistent is not given to a step",
  places: "every buffer has an aligned place inside the plan, and every part lies inside its buffer",
  peak: "the plan is as large as its highest buffer, and no larger",
  order: "calls that meet in memory, one of them writing, run in the program's order",
  members: "kernels that one launch runs side by side don't meet in memory that one of them writes",
  pdl: "what a call fetches while the one before it still runs is nothing that this one writes",
  lifetimes: "one buffer's place becomes another's only when all work on the first has ended",
  written: "step memory is read only where an earlier call has written it",
} as const;

export type PlanRule = keyof typeof planRules;

export function rejection(rule: PlanRule, finding: string, numbers: ErrorNumbers = {}): HoldfastError {
  return new HoldfastError(
    "PLAN_REJECTED",
    `The plan breaks the rule "${rule}" (${planRules[rule]}) and was not run: ${finding}.`,
    { numbers: { rule, ...numbers } },
  );
}

/** A call by its place in the program. */
export function nameCall({ op }: Call, index: number): string {
  return `call ${index} (${op})`;
}

export function nameBuffer({ id, label }: Buffer): string {
  return `buffer ${id} (${label})`;
}

export function nameSlice({ buffer, offset, size }: BufferSlice): string {
  return `${nameRange(offset, size)} of ${nameBuffer(buffer)}`;
}

export function nameRange(start: number, size: number): string {
  return `bytes [${start}, ${start + size})`;
}
