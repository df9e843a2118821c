/**
 * Times a product with each algorithm that its library offers, and with our own kernel: on memory of its own, so that no value of the step is
 * touched, and as a short graph, because from Node a launch costs more than many products do.
 */

import { type ErrorCode, HoldfastError } from "../../errors/index.js";
import { gemmCandidates, gemmScratchBytes } from "../../kernels/index.js";
import {
  alignment,
  type LaunchRequest,
  type Replayable,
  type Runtime,
  type Storage,
} from "../../runtime/index.js";
import { alignUp, type Clock } from "../../units/index.js";
import { emitCalls } from "../execute/emit.js";
import type { BufferSlice, GemmCall } from "../program/program.js";
import { addressOf, describeGemm } from "./gemm-desc.js";

type Problem = GemmCall["problem"];

/** A graph has at most so many launches, and fewer where they would take longer than this. */
const maxLaunches = 16;
const burstMs = 1;
/** The best of so many counts: what disturbs a measurement only ever makes it longer. */
const rounds = 5;

/** How an algorithm is rejected that the library lists and then can't run, or not in a graph. */
const rejections: ReadonlySet<ErrorCode> = new Set([
  "DRIVER_FAILED",
  "UNSUPPORTED",
  "CAPTURE_REJECTED",
  "CAPTURE_NODES",
]);
const shortages: ReadonlySet<ErrorCode> = new Set(["ARENA_FULL", "OUT_OF_BUDGET", "OUT_OF_MEMORY"]);

/** As each byte of an operand, a small number in every dtype. */
const smallNumber = 0x3c;

export interface TimingOptions {
  /** No algorithm is begun with behind this; the first is timed in any case. */
  readonly limitMs: number;
  readonly clock: Clock;
}

/**
 * How long a launch takes on the device with each choice, in microseconds, in the library's order and then our own. Algorithms that can't be
 * launched, and those that there was no time for, are missing; where there is no memory to try them on, all are.
 */
export function timeCandidates(
  runtime: Runtime,
  problem: Problem,
  { limitMs, clock }: TimingOptions,
): ReadonlyMap<number, number> {
  const outline = describeGemm(problem);
  const scratchBytes = new Map(
    gemmCandidates(runtime, outline).map((choice) => [
      choice,
      gemmScratchBytes(runtime, { ...outline, choice }),
    ]),
  );
  const memory = TrialMemory.take(runtime, problem, Math.max(...scratchBytes.values()));
  if (!memory) return new Map();
  const bursts = new Map<number, Replayable>();
  const bestMs = new Map<number, number>();
  let launches = 0;
  try {
    // Our own kernels are compiled before the time begins to count: that takes longer than all trials.
    const requests = [...scratchBytes].flatMap(([choice, size]) => {
      const request = attempt(() => memory.requestOf(choice, size));
      return request ? [{ choice, request }] : [];
    });
    const startMs = clock.nowMs();
    const elapsedMs = (): number => clock.nowMs() - startMs;
    for (const { choice, request } of requests) {
      if (bursts.size > 0 && elapsedMs() > limitMs / 2) break;
      const burst = attempt(() => {
        // What the library loads when an algorithm first runs would fall into the measurement.
        timeMs(runtime, clock, () => runtime.launch(request));
        launches ||= launchesFor(timeMs(runtime, clock, () => runtime.launch(request)));
        return runtime.captureForTiming("product", () => {
          for (let count = 0; count < launches; count++) runtime.launch(request);
        });
      });
      if (burst) bursts.set(choice, burst);
    }
    // In turn, so that a clock that the device is still raising favours nobody.
    for (let round = 0; round < rounds && (round === 0 || elapsedMs() < limitMs); round++) {
      for (const [choice, burst] of bursts) {
        const took = timeMs(runtime, clock, () => burst.replay());
        bestMs.set(choice, Math.min(took, bestMs.get(choice) ?? Infinity));
      }
    }
  } finally {
    for (const burst of bursts.values()) burst.close();
    memory.giveBack();
  }
  return new Map([...bestMs].map(([choice, took]) => [choice, (took * 1000) / launches]));
}

function launchesFor(launchMs: number): number {
  return Math.max(1, Math.min(maxLaunches, Math.floor(burstMs / launchMs)));
}

function timeMs(runtime: Runtime, clock: Clock, send: () => void): number {
  const startMs = clock.nowMs();
  send();
  runtime.synchronize();
  return clock.nowMs() - startMs;
}

function attempt<T>(prepare: () => T): T | undefined {
  try {
    return prepare();
  } catch (error) {
    if (error instanceof HoldfastError && rejections.has(error.code)) return undefined;
    throw error;
  }
}

/** Memory that looks to the library like a product's own: as large and as aligned, in one block of the arena. */
class TrialMemory {
  readonly #runtime: Runtime;
  readonly #problem: Problem;
  readonly #block: Storage;
  readonly #views = new Map<BufferSlice, Storage>();
  readonly #scratchAt: number;

  /** None where there is no room: a choice is not worth a rejection. */
  static take(runtime: Runtime, problem: Problem, scratchBytes: number): TrialMemory | undefined {
    try {
      return new TrialMemory(runtime, problem, scratchBytes);
    } catch (error) {
      if (error instanceof HoldfastError && shortages.has(error.code)) return undefined;
      throw error;
    }
  }

  private constructor(runtime: Runtime, problem: Problem, scratchBytes: number) {
    this.#runtime = runtime;
    this.#problem = problem;
    const { a, b, c, bias } = problem;
    const places: { readonly slice: BufferSlice; readonly at: number }[] = [];
    let end = 0;
    for (const slice of new Set([a.slice, b.slice, c.slice, ...(bias ? [bias] : [])])) {
      const at = end + (addressOf(slice) % alignment);
      places.push({ slice, at });
      end = alignUp(at + slice.size, alignment);
    }
    this.#scratchAt = end;
    this.#block = runtime.arena.allocate(end + scratchBytes, "product trial");
    runtime.fill(this.#block, smallNumber);
    for (const { slice, at } of places) this.#views.set(slice, runtime.view(this.#block, at, slice.size));
  }

  /** The library's launch with an algorithm. What may come behind it is the same for all. */
  requestOf(choice: number, scratchBytes: number): LaunchRequest {
    const { scratch: _, ...rest } = this.#problem;
    const scratch = scratchBytes > 0 ? this.#scratchOf(scratchBytes) : undefined;
    const problem = { ...rest, choice, ...(scratch && { scratch }) };
    const call = { op: "gemm", work: { kind: "gemm", problem } } as const;
    const [first] = emitCalls(this.#runtime, [call], (slice) => this.#viewOf(slice));
    if (first?.work.kind !== "launch") throw new Error("A product has sent something else than a launch.");
    return first.work.request;
  }

  giveBack(): void {
    const { arena } = this.#runtime;
    for (const view of this.#views.values()) arena.dropView(view);
    arena.free(this.#block);
  }

  #scratchOf(size: number): BufferSlice {
    const slice: BufferSlice = { buffer: { id: 0, bytes: size, label: "product scratch" }, offset: 0, size };
    this.#views.set(slice, this.#runtime.view(this.#block, this.#scratchAt, size));
    return slice;
  }

  #viewOf(slice: BufferSlice): Storage {
    const view = this.#views.get(slice);
    if (!view) throw new Error(`"${slice.buffer.label}" is no part of the product.`);
    return view;
  }
}
