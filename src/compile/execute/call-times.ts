/**
 * Times each call of a step. On devices that time launches in graphs, it is the time that the call adds to the step, so the times add
 * up, gaps between kernels included. On other devices the calls run one by one.
 *
 * The state does not change: all persistent memory that the step writes is saved before, and restored after.
 */

import { capabilitiesOf } from "../../kernels/index.js";
import type { Replayable, Runtime } from "../../runtime/index.js";
import { type Clock, systemClock } from "../../units/index.js";
import { type StepCommand, submitCommands } from "./emit.js";
import type { PlacedStep } from "./placed-step.js";

/** The best of several groups counts; each group is several launches in a row. */
const [groups, launches] = [5, 20];
/** Growing graphs run every command many times, so they are for steps that this is enough for. */
const maxGrowingUs = 2e6;
/** How often a longer step runs. */
const passes = 9;

/** Microseconds, by the call's index in the schedule. */
export function timeCalls(
  runtime: Runtime,
  placed: PlacedStep,
  clock: Clock = systemClock,
): readonly number[] {
  const saved = placed.written.map((target) => ({ target, source: runtime.read(target) }));
  try {
    const commandUs = capabilitiesOf(runtime).timesLaunchesInGraphs
      ? timeInGraphs(runtime, placed.commands, clock)
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

type Timer = Pick<Runtime, "captureForTiming" | "submit" | "synchronize">;

/** Microseconds that each command adds to a graph of all of them. */
export function timeInGraphs(
  runtime: Timer,
  commands: readonly StepCommand[],
  clock: Clock,
): readonly number[] {
  const stepUs = withGraph(runtime, commands, (step) => {
    step.replay();
    return timeUs(runtime, clock, () => step.replay());
  });
  const growingUs = (commands.length * groups * launches * stepUs) / 2;
  return growingUs <= maxGrowingUs
    ? timeGrowing(runtime, commands, clock)
    : timeApart(runtime, commands, clock);
}

/** A command's time is that of a graph of all commands up to it, minus that of a graph of the commands before it. */
function timeGrowing(runtime: Timer, commands: readonly StepCommand[], clock: Clock): readonly number[] {
  let before = 0;
  return commands.map((_, index) => {
    const upToUs = withGraph(runtime, commands.slice(0, index + 1), (upTo) => {
      const groupUs = Array.from({ length: groups }, () =>
        timeUs(runtime, clock, () => {
          for (let count = 0; count < launches; count++) upTo.replay();
        }),
      );
      return Math.min(...groupUs) / launches;
    });
    // Another call can't make a graph faster, so a lower time is a measurement error.
    const us = Math.max(before, upToUs);
    const addedUs = us - before;
    before = us;
    return addedUs;
  });
}

/**
 * Runs the step a few times, one command at a time, each in a graph. All of these times contain the same launch and wait of the host,
 * which is what they are longer by, together, than the step in one graph.
 */
function timeApart(runtime: Timer, commands: readonly StepCommand[], clock: Clock): readonly number[] {
  const bestUs = (times: readonly number[]): number => Math.min(...times);
  const stepUs = withGraph(runtime, commands, (step) =>
    bestUs(Array.from({ length: passes }, () => timeUs(runtime, clock, () => step.replay()))),
  );
  const graphs: Replayable[] = [];
  try {
    for (const command of commands) graphs.push(captureCommands(runtime, [command]));
    const passUs = Array.from({ length: passes }, () =>
      graphs.map((graph) => timeUs(runtime, clock, () => graph.replay())),
    );
    const apartUs = graphs.map((_, index) => bestUs(passUs.map((times) => times[index] ?? 0)));
    return withoutOverhead(apartUs, stepUs);
  } finally {
    for (const graph of graphs) graph.close();
  }
}

/** Subtracts the same overhead from all times, down to zero, so that they add up to `totalUs`. */
function withoutOverhead(times: readonly number[], totalUs: number): readonly number[] {
  let excessUs = times.reduce((sum, us) => sum + us, 0) - totalUs;
  let overheadUs = 0;
  // Times below the overhead give less than others, which have to give more.
  for (const [index, us] of [...times].sort((a, b) => a - b).entries()) {
    overheadUs = Math.max(0, excessUs / (times.length - index));
    if (us >= overheadUs) break;
    excessUs -= us;
  }
  return times.map((us) => Math.max(0, us - overheadUs));
}

function captureCommands(runtime: Timer, commands: readonly StepCommand[]): Replayable {
  return runtime.captureForTiming("times", () => runtime.submit(commands.map(({ command }) => command)));
}

function withGraph<T>(runtime: Timer, commands: readonly StepCommand[], use: (graph: Replayable) => T): T {
  const graph = captureCommands(runtime, commands);
  try {
    return use(graph);
  } finally {
    graph.close();
  }
}

function timeUs(runtime: Pick<Runtime, "synchronize">, clock: Clock, send: () => void): number {
  runtime.synchronize();
  const startMs = clock.nowMs();
  send();
  runtime.synchronize();
  return 1000 * (clock.nowMs() - startMs);
}
