/**
 * Times a GEMM with each algorithm of the library and with the native kernel. It uses separate memory, so that no value
 * of the step changes. It times a short graph, because a launch from Node takes longer than many GEMMs.
 */

import type { KernelSource } from "../../driver/index.js";
import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { gemmCandidates, gemmScratchBytes, maxSkinnyRows } from "../../kernels/index.js";
import {
  alignment,
  type LaunchRequest,
  type Replayable,
  type Runtime,
  type Storage,
} from "../../runtime/index.js";
import { alignUp, type Clock, span } from "../../units/index.js";
import { emitCommands, listSources } from "../execute/emit.js";
import type { BufferSlice, Call, GemmCall } from "../program/program.js";
import { addressOf, describeGemm } from "./gemm-desc.js";
import { allocateTrialMemory } from "./trial-memory.js";

type Problem = GemmCall["problem"];

/** The maximum launches of a graph; fewer if they would take longer than `burstMs`. */
export const maxLaunches = 16;
const burstMs = 1;
/** More than the L2 cache of a GPU holds. */
const cacheBytes = 128 * 2 ** 20;
const maxCopies = 64;
/** The minimum of this many rounds counts, because disturbances only add time. */
export const rounds = 5;

/** Errors of algorithms that the library lists but cannot run, or not in a graph. */
const rejections: ReadonlySet<ErrorCode> = new Set([
  "DRIVER_FAILED",
  "UNSUPPORTED",
  "CAPTURE_REJECTED",
  "CAPTURE_NODES",
]);

export interface TimingOptions {
  /** No algorithm is started after this; the first is timed in any case. */
  readonly limitMs: number;
  readonly clock: Clock;
}

/** The kernels of a GEMM's candidates, without memory for the trial. */
export function candidateSources(runtime: Runtime, problem: Problem): readonly KernelSource[] {
  return [...scratchSizes(runtime, problem)].flatMap(([algorithm, size]) => {
    const scratch = size > 0 ? scratchSlice(size) : undefined;
    const call = candidateCall(problem, algorithm, scratch);
    return attempt(() => listSources(runtime, [call], describeStorage, inStep(runtime, problem))) ?? [];
  });
}

/** The scratch memory of each candidate. */
export function scratchSizes(runtime: Runtime, problem: Problem): ReadonlyMap<number, number> {
  const desc = describeGemm(problem);
  return new Map(
    gemmCandidates(runtime, desc).map((algorithm) => [
      algorithm,
      gemmScratchBytes(runtime, { ...desc, algorithm }),
    ]),
  );
}

function scratchSlice(size: number): BufferSlice {
  return { buffer: { id: 0, bytes: size, label: "GEMM scratch" }, offset: 0, size };
}

function candidateCall(
  { scratch: _, ...problem }: Problem,
  algorithm: number,
  scratch: BufferSlice | undefined,
): Call {
  return {
    op: "gemm",
    work: { kind: "gemm", problem: { ...problem, algorithm, ...(scratch && { scratch }) } },
  };
}

/** A storage with a slice's size and alignment, and no memory. */
function describeStorage(slice: BufferSlice): Storage {
  return {
    ...{ kind: "step", span: span(addressOf(slice), slice.size), label: slice.buffer.label },
    ...{ generation: 0, home: slice, owner: undefined },
  };
}

/**
 * The time of a launch with each algorithm in microseconds, in the library's order, then the native ones. Algorithms that cannot be
 * launched, or that exceed the time limit, are missing. Without memory for the trial, all are missing.
 */
export function timeCandidates(
  runtime: Runtime,
  problem: Problem,
  { limitMs, clock }: TimingOptions,
): ReadonlyMap<number, number> {
  const scratchBytes = scratchSizes(runtime, problem);
  const places = placeOperands(problem);
  const size = alignUp(places.end + Math.max(...scratchBytes.values()), alignment);
  const { copies, strideBytes } = copiesOfWeights(problem);
  const memory = allocateTrialMemory(runtime, size + (copies - 1) * strideBytes, "GEMM trial");
  if (!memory) return new Map();
  const bursts = new Map<number, Replayable>();
  const bestMs = new Map<number, number>();
  let launches = 0;
  try {
    // Native kernels are compiled before the clock starts: that takes longer than all trials.
    const requestFor = (candidate: Candidate): LaunchRequest =>
      firstLaunch(runtime, problem, memory.storage, places, candidate);
    const candidates = [...scratchBytes].flatMap(([algorithm, scratchBytes]) => {
      const candidate = { algorithm, scratchBytes };
      const request = attempt(() => requestFor(candidate));
      return request ? [{ candidate, first: { ...request, isPdl: false } }] : [];
    });
    const startMs = clock.nowMs();
    const elapsedMs = (): number => clock.nowMs() - startMs;
    for (const { candidate, first } of candidates) {
      if (bursts.size > 0 && elapsedMs() > limitMs / 2) break;
      const burst = attempt(() => {
        // Warm-up: the library loads an algorithm at its first run.
        timeMs(runtime, clock, () => runtime.launch(first));
        launches ||= launchesFor(
          timeMs(runtime, clock, () => runtime.launch(first)),
          Math.max(copies, maxLaunches),
        );
        const requests = Array.from({ length: Math.min(copies, launches) }, (_, copy) =>
          requestFor(copy === 0 ? candidate : { ...candidate, weightsAt: size + (copy - 1) * strideBytes }),
        );
        return runtime.captureForTiming("gemm", () => {
          runtime.launch(first);
          for (let count = 1; count < launches; count++)
            runtime.launch(requests[count % requests.length] as LaunchRequest);
        });
      });
      if (burst) bursts.set(candidate.algorithm, burst);
    }
    // Interleaved, so that a rising clock rate favours no candidate.
    for (let round = 0; round < rounds && (round === 0 || elapsedMs() < limitMs); round++) {
      for (const [algorithm, burst] of bursts) {
        const elapsed = timeMs(runtime, clock, () => burst.replay());
        bestMs.set(algorithm, Math.min(elapsed, bestMs.get(algorithm) ?? Infinity));
      }
    }
  } finally {
    for (const burst of bursts.values()) burst.close();
    memory.free();
  }
  return new Map([...bestMs].map(([algorithm, ms]) => [algorithm, (ms * 1000) / launches]));
}

