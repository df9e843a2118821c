/**
 * Selects the algorithms of calls by measurement: each distinct call is timed once per machine with its candidates, on separate memory,
 * as short graphs. The driver's notes keep the results. A kind of call says what is distinct, and how a call looks with a candidate.
 */

import { alignment, type Replayable, type Runtime, type Storage } from "../../runtime/index.js";
import { alignUp, beat, type Clock, span, systemClock } from "../../units/index.js";
import { timingTolerance } from "../cost-model.js";
import { emitCommands, listSources, type StepCommand, submitCommands, withPdl } from "../execute/emit.js";
import { type BufferSlice, type Call, mapSlices, type Program, type Work } from "../program/program.js";
import { addressOf } from "./gemm-desc.js";
import { attempt, copiesBeyondCache, launchesFor, maxLaunches, rounds, timeMs } from "./gemm-times.js";
import { allocateTrialMemory } from "./trial-memory.js";

/** A kind of call that has several algorithms, numbered from 0, the default. */
export interface TunableKind<W extends Work> {
  /** For notes, memory and progress. */
  readonly name: string;
  readonly maxCandidates: number;
  isTunable(work: Work): work is W;
  /** Calls with the same key share their result. The algorithm is not part of it. */
  key(work: W): string;
  countCandidates(runtime: Runtime, work: W): number;
  algorithmOf(work: W): number;
  /** The call with another algorithm. Scratch memory, if it needs any, is made by `makeScratch`. */
  withAlgorithm(runtime: Runtime, work: W, algorithm: number, makeScratch: (bytes: number) => BufferSlice): W;
  /** The weights of a call that takes the time of reading them: its trials are as in a step, see `launchesInStep`. Default: none. */
  weightsOf?(work: W): readonly BufferSlice[];
}

/** The selected algorithm of a call, and the time that it took. */
export interface Choice {
  readonly algorithm: number;
  readonly us: number;
}

/** By the description of the call. */
export type KnownChoices = Map<string, Choice>;

export interface TuneOptions {
  readonly known: KnownChoices;
  readonly clock?: Clock;
}

const maxCallMs = 100;
const maxTotalMs = 3000;

/** True if a call has another algorithm than before. */
export function tuneCalls<W extends Work>(
  kind: TunableKind<W>,
  runtime: Runtime,
  program: Program,
  { known, clock = systemClock }: TuneOptions,
): boolean {
  const tunable = program.calls.flatMap(({ work }) => (kind.isTunable(work) ? [work] : []));
  measureCalls(kind, runtime, tunable, { known, clock });
  let isChanged = false;
  for (const node of program.nodes) {
    const { work } = node.call;
    if (!kind.isTunable(work)) continue;
    const algorithm = choiceOf(kind, runtime, work, known)?.algorithm ?? 0;
    if (algorithm === kind.algorithmOf(work)) continue;
    const makeScratch = (size: number): BufferSlice => ({
      buffer: program.makeBuffer(size, `${kind.name} scratch`),
      ...{ offset: 0, size },
    });
    isChanged = true;
    program.replace(node, {
      ...node.call,
      work: kind.withAlgorithm(runtime, work, algorithm, makeScratch),
    });
  }
  return isChanged;
}

/** Times the calls that are not known yet. Without time or memory for the trials, they stay unknown. */
export function measureCalls<W extends Work>(
  kind: TunableKind<W>,
  runtime: Runtime,
  calls: readonly W[],
  { known, clock = systemClock }: TuneOptions,
): void {
  const distinct = new Map(calls.map((work) => [keyOf(kind, runtime, work), work]));
  const unknown = [...distinct].filter(([key]) => !known.has(key) && !recall(kind, runtime, key, known));
  measure(kind, runtime, unknown, known, clock);
}

export function choiceOf<W extends Work>(
  kind: TunableKind<W>,
  runtime: Runtime,
  work: W,
  known: KnownChoices,
): Choice | undefined {
  return known.get(keyOf(kind, runtime, work));
}

