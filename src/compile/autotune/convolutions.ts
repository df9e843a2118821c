/**
 * Selects the tiles of channels-last convolutions by measurement, as `gemms.ts` does for GEMMs: each distinct convolution is timed once per
 * machine with the candidates of the shortest estimated times. The driver's notes keep the results.
 */

import type { KernelSource } from "../../driver/index.js";
import { HoldfastError } from "../../errors/index.js";
import { backendOf } from "../../kernels/index.js";
import {
  alignment,
  type LoadedCommand,
  type Replayable,
  type Runtime,
  type Storage,
} from "../../runtime/index.js";
import { alignUp, beat, type Clock, literalKey, span, systemClock } from "../../units/index.js";
import { timingTolerance } from "../cost-model.js";
import { emitCommands, listSources } from "../execute/emit.js";
import type { ConvolutionCall } from "../program/kinds/convolution.js";
import { type BufferSlice, type Call, mapSlices, type Program } from "../program/program.js";
import { addressOf } from "./gemm-desc.js";
import { attempt, launchesFor, memoryErrors, rounds, smallNumber, timeMs } from "./gemm-times.js";

/** The selected algorithms, by the description of the convolution. */
export type KnownConvolutions = Map<string, number>;

const knownConvolutions: KnownConvolutions = new Map();

interface ConvolutionTuning {
  readonly known?: KnownConvolutions;
  readonly clock?: Clock;
}

/** Candidates that are timed: estimates are wrong by a factor, not by an order of magnitude. */
const maxCandidates = 6;
const maxConvolutionMs = 100;
const maxTotalMs = 3000;

export function autotuneConvolutions(
  runtime: Runtime,
  program: Program,
  { known = knownConvolutions, clock = systemClock }: ConvolutionTuning = {},
): void {
  const kinds = new Map(
    program.calls.flatMap(({ work }) => (isTunable(work) ? [[keyOf(runtime, work), work] as const] : [])),
  );
  const unknown = [...kinds].filter(([key]) => !known.has(key) && !recall(runtime, key, known));
  measure(runtime, unknown, known, clock);
  for (const node of program.nodes) {
    const { call } = node;
    if (!isTunable(call.work)) continue;
    const algorithm = known.get(keyOf(runtime, call.work)) ?? 0;
    if (algorithm !== (call.work.shape.algorithm ?? 0))
      program.replace(node, { ...call, work: withAlgorithm(runtime, program, call.work, algorithm) });
  }
}

/** The algorithms of a program's convolutions, for another program that must have the same bits. */
export function convolutionAlgorithmsIn(runtime: Runtime, calls: readonly Call[]): KnownConvolutions {
  return new Map(
    calls.flatMap(({ work }) =>
      isTunable(work) ? [[keyOf(runtime, work), work.shape.algorithm ?? 0] as const] : [],
    ),
  );
}

function isTunable(work: Call["work"]): work is ConvolutionCall {
  return work.kind === "convolution" && work.shape.channelsLast !== undefined;
}

function keyOf(
  runtime: Runtime,
  { shape: { algorithm: _, ...shape }, operands: { bias } }: ConvolutionCall,
): string {
  return `${runtime.device.name}: ${literalKey([shape, bias !== undefined])}`;
}

function withAlgorithm(
  runtime: Runtime,
  program: Program,
  { shape, operands: { scratch, ...operands }, ...work }: ConvolutionCall,
  algorithm: number,
): ConvolutionCall {
  const tuned = { ...shape, algorithm };
  const size = backendOf(runtime).convolutionScratchBytes(tuned);
  const kept =
    scratch?.size === size ? scratch : scratchSlice(program.makeBuffer(size, "convolution scratch"), size);
  return { ...work, shape: tuned, operands: { ...operands, ...(size > 0 && { scratch: kept }) } };
}

function scratchSlice(buffer: BufferSlice["buffer"], size: number): BufferSlice {
  return { buffer, offset: 0, size };
}

type Unknown = readonly (readonly [key: string, work: ConvolutionCall])[];

function measure(runtime: Runtime, unknown: Unknown, known: KnownConvolutions, clock: Clock): void {
  if (unknown.length === 0) return;
  // Compiled before the clock starts: that takes longer than all trials.
  runtime.loadKernels(unknown.flatMap(([, work]) => sourcesOf(runtime, work)));
  const endMs = clock.nowMs() + maxTotalMs;
  for (const [index, [key, work]] of unknown.entries()) {
    beat("convolutions", index, unknown.length);
    const shareMs = (endMs - clock.nowMs()) / (unknown.length - index);
    if (shareMs <= 0) break;
    const fastest = fastestOf(timeCandidates(runtime, work, Math.min(maxConvolutionMs, shareMs), clock));
    if (fastest === undefined) continue;
    known.set(key, fastest);
    runtime.remember(noteOf(key), String(fastest));
  }
}