/**
 * A GEMM of a few rows takes the time of reading its weights, in a step from device memory. Launches of a burst that read the same weights
 * would find them in the cache, so they take turns with copies.
 */
function copiesOfWeights({ m, b }: Problem): { readonly copies: number; readonly strideBytes: number } {
  const strideBytes = alignUp(b.slice.size + alignment, alignment);
  return { copies: m > maxSkinnyRows ? 1 : copiesBeyondCache(b.slice.size), strideBytes };
}

/** The number of copies of some weights that together fill every cache. */
export function copiesBeyondCache(bytes: number): number {
  return Math.max(1, Math.min(maxCopies, Math.ceil(cacheBytes / bytes)));
}

export function launchesFor(launchMs: number, most = maxLaunches): number {
  return Math.max(1, Math.min(most, Math.floor(burstMs / launchMs)));
}

export function timeMs(runtime: Runtime, clock: Clock, submit: () => void): number {
  const startMs = clock.nowMs();
  submit();
  runtime.synchronize();
  return clock.nowMs() - startMs;
}

export function attempt<T>(prepare: () => T): T | undefined {
  try {
    return prepare();
  } catch (error) {
    if (error instanceof HoldfastError && rejections.has(error.code)) return undefined;
    throw error;
  }
}

/** Where the operands of a GEMM are in its trial memory; scratch memory follows them. */
interface OperandPlaces {
  readonly offsets: ReadonlyMap<BufferSlice, number>;
  readonly end: number;
}

/** Keeps the alignments of the operands. */
function placeOperands({ a, b, c, bias }: Problem): OperandPlaces {
  const offsets = new Map<BufferSlice, number>();
  let end = 0;
  for (const slice of new Set([a.slice, b.slice, c.slice, ...(bias ? [bias] : [])])) {
    const offset = end + (addressOf(slice) % alignment);
    offsets.set(slice, offset);
    end = alignUp(offset + slice.size, alignment);
  }
  return { offsets, end };
}

/** In a step, a GEMM of a few rows loads weights while the launch before it ends: that is a large part of its time. */
function inStep({ device }: Runtime, { m, b }: Problem): Parameters<typeof emitCommands>[3] {
  if (m > maxSkinnyRows || !device.supportsPdl) return {};
  return { schedule: [{ stream: 0, prefetches: [b.slice] }], followsLaunch: true };
}

interface Candidate {
  readonly algorithm: number;
  readonly scratchBytes: number;
  /** Where a copy of B is, if it is to be read. */
  readonly weightsAt?: number | undefined;
}

/** The first launch of a GEMM with an algorithm. Later launches, if any, are the same for all algorithms. */
function firstLaunch(
  runtime: Runtime,
  problem: Problem,
  memory: Storage,
  { offsets, end }: OperandPlaces,
  { algorithm, scratchBytes, weightsAt }: Candidate,
): LaunchRequest {
  const scratch = scratchBytes > 0 ? scratchSlice(scratchBytes) : undefined;
  const call = candidateCall(problem, algorithm, scratch);
  const viewOf = (slice: BufferSlice): Storage => {
    const placed = slice === scratch ? end : offsets.get(slice);
    const copied = weightsAt !== undefined && slice === problem.b.slice;
    const offset = copied ? weightsAt + (addressOf(slice) % alignment) : placed;
    if (offset === undefined) throw new Error(`"${slice.buffer.label}" is not an operand of the GEMM.`);
    return runtime.view(memory, offset, slice.size);
  };
  const [first] = emitCommands(runtime, [call], viewOf, inStep(runtime, problem));
  if (first?.command.kind !== "launch") throw new Error("A GEMM emitted another command than a launch.");
  return first.command.request;
}
