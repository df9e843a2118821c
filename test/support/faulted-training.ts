/**
 * The kinds of faults of `injected-plans.ts`, injected into a step that runs: each kind at many positions of
 * the step.
 */

import { planMemory } from "../../src/compile/memory/plan.js";
import {
  type Access,
  accessesOf,
  type Buffer,
  type Call,
  type Plan,
  type ScheduledCall,
} from "../../src/compile/program/program.js";
import { type Lifetime, lifetimesOf } from "../../src/compile/schedule/liveness.js";
import type { PlanRule } from "../../src/compile/verify/verify.js";
import { alignUp } from "../../src/units/index.js";
import type { ProposedStep } from "./proposed-steps.js";
import type { TracedTraining } from "./traced-training.js";

export interface FaultKind {
  /** The rules that such a fault may break first. */
  readonly rules: readonly PlanRule[];
  /** Some of these may be as sound as the original step. */
  readonly injected: (training: TracedTraining) => readonly ProposedStep[];
}

/** By their names in `planFaults`. */
export const trainingFaults: Readonly<Record<string, FaultKind>> = {
  "a call left out": {
    rules: ["calls"],
    injected: ({ straight }) =>
      atEachCall(straight, (calls, index) => calls.filter((_, other) => other !== index)),
  },
  "a call that is scheduled twice": {
    rules: ["calls"],
    injected: ({ straight }) => atEachCall(straight, (calls, index) => [...calls, calls[index]!]),
  },
  "a call at another call's index": {
    rules: ["calls"],
    injected: ({ straight }) =>
      atEachCall(straight, (calls, index) => calls.with(index, calls[(index + 1) % calls.length]!)),
  },
  "a call that is not in the program": {
    rules: ["calls"],
    injected: ({ straight }) =>
      atEachCall(straight, (calls, index) => {
        const { call } = calls[index]!;
        return [...calls, { call: { ...call, op: "stranger" }, stream: 0, after: [] }];
      }),
  },

  "a read before its write": {
    rules: ["order"],
    injected: ({ straight }) => movedBefore(straight, (earlier, later) => earlier.writes && later.reads),
  },
  "an in-place write before a read of the old value": {
    rules: ["order"],
    injected: ({ straight }) => movedBefore(straight, (earlier, later) => earlier.reads && later.writes),
  },
  "two writes swapped": {
    rules: ["order"],
    injected: ({ straight }) => movedBefore(straight, (earlier, later) => earlier.writes && later.writes),
  },

  "the offsets of two buffers swapped": {
    rules: ["lifetimes"],
    injected: ({ straight }) =>
      pairsOf([...straight.plan.offsets]).map(([[buffer, offset], [other, otherOffset]]) =>
        withOffsets(straight, [
          [buffer, otherOffset],
          [other, offset],
        ]),
      ),
  },
  "an offset 256 bytes too low": {
    rules: ["lifetimes"],
    injected: ({ straight }) =>
      atEachBuffer(straight, (offset) => offset - 256).filter(({ plan }) =>
        [...plan.offsets.values()].every((offset) => offset >= 0),
      ),
  },
  "an offset 256 bytes too high": {
    rules: ["lifetimes"],
    injected: ({ straight }) => atEachBuffer(straight, (offset) => offset + 256),
  },
  "a live range one call short": {
    rules: ["lifetimes"],
    injected: ({ straight }) => overlap(straight, (old, young) => old.last === young.first),
  },
  "an offset reused in the middle of a live range": {
    rules: ["lifetimes"],
    injected: ({ straight }) =>
      overlap(straight, (old, young) => old.first < young.first && young.first < old.last),
  },
  "a saved tensor freed before backward has read it": {
    rules: ["lifetimes"],
    injected: ({ straight }) => {
      const lifetimes = lifetimesOf(straight.schedule);
      const backward = straight.program.findIndex(({ op }) => /Gradient/.test(op));
      const saved = lifetimes.filter(({ first, last }) => first < backward && last >= backward);
      return saved.map((deadOnExit) => {
        const shortened = lifetimes.map((lifetime) =>
          lifetime === deadOnExit ? { ...lifetime, last: backward - 1 } : lifetime,
        );
        return { ...straight, plan: planMemory(shortened) };
      });
    },
  },

  "a buffer without an offset": {
    rules: ["bounds"],
    injected: ({ straight }) =>
      [...straight.plan.offsets.keys()].map((buffer) => {
        const offsets = new Map(straight.plan.offsets);
        offsets.delete(buffer);
        return { ...straight, plan: { ...straight.plan, offsets } };
      }),
  },
  "a misaligned offset": {
    rules: ["bounds"],
    // Only of buffers that then overlap the next one: others do no harm.
    injected: ({ straight }) => atEachBuffer(straight, (offset) => offset + 64, reachesOut),
  },
  "an offset before the block": {
    rules: ["bounds"],
    injected: ({ straight }) => atEachBuffer(straight, () => -256),
  },
  "an offset that is not a number": {
    rules: ["bounds"],
    injected: ({ straight }) => atEachBuffer(straight, () => Number.NaN),
  },
  "a buffer beyond the peak": {
    rules: ["bounds"],
    injected: ({ straight }) =>
      [1, 2, 4, 8].map((units) => ({
        ...straight,
        plan: { ...straight.plan, bytes: straight.plan.bytes - 256 * units },
      })),
  },

  "a read of memory that nothing has written": {
    // Without the first call, the second one has no predecessor for PDL.
    rules: ["written", "pdl"],
    injected: ({ straight }) =>
      straight.program.flatMap((left) => {
        const program = straight.program.filter((call) => call !== left);
        const isMissed = writesOfStep(left).some((buffer) => isRead(program, buffer));
        const calls = straight.schedule.calls.filter(({ call }) => call !== left);
        return isMissed && !writesPersistent(left) ? [{ ...straight, program, schedule: { calls } }] : [];
      }),
  },

  "a missing wait for step memory": {
    rules: ["order", "lifetimes", "streams"],
    injected: ({ streamed }) => atEachWait(streamed, () => []),
  },
  "a wait for the call before the right one": {
    rules: ["order", "lifetimes", "streams"],
    injected: ({ streamed }) =>
      atEachWait(streamed, ({ after }, calls) =>
        after.flatMap((dependency) => {
          const { stream } = calls[dependency]!;
          const before = calls.findLastIndex((entry, index) => index < dependency && entry.stream === stream);
          return before < 0 ? [] : [before];
        }),
      ),
  },
  "a call on another stream than its waits assume": {
    rules: ["order", "lifetimes", "streams"],
    injected: ({ streamed }) =>
      atEachCall(streamed, (calls, index) => {
        const scheduled = calls[index]!;
        const stream = (scheduled.stream + 1) % 3;
        const after = scheduled.after.filter((dependency) => calls[dependency]!.stream !== stream);
        return calls.with(index, { ...scheduled, stream, after });
      }),
  },
  "a stream that the main one never waits for": {
    rules: ["streams", "order", "lifetimes"],
    injected: ({ streamed }) =>
      [1, 2].map((left) => {
        const { calls } = streamed.schedule;
        const forget = ({ stream, after }: ScheduledCall): readonly number[] =>
          stream === 0 ? after.filter((dependency) => calls[dependency]!.stream !== left) : after;
        return {
          ...streamed,
          schedule: { calls: calls.map((scheduled) => ({ ...scheduled, after: forget(scheduled) })) },
        };
      }),
  },
  "memory reused while another stream still uses it": {
    rules: ["lifetimes"],
    injected: ({ straight, streamed }) => [
      { ...streamed, plan: straight.plan },
      ...overlap(streamed, (old, young) => old.first < young.first),
    ],
  },
  "a missing wait that only shared memory needs": {
    rules: ["lifetimes"],
    injected: ({ streamed }) => {
      // Each call waits for all before it, so that memory is shared as on one stream; then one of them waits
      // only for its dependencies.
      const { calls } = streamed.schedule;
      const waiting = calls.map((scheduled, index): ScheduledCall => {
        const after = [...calls.keys()].filter(
          (other) => other < index && calls[other]!.stream !== scheduled.stream,
        );
        return { ...scheduled, after };
      });
      const step = { ...streamed, plan: planMemory(lifetimesOf({ calls: waiting })) };
      return calls.map((scheduled, index) => ({
        ...step,
        schedule: { calls: waiting.with(index, scheduled) },
      }));
    },
  },
};