/** The algorithms of a program's calls, for another program that must have the same bits. */
export function choicesIn<W extends Work>(
  kind: TunableKind<W>,
  runtime: Runtime,
  calls: readonly Call[],
): KnownChoices {
  return new Map(
    calls.flatMap(({ work }) =>
      kind.isTunable(work)
        ? [[keyOf(kind, runtime, work), { algorithm: kind.algorithmOf(work), us: Number.NaN }] as const]
        : [],
    ),
  );
}

/** Whose choices they are: of the device, or of the devices of all ranks. */
export function tunerName({ device, choices }: Runtime): string {
  return choices.isSharing ? `${device.name} on several ranks` : device.name;
}

function keyOf<W extends Work>(kind: TunableKind<W>, runtime: Runtime, work: W): string {
  return `${tunerName(runtime)}: ${kind.key(work)}`;
}

/** The text changes when the kernels change, so that old results are measured again. */
const noteOf = ({ name }: { readonly name: string }, key: string): string =>
  `${name} algorithm, with ping-pong kernels and copies of weights, for ${key}`;

function recall<W extends Work>(
  kind: TunableKind<W>,
  runtime: Runtime,
  key: string,
  known: KnownChoices,
): boolean {
  const note = runtime.recall(noteOf(kind, key));
  const [algorithm = Number.NaN, us = Number.NaN] = note?.split(" ").map(Number) ?? [];
  const isValid =
    Number.isSafeInteger(algorithm) && algorithm >= 0 && algorithm < kind.maxCandidates && us > 0;
  if (isValid) known.set(key, { algorithm, us });
  return isValid;
}

function measure<W extends Work>(
  kind: TunableKind<W>,
  runtime: Runtime,
  unknown: readonly (readonly [key: string, work: W])[],
  known: KnownChoices,
  clock: Clock,
): void {
  if (runtime.choices.isFollowing) return;
  const trials = unknown.map(([key, work]) => ({ key, candidates: trialsOf(kind, runtime, work) }));
  if (trials.length === 0) return;
  // Compiled before the clock starts: that takes longer than all trials.
  runtime.loadKernels(
    trials.flatMap(({ candidates }) =>
      candidates.flatMap(({ call, weights }) =>
        listSources(runtime, [call], describeStorage, launchesInStep(runtime, weights)),
      ),
    ),
  );
  const endMs = clock.nowMs() + maxTotalMs;
  for (const [index, { key, candidates }] of trials.entries()) {
    beat(`${kind.name}s`, index, trials.length);
    const shareMs = (endMs - clock.nowMs()) / (trials.length - index);
    if (shareMs <= 0) break;
    const limitMs = Math.min(maxCallMs, shareMs);
    const fastest = fastestOf(timeTrials(runtime, candidates, { name: kind.name, limitMs, clock }));
    if (!fastest) continue;
    known.set(key, fastest);
    runtime.remember(noteOf(kind, key), `${fastest.algorithm} ${fastest.us}`);
  }
}

/** The first of about equal ones. */
function fastestOf(times: ReadonlyMap<number, number>): Choice | undefined {
  const minUs = Math.min(...times.values());
  for (const [algorithm, us] of times) if (us <= minUs * timingTolerance) return { algorithm, us };
  return undefined;
}

/** A call with one of its algorithms, on slices of one buffer that has the operands one after the other. */
interface Trial {
  readonly algorithm: number;
  readonly call: Call;
  readonly bytes: number;
  readonly weights: readonly BufferSlice[];
}

function trialsOf<W extends Work>(kind: TunableKind<W>, runtime: Runtime, work: W): readonly Trial[] {
  const count = Math.min(kind.maxCandidates, kind.countCandidates(runtime, work));
  return Array.from({ length: count }, (_, algorithm): Trial => {
    const buffer = { id: 0, bytes: 0, label: `${kind.name} trial` };
    let end = 0;
    const place = (size: number, misalignment = 0): BufferSlice => {
      const offset = end + misalignment;
      end = alignUp(offset + size, alignment);
      return { buffer, offset, size };
    };
    // The call has no scratch memory of its own then: `withAlgorithm` makes all of it.
    const tuned = kind.withAlgorithm(runtime, work, algorithm, (size) => ({
      buffer: { id: -1, bytes: size, label: "scratch" },
      ...{ offset: 0, size },
    }));
    // A slice that several operands share stays shared.
    const placed = new Map<string, BufferSlice>();
    const moved = mapSlices(tuned, (slice) => {
      const key = `${slice.buffer.id} ${slice.offset} ${slice.size}`;
      const found = placed.get(key) ?? place(slice.size, addressOf(slice) % alignment);
      placed.set(key, found);
      return found;
    });
    const weights = (kind.isTunable(moved) && kind.weightsOf?.(moved)) || [];
    return { algorithm, call: { op: kind.name, work: moved }, bytes: end, weights };
  });
}

