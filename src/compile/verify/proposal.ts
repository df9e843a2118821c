/** The verifier's input: a program, its schedule and its plan, with the accesses of its calls, computed once for all rules. */

import type { Span } from "../../units/index.js";
import {
  type Access,
  accessesOf,
  type Buffer,
  type Call,
  type Plan,
  type Schedule,
} from "../program/program.js";
import { nameCall } from "./plan-error.js";

export interface Proposal {
  readonly program: readonly Call[];
  readonly schedule: Schedule;
  readonly plan: Plan;
  readonly block: Span | undefined;
  /** By call of the program. */
  readonly accesses: readonly (readonly Access[])[];
  /** Every buffer that a call accesses, in the order of first access. */
  readonly buffers: ReadonlySet<Buffer>;
  /** The index of a call in the program. */
  readonly indices: ReadonlyMap<Call, number>;
  /** The index of a call in the schedule; the last one if there are several, which rule `calls` rejects. */
  readonly places: ReadonlyMap<Call, number>;
}

export function proposalOf(
  program: readonly Call[],
  schedule: Schedule,
  plan: Plan,
  block: Span | undefined,
): Proposal {
  const accesses = program.map(accessesOf);
  return {
    program,
    schedule,
    plan,
    block,
    accesses,
    buffers: new Set(accesses.flatMap((ofCall) => ofCall.map(({ slice }) => slice.buffer))),
    indices: new Map(program.map((call, index) => [call, index])),
    places: new Map(schedule.calls.map(({ call }, place) => [call, place])),
  };
}

export function accessesAt({ schedule, indices, accesses }: Proposal, place: number): readonly Access[] {
  const call = schedule.calls[place]?.call;
  const index = call === undefined ? undefined : indices.get(call);
  return (index === undefined ? undefined : accesses[index]) ?? [];
}

/** A scheduled call by its indices in the program and in the schedule. */
export function nameCallAt({ schedule, indices }: Proposal, place: number): string {
  const call = schedule.calls[place]?.call;
  const index = call === undefined ? undefined : indices.get(call);
  const name = call === undefined || index === undefined ? "a call" : nameCall(call, index);
  return `${name}, at index ${place} of the schedule`;
}