/** The text changes when the kernels change, so that old results are measured again. */
const noteOf = (key: string): string => `convolution algorithm for ${key}`;

function recall(runtime: Runtime, key: string, known: KnownConvolutions): boolean {
  const note = Number(runtime.recall(noteOf(key)) ?? Number.NaN);
  const isValid = Number.isSafeInteger(note) && note >= 0 && note < maxCandidates;
  if (isValid) known.set(key, note);
  return isValid;
}

/** The first of about equal ones. */
function fastestOf(times: ReadonlyMap<number, number>): number | undefined {
  const minMs = Math.min(...times.values());
  for (const [algorithm, ms] of times) if (ms <= minMs * timingTolerance) return algorithm;
  return undefined;
}

function candidatesOf(runtime: Runtime, { shape }: ConvolutionCall): readonly number[] {
  const count = Math.min(maxCandidates, backendOf(runtime).convolutionCandidates(shape));
  return Array.from({ length: count }, (_, algorithm) => algorithm);
}

/** A trial's call, on slices of one buffer that has the operands one after the other. */
function trialOf(runtime: Runtime, work: ConvolutionCall, algorithm: number): { call: Call; bytes: number } {
  const buffer = { id: 0, bytes: 0, label: "convolution trial" };
  let end = 0;
  const place = (size: number, misalignment = 0): BufferSlice => {
    const offset = end + misalignment;
    end = alignUp(offset + size, alignment);
    return { buffer, offset, size };
  };
  const { scratch: _, ...operands } = work.operands;
  const placed = mapSlices({ ...work, operands }, (slice) => place(slice.size, addressOf(slice) % alignment));
  const shape = { ...work.shape, algorithm };
  const scratchBytes = backendOf(runtime).convolutionScratchBytes(shape);
  const trial = placed as ConvolutionCall;
  const withScratch = { ...trial.operands, ...(scratchBytes > 0 && { scratch: place(scratchBytes) }) };
  return { call: { op: "convolution", work: { ...trial, shape, operands: withScratch } }, bytes: end };
}

function sourcesOf(runtime: Runtime, work: ConvolutionCall): readonly KernelSource[] {
  return candidatesOf(runtime, work).flatMap((algorithm) =>
    listSources(runtime, [trialOf(runtime, work, algorithm).call], describeStorage),
  );
}

/** A storage with a slice's size and alignment, and no memory. */
function describeStorage(slice: BufferSlice): Storage {
  return {
    ...{ kind: "step", span: span(slice.offset, slice.size), label: slice.buffer.label },
    ...{ generation: 0, home: slice, owner: undefined },
  };
}

/** The time of each candidate in milliseconds, on separate memory. Empty if there is no memory for the trial. */
function timeCandidates(
  runtime: Runtime,
  work: ConvolutionCall,
  limitMs: number,
  clock: Clock,
): ReadonlyMap<number, number> {
  const trials = candidatesOf(runtime, work).map((algorithm) => ({
    algorithm,
    ...trialOf(runtime, work, algorithm),
  }));
  const block = allocate(runtime, Math.max(...trials.map(({ bytes }) => bytes)));
  if (!block) return new Map();
  const views: Storage[] = [];
  const bursts = new Map<number, Replayable>();
  const bestMs = new Map<number, number>();
  const viewOf = ({ offset, size }: BufferSlice): Storage => {
    const view = runtime.view(block, offset, size);
    views.push(view);
    return view;
  };
  try {
    runtime.fill(block, smallNumber);
    const startMs = clock.nowMs();
    let launches = 0;
    for (const { algorithm, call } of trials) {
      if (bursts.size > 0 && clock.nowMs() - startMs > limitMs / 2) break;
      const commands: readonly LoadedCommand[] = emitCommands(runtime, [call], viewOf).map(
        ({ command }) => command,
      );
      const burst = attempt(() => {
        timeMs(runtime, clock, () => runtime.submit(commands));
        launches ||= launchesFor(timeMs(runtime, clock, () => runtime.submit(commands)));
        return runtime.captureForTiming("convolution", () => {
          for (let count = 0; count < launches; count++) runtime.submit(commands);
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
    for (const view of views) runtime.arena.dropView(view);
    runtime.arena.free(block);
  }
  return bestMs;
}

/** Undefined if there is no memory: lack of memory for tuning is no error. */
function allocate(runtime: Runtime, size: number): Storage | undefined {
  try {
    return runtime.arena.allocate(size, "convolution trial");
  } catch (error) {
    if (error instanceof HoldfastError && memoryErrors.has(error.code)) return undefined;
    throw error;
  }
}
