/** The rules for plans, and the error that names a broken rule. */

import { type ErrorNumbers, HoldfastError } from "../../errors/index.js";
import type { Buffer, BufferSlice, Call } from "../program/program.js";

/** By the name that a rejection gives in `numbers.rule`. */
export const planRules = {
  calls: "the schedule contains every call of the program exactly once, and no other",
  streams: "a call waits only for earlier calls on other streams, and the main stream waits for all streams",
  persistent: "the plan gives no persistent memory to a step",
  bounds: "every buffer has an aligned offset inside the plan, and every slice is inside its buffer",
  peak: "the plan ends where its highest buffer ends",
  order: "calls that access the same memory, at least one of them writing, run in program order",
  races: "no kernel of a launch accesses memory that another kernel of the launch writes",
  pdl: "operands prefetched before the grid dependency wait are not written by the preceding launch",
  lifetimes: "memory of a buffer is reused only after all work on the buffer has ended",
  written: "step memory is read only after an earlier call has written it",
  copies: "a weight copy has the values of its weights when it is read, and at the end of the step",
} as const;

export type PlanRule = keyof typeof planRules;

export function rejection(rule: PlanRule, finding: string, numbers: ErrorNumbers = {}): HoldfastError {
  return new HoldfastError(
    "PLAN_REJECTED",
    `The plan breaks the rule "${rule}" (${planRules[rule]}) and was not run: ${finding}.`,
    { numbers: { rule, ...numbers } },
  );
}

/** The name of a call in messages, with its index in the program. */
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