/** The step with another list of calls, for each position. */
function atEachCall(
  step: ProposedStep,
  change: (calls: readonly ScheduledCall[], index: number) => readonly ScheduledCall[],
): ProposedStep[] {
  const { calls } = step.schedule;
  return calls.map((_, index) => ({ ...step, schedule: { calls: change(calls, index) } }));
}

/** The step with other waits at a call, for each call that has any. */
function atEachWait(
  step: ProposedStep,
  change: (scheduled: ScheduledCall, calls: readonly ScheduledCall[]) => readonly number[],
): ProposedStep[] {
  const { calls } = step.schedule;
  return calls.flatMap((scheduled, index) => {
    if (scheduled.after.length === 0) return [];
    return [
      { ...step, schedule: { calls: calls.with(index, { ...scheduled, after: change(scheduled, calls) }) } },
    ];
  });
}

/** The step with one buffer at another offset, for each buffer. */
function atEachBuffer(
  step: ProposedStep,
  change: (offset: number) => number,
  isTuned: (buffer: Buffer) => boolean = () => true,
): ProposedStep[] {
  const chosen = [...step.plan.offsets].filter(([buffer]) => isTuned(buffer));
  return chosen.map(([buffer, offset]) => withOffsets(step, [[buffer, change(offset)]]));
}