/**
 * A call of a few rows takes the time of reading its weights: in a step it loads the first ones while the launch before it ends, and finds none
 * of them in the cache. So the launches of its trials overlap, and take turns with copies.
 */
function launchesInStep(
  { device }: Runtime,
  weights: readonly BufferSlice[],
): Parameters<typeof emitCommands>[3] {
  if (weights.length === 0 || !device.supportsPdl) return {};
  return { schedule: [{ stream: 0, prefetches: weights }], followsLaunch: true };
}

function copiesFor(weights: readonly BufferSlice[]): number {
  const bytes = weights.reduce((sum, { size }) => sum + size, 0);
  return bytes === 0 ? 1 : copiesBeyondCache(bytes);
}

/** A storage with a slice's size and alignment, and no memory. */
function describeStorage(slice: BufferSlice): Storage {
  return {
    ...{ kind: "step", span: span(slice.offset, slice.size), label: slice.buffer.label },
    ...{ generation: 0, home: slice, owner: undefined },
  };
}

/** The time of each trial in microseconds, on separate memory. Empty if there is no memory for the trials. */
function timeTrials(
  runtime: Runtime,
  trials: readonly Trial[],
  { name, limitMs, clock }: { readonly name: string; readonly limitMs: number; readonly clock: Clock },
): ReadonlyMap<number, number> {
  const copyBytes = Math.max(...trials.map(({ bytes }) => bytes));
  const copies = Math.min(...trials.map(({ weights }) => copiesFor(weights)));
  const memory = allocateTrialMemory(runtime, copies * copyBytes, `${name} trial`);
  if (!memory) return new Map();
  const bursts = new Map<number, Replayable>();
  const bestMs = new Map<number, number>();
  let launches = 0;
  const commandsOf = ({ call, weights }: Trial, copy: number): readonly StepCommand[] => {
    const viewOf = ({ offset, size }: BufferSlice): Storage =>
      runtime.view(memory.storage, copy * copyBytes + offset, size);
    return emitCommands(runtime, [call], viewOf, launchesInStep(runtime, weights));
  };
  try {
    const startMs = clock.nowMs();
    for (const trial of trials) {
      const { algorithm } = trial;
      if (bursts.size > 0 && clock.nowMs() - startMs > limitMs / 2) break;
      const first = commandsOf(trial, 0).map((command) => withPdl(command, false));
      const burst = attempt(() => {
        timeMs(runtime, clock, () => submitCommands(runtime, first));
        const firstMs = timeMs(runtime, clock, () => submitCommands(runtime, first));
        launches ||= launchesFor(firstMs, Math.max(copies, maxLaunches));
        const used = Array.from({ length: Math.min(copies, launches) }, (_, copy) => commandsOf(trial, copy));
        return runtime.captureForTiming(name, () => {
          submitCommands(runtime, first);
          for (let count = 1; count < launches; count++)
            submitCommands(runtime, used[count % used.length] ?? first);
        });
      });
      if (burst) bursts.set(algorithm, burst);
    }
    // Interleaved, so that a rising clock rate favours no candidate.
    for (let round = 0; round < rounds && (round === 0 || clock.nowMs() - startMs < limitMs); round++) {
      for (const [algorithm, burst] of bursts) {
        const elapsed = timeMs(runtime, clock, () => burst.replay());
        bestMs.set(algorithm, Math.min(elapsed, bestMs.get(algorithm) ?? Number.POSITIVE_INFINITY));
      }
    }
  } finally {
    for (const burst of bursts.values()) burst.close();
    memory.free();
  }
  return new Map([...bestMs].map(([algorithm, ms]) => [algorithm, (ms * 1000) / launches]));
}
