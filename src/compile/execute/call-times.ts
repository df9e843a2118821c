/**
 * Times each call of a step. On devices that time launches in graphs, it is the time that the call adds: a graph of all calls up to
 * it, minus a graph of the calls before it. So the times add up, gaps between kernels included. On other devices the calls run one by
 * one.
 *
 * The state does not change: all persistent memory that the step writes is saved before, and restored after.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, systemClock } from "../../units/index.js";
import { type StepCommand, submitCommands } from "./emit.js";
import type { PlacedStep } from "./placed-step.js";

/** The best of several groups counts; each group is several launches in a row. */
const [groups, launches] = [5, 20];

/** Microseconds, by the call's index in the schedule. */
export function timeCalls(
  runtime: Runtime,
  placed: PlacedStep,
  clock: Clock = systemClock,
): readonly number[] {
  const saved = placed.written.map((target) => ({ target, source: runtime.read(target) }));
  try {
    const commandUs = capabilitiesOf(runtime).timesLaunchesInGraphs
      ? timeGrowing(runtime, placed.commands, clock)
      : placed.commands.map((command) => timeUs(runtime, clock, () => submitCommands(runtime, [command])));
    const times: number[] = [];
    for (const [index, { call }] of placed.commands.entries())
      times[call] = (times[call] ?? 0) + (commandUs[index] ?? 0);
    return Array.from(times, (us) => us ?? 0);
  } finally {
    runtime.upload(saved);
    runtime.synchronize();
  }
}

function timeGrowing(runtime: Runtime, commands: readonly StepCommand[], clock: Clock): readonly number[] {
  let before = 0;
  return commands.map((_, index) => {
    const upTo = runtime.captureForTiming("times", () =>
      submitCommands(runtime, commands.slice(0, index + 1)),
    );
    try {
      const groupUs = Array.from({ length: groups }, () =>
        timeUs(runtime, clock, () => {
          for (let count = 0; count < launches; count++) upTo.replay();
        }),
      );
      // Another call can't make a graph faster, so a lower time is a measurement error.
      const us = Math.max(before, Math.min(...groupUs) / launches);
      const addedUs = us - before;
      before = us;
      return addedUs;
    } finally {
      upTo.close();
    }
  });
}

function timeUs(runtime: Runtime, clock: Clock, send: () => void): number {
  runtime.synchronize();
  const startMs = clock.nowMs();
  send();
  runtime.synchronize();
  return 1000 * (clock.nowMs() - startMs);
}
