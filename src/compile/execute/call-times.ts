/**
 * What each call of a step takes. On a GPU it is what the call adds: the time of everything up to it as one launch, less that
 * of everything before it, so that the times add up, gaps between kernels included. On a CPU the calls run one by one.
 *
 * What the step leaves behind is as before: all that it writes of persistent memory is kept aside meanwhile.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Runtime } from "../../runtime/index.js";
import { type Clock, systemClock } from "../../units/index.js";
import { type Piece, submitCommands } from "./emit.js";
import type { PlacedStep } from "./placed-step.js";

/** The best of so many groups counts, each of so many launches in a row. */
const [groups, launches] = [5, 20];

/** Microseconds, by the call's place in the schedule. */
export function timeCalls(
  runtime: Runtime,
  placed: PlacedStep,
  clock: Clock = systemClock,
): readonly number[] {
  const kept = placed.written.map((target) => ({ target, source: runtime.read(target) }));
  try {
    const ofPieces = capabilitiesOf(runtime).timesLaunchesInGraphs
      ? timeGrowing(runtime, placed.pieces, clock)
      : placed.pieces.map((piece) => timeUs(runtime, clock, () => submitCommands(runtime, [piece])));
    const times: number[] = [];
    for (const [index, { call }] of placed.pieces.entries())
      times[call] = (times[call] ?? 0) + (ofPieces[index] ?? 0);
    return Array.from(times, (us) => us ?? 0);
  } finally {
    runtime.upload(kept);
    runtime.synchronize();
  }
}

function timeGrowing(runtime: Runtime, pieces: readonly Piece[], clock: Clock): readonly number[] {
  let before = 0;
  return pieces.map((_, index) => {
    const upTo = runtime.captureForTiming("times", () => submitCommands(runtime, pieces.slice(0, index + 1)));
    try {
      const spent = Array.from({ length: groups }, () =>
        timeUs(runtime, clock, () => {
          for (let count = 0; count < launches; count++) upTo.replay();
        }),
      );
      // With one more call it can't be quicker: what a measurement says against that is its error.
      const us = Math.max(before, Math.min(...spent) / launches);
      const own = us - before;
      before = us;
      return own;
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
