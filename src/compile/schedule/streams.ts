/**
 * Submits a step with side streams: each call on its stream, after the events of the calls that it waits for. In a capture the
 * streams become parallel paths of the graph.
 */

import type { Stream } from "../../driver/index.js";
import type { Runtime, StreamEvent } from "../../runtime/index.js";
import { type StepCommand, submitCommands } from "../execute/emit.js";
import type { Schedule } from "../program/program.js";

/** The commands of one call, its stream, and its waits. */
interface Submission {
  readonly stream: Stream;
  /** True for the first call of a side stream if it waits for nothing: the stream then forks at the start of the step. */
  readonly isFork: boolean;
  readonly commands: readonly StepCommand[];
  readonly after: readonly number[];
  /** True if another call waits for it. */
  readonly isAwaited: boolean;
}

/** A function that submits a schedule's commands. The streams belong to the runtime and live as long as it does. */
export function submitterOf(
  runtime: Runtime,
  schedule: Schedule,
  commands: readonly StepCommand[],
): () => void {
  const sideStreams = schedule.calls.reduce((max, { stream }) => Math.max(max, stream), 0);
  if (sideStreams === 0) return () => submitCommands(runtime, commands);
  const sides = runtime.sideStreams(sideStreams, { isHighPriority: !schedule.isMainFirst });
  const submissions = submissionsOf(schedule, commands, [runtime.stream, ...sides]);
  return () => submitAll(runtime, submissions);
}

function submissionsOf(
  { calls }: Schedule,
  commands: readonly StepCommand[],
  streams: readonly Stream[],
): readonly Submission[] {
  const [main] = streams;
  if (!main) return [];
  const byCall: StepCommand[][] = calls.map(() => []);
  for (const command of commands) {
    const stream = streams[calls[command.call]?.stream ?? 0] ?? main;
    byCall[command.call]?.push(stream === main ? command : onStream(command, stream));
  }
  const awaited = new Set(calls.flatMap(({ after }) => after));
  const started = new Set<number>([0]);
  return calls.map(({ stream: index, after }, position) => {
    const isFork = !started.has(index) && after.length === 0;
    started.add(index);
    const stream = streams[index] ?? main;
    return { stream, isFork, commands: byCall[position] ?? [], after, isAwaited: awaited.has(position) };
  });
}

function onStream({ command, ...rest }: StepCommand, stream: Stream): StepCommand {
  if (command.kind !== "launch")
    throw new Error(
      `"${rest.op}" is on a side stream and has a ${command.kind} command, which can only run on the main stream.`,
    );
  return { ...rest, command: { kind: "launch", request: { ...command.request, stream } } };
}

function submitAll(runtime: Runtime, submissions: readonly Submission[]): void {
  const events = new Map<number, StreamEvent>();
  const started = new Set<Stream>();
  try {
    for (const { stream, isFork } of submissions) if (isFork) runtime.orderStreams(runtime.stream, stream);
    for (const [position, { stream, commands, after, isAwaited }] of submissions.entries()) {
      for (const earlier of after) {
        const event = events.get(earlier);
        if (event) runtime.waitEvent(event, stream);
      }
      if (stream !== runtime.stream) started.add(stream);
      submitCommands(runtime, commands);
      if (isAwaited) events.set(position, runtime.recordEvent(stream));
    }
  } catch (error) {
    rejoin(runtime, started);
    throw error;
  } finally {
    for (const event of events.values()) runtime.destroyEvent(event);
  }
}

/** After a step that failed halfway, later work must wait for the side streams. */
function rejoin(runtime: Runtime, started: Iterable<Stream>): void {
  for (const stream of started) {
    try {
      runtime.orderStreams(stream, runtime.stream);
    } catch {
      // Only the first error is reported.
    }
  }
}
