/** From a program's calls to commands: slices become storages, the kinds of calls emit commands, and the kernels are loaded once. */

import type { KernelSource } from "../../driver/index.js";
import { backendOf } from "../../kernels/index.js";
import type { Command, LoadedCommand, Runtime, Storage } from "../../runtime/index.js";
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

/** A command whose kernel need not be loaded yet. */
interface EmittedCommand extends Omit<StepCommand, "command"> {
  readonly command: Command | LoadedCommand;
  /** True if it uses programmatic dependent launch, if it is a launch. */
  readonly isPdl: boolean;
}

type Resolve = (slice: BufferSlice) => Storage;
type Schedule = readonly Pick<ScheduledCall, "stream" | "prefetches">[];

interface EmitOptions {
  readonly schedule?: Schedule;
  /** True if the first call of each stream follows a launch, which the caller has emitted. Default: false. */
  readonly followsLaunch?: boolean;
}

/**
 * The commands of the calls, in order. With a schedule, a call with prefetches uses programmatic dependent launch if the call before it on
 * its stream ends with a launch. Kernels that are not compiled yet are compiled several at once.
 */
export function emitCommands(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: Resolve,
  options: EmitOptions = {},
): readonly StepCommand[] {
  const emitted = emitCalls(runtime, calls, resolve, options);
  runtime.loadKernels(sourcesOf(emitted));
  return emitted.flatMap(({ call, op, command, isPdl }) => {
    const loaded = "request" in command ? [command] : runtime.load([command]);
    const steps = loaded.map((command): StepCommand => ({ call, op, command }));
    return isPdl ? steps.map((step) => withPdl(step, true)) : steps;
  });
}

/** The kernels of the calls that `emitCommands` would load. `resolve` may return storages without memory. */
export function listSources(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: Resolve,
  options: EmitOptions = {},
): readonly KernelSource[] {
  return sourcesOf(emitCalls(runtime, calls, resolve, options));
}

function sourcesOf(emitted: readonly EmittedCommand[]): readonly KernelSource[] {
  return emitted.flatMap(({ command }) =>
    command.kind === "launch" && "source" in command ? [command.source] : [],
  );
}

function emitCalls(
  runtime: Runtime,
  calls: readonly Call[],
  resolve: Resolve,
  { schedule = [], followsLaunch = false }: EmitOptions,
): readonly EmittedCommand[] {
  const backend = backendOf(runtime);
  const emitted: EmittedCommand[] = [];
  /** By stream: the last command of its latest call. */
  const latest = new Map<number, EmittedCommand | undefined>();
  for (const [index, { op, work }] of calls.entries()) {
    beat();
    const { stream = 0, prefetches } = schedule[index] ?? {};
    const isAfterLaunch = latest.has(stream) ? latest.get(stream)?.command.kind === "launch" : followsLaunch;
    const emission = { backend, op, resolve, prefetches: isAfterLaunch ? prefetches : undefined };
    const ofCall = kindOf(work)
      .emit(work, emission)
      .map((command, position): EmittedCommand => {
        const isPdl = position === 0 && emission.prefetches !== undefined;
        return { call: index, op, command, isPdl };
      });
    emitted.push(...ofCall);
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
