/** From a program's calls to commands: slices become storages, the kinds of calls emit commands, and the kernels are loaded once. */

import { backendOf } from "../../kernels/index.js";
import type { LoadedCommand, Runtime, Storage } from "../../runtime/index.js";
import { beat } from "../../units/index.js";
import { kindOf } from "../program/kinds/index.js";
import type { BufferSlice, Call, ScheduledCall } from "../program/program.js";

/** A command of a program's call, with its kernel loaded. */
export interface StepCommand {
  /** The index of the call. */
  readonly call: number;
  readonly op: string;
  readonly command: LoadedCommand;
}

/**
 * The commands of the calls, in order. With a schedule, a call with prefetches uses programmatic dependent launch if the call before it on
 * its stream ends with a launch.
 */
export function emitCommands(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: (slice: BufferSlice) => Storage,
  schedule: readonly Pick<ScheduledCall, "stream" | "prefetches">[] = [],
): readonly StepCommand[] {
  const backend = backendOf(runtime);
  const emitted: StepCommand[] = [];
  /** By stream: the last command of its latest call. */
  const latest = new Map<number, StepCommand | undefined>();
  for (const [index, { op, work }] of calls.entries()) {
    beat("kernels", index, calls.length);
    const { stream = 0, prefetches } = schedule[index] ?? {};
    const isAfterLaunch = latest.get(stream)?.command.kind === "launch";
    const emission = { backend, op, resolve, prefetches: isAfterLaunch ? prefetches : undefined };
    const commands = kindOf(work)
      .emit(work, emission)
      .flatMap((command) => ("request" in command ? command : runtime.load([command])));
    const ofCall = commands.map((command): StepCommand => ({ call: index, op, command }));
    const [first, ...rest] = ofCall;
    if (first && emission.prefetches) emitted.push(withPdl(first, true), ...rest);
    else emitted.push(...ofCall);
    latest.set(stream, ofCall.at(-1));
  }
  return emitted;
}

/** The command with or without programmatic dependent launch. A command that is not a launch stays unchanged. */
export function withPdl(step: StepCommand, isPdl: boolean): StepCommand {
  const { command } = step;
  if (command.kind !== "launch") return step;
  return { ...step, command: { ...command, request: { ...command.request, isPdl } } };
}

export function submitCommands(runtime: Runtime, commands: readonly StepCommand[]): void {
  runtime.submit(commands.map(({ command }) => command));
}
