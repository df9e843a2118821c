/** The verifier's input: a program, its schedule and its plan, with the accesses of its calls, computed once for all rules. */

import type { Span } from "../../units/index.js";
import type { Access, Buffer, Call, Plan, Schedule } from "../program/program.js";
import { type Effects, effectsOf } from "./effects.js";
import { nameCall } from "./plan-error.js";

export interface Proposal {
  readonly program: readonly Call[];
  readonly schedule: Schedule;
  readonly plan: Plan;
  readonly block: Span | undefined;
  /** By call of the program. */
  readonly accesses: readonly (readonly Access[])[];
  /** By call of the program: the accesses of each concurrent kernel. */
  readonly members: readonly Effects["members"][];
  /** Every buffer that a call accesses, in the order of first access. */
  readonly buffers: ReadonlySet<Buffer>;
  /** The index of a call in the program. */
  readonly indices: ReadonlyMap<Call, number>;
  /** The position of a call in the schedule; the last one if there are several, which rule `calls` rejects. */
  readonly positions: ReadonlyMap<Call, number>;
}

export function proposalOf(
  program: readonly Call[],
  schedule: Schedule,
  plan: Plan,
  block: Span | undefined,
): Proposal {
  const effects = program.map(effectsOf);
  const accesses = effects.map((effect) => effect.accesses);
  return {
    program,
    schedule,
    plan,
    block,
    accesses,
    members: effects.map((effect) => effect.members),
    buffers: new Set(accesses.flat().map(({ slice }) => slice.buffer)),
    indices: new Map(program.map((call, index) => [call, index])),
    positions: new Map(schedule.calls.map(({ call }, position) => [call, position])),
  };
}

export function accessesAt({ schedule, indices, accesses }: Proposal, position: number): readonly Access[] {
  const call = schedule.calls[position]?.call;
  const index = call === undefined ? undefined : indices.get(call);
  return (index === undefined ? undefined : accesses[index]) ?? [];
}

/** The name of a scheduled call in messages, with its indices in the program and in the schedule. */
export function nameCallAt({ schedule, indices }: Proposal, position: number): string {
  const call = schedule.calls[position]?.call;
  const index = call === undefined ? undefined : indices.get(call);
  const name = call === undefined || index === undefined ? "a call" : nameCall(call, index);
  return `${name}, at index ${position} of the schedule`;
}
