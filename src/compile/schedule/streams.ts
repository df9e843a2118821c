/**
 * Sends a step with branches: each call on its branch's stream, behind marks of just those calls that it waits for. Inside
 * a capture the streams become branches of the graph.
 */

import type { Stream } from "../../driver/index.js";
import type { Mark, Runtime } from "../../runtime/index.js";
import { type StepCommand, submitCommands } from "../execute/emit.js";
import type { Schedule } from "../program/program.js";

/** What one call sends, where, and behind what. */
interface Submission {
  readonly stream: Stream;
  /** It is the first of its branch, and waits for nothing: that branch begins with the step itself. */
  readonly isBeginning: boolean;
  readonly pieces: readonly StepCommand[];
  readonly after: readonly number[];
  /** Some call waits for it. */
  readonly isAwaited: boolean;
}

/** How a schedule's pieces are sent. The streams are the runtime's and last as long as it does. */
export function submitterOf(
  runtime: Runtime,
  schedule: Schedule,
  pieces: readonly StepCommand[],
): () => void {
  const sideStreams = schedule.calls.reduce((most, { stream }) => Math.max(most, stream), 0);
  if (sideStreams === 0) return () => submitCommands(runtime, pieces);
  const sides = runtime.sideStreams(sideStreams, { isFirst: !schedule.isMainFirst });
  const sendings = sendingsOf(schedule, pieces, [runtime.stream, ...sides]);
  return () => sendAll(runtime, sendings);
}

function sendingsOf(
  { calls }: Schedule,
  pieces: readonly StepCommand[],
  streams: readonly Stream[],
): readonly Submission[] {
  const [main] = streams;
  if (!main) return [];
  const ofCall: StepCommand[][] = calls.map(() => []);
  for (const piece of pieces) {
    const stream = streams[calls[piece.call]?.stream ?? 0] ?? main;
    ofCall[piece.call]?.push(stream === main ? piece : onStream(piece, stream));
  }
  const awaited = new Set(calls.flatMap(({ after }) => after));
  const begun = new Set<number>([0]);
  return calls.map(({ stream: index, after }, place) => {
    const isBeginning = !begun.has(index) && after.length === 0;
    begun.add(index);
    const stream = streams[index] ?? main;
    return { stream, isBeginning, pieces: ofCall[place] ?? [], after, isAwaited: awaited.has(place) };
  });
}

function onStream({ command: work, ...piece }: StepCommand, stream: Stream): StepCommand {
  if (work.kind !== "launch")
    throw new Error(
      `"${piece.op}" is on a side branch and sends a ${work.kind}, which goes on the main one only.`,
    );
  return { ...piece, command: { kind: "launch", request: { ...work.request, stream } } };
}

function sendAll(runtime: Runtime, sendings: readonly Submission[]): void {
  const marks = new Map<number, Mark>();
  const begun = new Set<Stream>();
  try {
    for (const { stream, isBeginning } of sendings)
      if (isBeginning) runtime.orderStreams(runtime.stream, stream);
    for (const [place, { stream, pieces, after, isAwaited }] of sendings.entries()) {
      for (const earlier of after) {
        const mark = marks.get(earlier);
        if (mark) runtime.waitEvent(mark, stream);
      }
      if (stream !== runtime.stream) begun.add(stream);
      submitCommands(runtime, pieces);
      if (isAwaited) marks.set(place, runtime.recordEvent(stream));
    }
  } catch (error) {
    rejoin(runtime, begun);
    throw error;
  } finally {
    for (const mark of marks.values()) runtime.destroyEvent(mark);
  }
}

/** Whatever comes behind a step that broke off must not meet what of it is still running. */
function rejoin(runtime: Runtime, begun: Iterable<Stream>): void {
  for (const stream of begun) {
    try {
      runtime.orderStreams(stream, runtime.stream);
    } catch {
      // The error that led here is the one to tell.
    }
  }
}
