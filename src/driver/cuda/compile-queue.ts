/**
 * The programs that the main thread and the compile threads share, as claims in one SharedArrayBuffer. Synchronization
 * is by Atomics alone, so the main thread needs no event loop.
 *
 * A thread claims the first free program, compiles it, posts the result, and then counts it as finished. So whoever
 * sees the new count finds the result. Programs are claimed in order: if one fails, all earlier ones have been claimed.
 */

import type { MessagePort } from "node:worker_threads";
import type { ErrorCode, ErrorNumbers } from "../../errors/index.js";
import type { NvrtcProgram } from "./nvrtc.js";

/** Identifies the main thread in a claim. The other threads are numbered from 1. */
export const mainThread = -1;

const word = { finished: 0, isStopped: 1, first: 2 } as const;

export class CompileQueue {
  /** Number of programs. */
  readonly length: number;
  /** Maximum number of threads besides the main thread. */
  readonly threads: number;
  readonly memory: SharedArrayBuffer;
  readonly #words: Int32Array<SharedArrayBuffer>;
  /** For each program the thread that claimed it, 0 for none. */
  readonly #claims: Int32Array<SharedArrayBuffer>;
  /** For each thread its id in the system, 0 if it is unknown. */
  readonly #threadIds: Int32Array<SharedArrayBuffer>;

  constructor(
    length: number,
    threads: number,
    memory = new SharedArrayBuffer(4 * (word.first + length + threads)),
  ) {
    this.length = length;
    this.threads = threads;
    this.memory = memory;
    this.#words = new Int32Array(memory, 0, word.first);
    this.#claims = new Int32Array(memory, 4 * word.first, length);
    this.#threadIds = new Int32Array(memory, 4 * (word.first + length), threads);
  }

  /** Claims the first free program and returns its index; undefined if none is left. */
  claim(thread: number): number | undefined {
    for (let index = 0; index < this.length && !this.#isStopped; index++) {
      if (Atomics.compareExchange(this.#claims, index, 0, thread) === 0) return index;
    }
    return undefined;
  }

  /** True if a program can be claimed. */
  get hasFree(): boolean {
    return !this.#isStopped && Atomics.load(this.#claims, this.length - 1) === 0;
  }

  /** The thread that claimed a program; 0 for none. */
  claimantOf(index: number): number {
    return Atomics.load(this.#claims, index);
  }

  /** Ends the claims. Programs that were claimed before are still compiled. */
  stop(): void {
    Atomics.store(this.#words, word.isStopped, 1);
  }

  /** Called by a thread after it has posted a result. */
  countFinished(): void {
    Atomics.add(this.#words, word.finished, 1);
    Atomics.notify(this.#words, word.finished);
  }

  /** The number of results that threads have posted. */
  get finished(): number {
    return Atomics.load(this.#words, word.finished);
  }

  /** Waits until the number of results is no longer `seen`; returns false after the timeout. */
  waitForResult(seen: number, timeoutMs: number): boolean {
    return Atomics.wait(this.#words, word.finished, seen, timeoutMs) !== "timed-out";
  }

  setThreadId(thread: number, id: number): void {
    Atomics.store(this.#threadIds, thread - 1, id);
  }

  threadIdOf(thread: number): number {
    return Atomics.load(this.#threadIds, thread - 1);
  }

  get #isStopped(): boolean {
    return Atomics.load(this.#words, word.isStopped) === 1;
  }
}

/** The data that a compile thread starts with. */
export interface CompileThreadStart {
  readonly queue: Pick<CompileQueue, "length" | "threads" | "memory">;
  /** Its number, from 1. */
  readonly thread: number;
  readonly programs: readonly NvrtcProgram[];
  /** Takes `CompileResult`s. */
  readonly port: MessagePort;
  /** It records its heartbeat here, for the thread that it serves. */
  readonly heartbeat: SharedArrayBuffer;
}

/** The message of a compile thread. */
export type CompileResult = { readonly index: number } & (
  | { readonly cubin: Uint8Array<ArrayBuffer> }
  | { readonly failure: CompileFailure }
);

/** An error as data. */
export interface CompileFailure {
  /** Undefined if it is no `HoldfastError`. */
  readonly code: ErrorCode | undefined;
  readonly message: string;
  readonly numbers: ErrorNumbers;
}
