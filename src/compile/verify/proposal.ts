/** What lies before the verifier: a program, how it would be run, and what its calls touch, found once for all rules. */

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
  /** Every buffer that a call touches, in the order of first touch. */
  readonly buffers: ReadonlySet<Buffer>;
  /** Where in the program a call stands. */
  readonly indices: ReadonlyMap<Call, number>;
  /** Where in the schedule a call of the program stands; the last such place, until the rule `calls` has held. */
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
    buffers: new Set(accesses.flatMap((touched) => touched.map(({ slice }) => slice.buffer))),
    indices: new Map(program.map((call, index) => [call, index])),
    places: new Map(schedule.calls.map(({ call }, place) => [call, place])),
  };
}

export function accessesAt({ schedule, indices, accesses }: Proposal, place: number): readonly Access[] {
  const call = schedule.calls[place]?.call;
  const index = call === undefined ? undefined : indices.get(call);
  return (index === undefined ? undefined : accesses[index]) ?? [];
}

/** The call at a place of the schedule, by its places there and in the program. */
export function nameCallAt({ schedule, indices }: Proposal, place: number): string {
  const call = schedule.calls[place]?.call;
  const index = call === undefined ? undefined : indices.get(call);
  const name = call === undefined || index === undefined ? "a call" : nameCall(call, index);
  return `${name}, at place ${place} of the schedule`;
}