const reachesOut = ({ bytes }: Buffer): boolean => alignUp(bytes, 256) - bytes < 64;

function withOffsets(step: ProposedStep, moved: readonly (readonly [Buffer, number])[]): ProposedStep {
  const offsets = new Map([...step.plan.offsets, ...moved]);
  const ends = [...offsets].map(([{ bytes }, offset]) => offset + bytes);
  const plan: Plan = { offsets, bytes: alignUp(Math.max(0, ...ends.filter((end) => end > 0)), 256) };
  return { ...step, plan };
}

/** The step with a buffer at the offset of an older one, for all selected pairs. */
function overlap(
  step: ProposedStep,
  isTuned: (old: Lifetime, young: Lifetime) => boolean,
): readonly ProposedStep[] {
  const lifetimes = lifetimesOf(step.schedule);
  return lifetimes.flatMap((old) =>
    lifetimes
      .filter((young) => young !== old && isTuned(old, young))
      .map((young) => withOffsets(step, [[young.buffer, step.plan.offsets.get(old.buffer)!]])),
  );
}

/** Schedules in which a call is before an earlier one with such a dependency. */
function movedBefore(
  step: ProposedStep,
  conflicts: (earlier: Access, later: Access) => boolean,
): readonly ProposedStep[] {
  const { calls } = step.schedule;
  return calls.flatMap((later, index) => {
    const conflicting = calls.findLastIndex(
      (earlier, before) => before < index && haveConflict(earlier.call, later.call, conflicts),
    );
    if (conflicting < 0) return [];
    const order = calls.toSpliced(index, 1).toSpliced(conflicting, 0, later);
    return [{ ...step, schedule: { calls: order } }];
  });
}

function haveConflict(
  earlier: Call,
  later: Call,
  conflicts: (earlier: Access, later: Access) => boolean,
): boolean {
  return accessesOf(earlier).some((access) =>
    accessesOf(later).some(
      (other) =>
        access.slice.buffer === other.slice.buffer &&
        access.slice.offset < other.slice.offset + other.slice.size &&
        other.slice.offset < access.slice.offset + access.slice.size &&
        conflicts(access, other),
    ),
  );
}

function writesOfStep(call: Call): Buffer[] {
  return accessesOf(call).flatMap(({ slice, writes }) =>
    writes && slice.buffer.storage === undefined ? [slice.buffer] : [],
  );
}

function writesPersistent(call: Call): boolean {
  return accessesOf(call).some(({ slice, writes }) => writes && slice.buffer.storage !== undefined);
}

function isRead(program: readonly Call[], buffer: Buffer): boolean {
  return program.some((call) =>
    accessesOf(call).some(({ slice, reads }) => reads && slice.buffer === buffer),
  );
}

function pairsOf<T>(items: readonly T[]): (readonly [T, T])[] {
  return items.flatMap((item, index) => items.slice(index + 1).map((other) => [item, other] as const));
}
