/**
 * Programs that are compiled together: by the main thread, and by threads that it starts. The main thread collects the
 * results. `compile-queue.ts` has the rules that the threads share.
 */

import { MessageChannel, type MessagePort, receiveMessageOnPort } from "node:worker_threads";
import { HoldfastError } from "../../errors/index.js";
import { beat, hasThreadEnded, heartbeatMemory, startThread } from "../../units/index.js";
import {
  type CompileFailure,
  CompileQueue,
  type CompileResult,
  type CompileThreadStart,
  mainThread,
} from "./compile-queue.js";
import type { NvrtcProgram } from "./nvrtc.js";

export type Cubin = Uint8Array<ArrayBuffer>;

/** How often the main thread checks that the threads it waits for exist. */
const checkMs = 250;

export interface CompileThreadScript {
  readonly script: URL;
  /** Data for the script, besides `CompileThreadStart`. */
  readonly data: Readonly<Record<string, unknown>>;
}

export class CompileBatch {
  readonly #programs: readonly NvrtcProgram[];
  readonly #queue: CompileQueue;
  readonly #compile: (program: NvrtcProgram) => Cubin;
  readonly #onCompiled: (program: NvrtcProgram, cubin: Cubin) => void;
  readonly #ports: MessagePort[] = [];
  /** By the index of the program; missing until it has been compiled. */
  readonly #outcomes = new Map<number, "compiled" | Error>();

  /** `maxThreads`: besides the main thread. */
  constructor(
    programs: readonly NvrtcProgram[],
    maxThreads: number,
    compile: (program: NvrtcProgram) => Cubin,
    onCompiled: (program: NvrtcProgram, cubin: Cubin) => void,
  ) {
    this.#programs = programs;
    this.#queue = new CompileQueue(programs.length, maxThreads);
    this.#compile = compile;
    this.#onCompiled = onCompiled;
  }

  /** Number of programs that are not compiled yet. */
  get remaining(): number {
    return this.#programs.length - this.#outcomes.size;
  }

  /** Starts threads; fewer if the system rejects them. */
  startThreads({ script, data }: CompileThreadScript): void {
    const count = Math.min(this.#queue.threads, this.remaining - 1);
    const { length, threads, memory } = this.#queue;
    for (let thread = 1; thread <= count; thread++) {
      const { port1, port2 } = new MessageChannel();
      const start: CompileThreadStart = {
        ...{ queue: { length, threads, memory }, thread, programs: this.#programs },
        ...{ port: port2, heartbeat: heartbeatMemory() },
      };
      const worker = startThread(script, { ...data, ...start }, [port2]);
      if (worker instanceof Error) {
        port1.close();
        return;
      }
      worker.on("error", warnEnded);
      this.#ports.push(port1);
    }
  }

  /** Compiles the next free program on this thread; returns false if there is none. */
  compileNext(): boolean {
    const index = this.#queue.claim(mainThread);
    if (index === undefined) return false;
    this.#compileHere(index);
    this.#receive();
    return true;
  }

  /** Waits for the programs that threads have claimed. The program of a thread that has ended is compiled here. */
  finish(): void {
    for (;;) {
      const seen = this.#queue.finished;
      this.#receive();
      const claimed = this.#listUnfinished();
      if (claimed.length === 0) return;
      if (this.#queue.waitForResult(seen, checkMs)) continue;
      const lost = claimed.filter((index) => this.#hasLostThread(index));
      // A thread may have posted a result just before it ended.
      this.#receive();
      for (const index of lost) if (!this.#outcomes.has(index)) this.#compileHere(index);
    }
  }

  /** The error of the first program, in order, that failed. */
  get failed(): Error | undefined {
    for (const index of this.#programs.keys()) {
      const outcome = this.#outcomes.get(index);
      if (outcome instanceof Error) return outcome;
    }
    return undefined;
  }

  close(): void {
    this.#queue.stop();
    for (const port of this.#ports) port.close();
  }

  #compileHere(index: number): void {
    try {
      this.#settle(index, this.#compile(this.#programAt(index)));
    } catch (error) {
      this.#settle(index, error instanceof Error ? error : new Error(String(error)));
    }
  }

  #receive(): void {
    for (const port of this.#ports) {
      for (;;) {
        const received = receiveMessageOnPort(port) as { readonly message: CompileResult } | undefined;
        if (!received) break;
        const { message } = received;
        this.#settle(message.index, "cubin" in message ? message.cubin : errorOf(message.failure));
      }
    }
  }

  #settle(index: number, result: Cubin | Error): void {
    const isFailure = result instanceof Error;
    this.#outcomes.set(index, isFailure ? result : "compiled");
    if (isFailure) this.#queue.stop();
    else this.#onCompiled(this.#programAt(index), result);
    beat("kernels", this.#outcomes.size, this.#programs.length);
  }

  /** The programs that were claimed and have no result yet. */
  #listUnfinished(): readonly number[] {
    return Array.from(this.#programs.keys()).filter(
      (index) => this.#queue.claimantOf(index) !== 0 && !this.#outcomes.has(index),
    );
  }

  #hasLostThread(index: number): boolean {
    const threadId = this.#queue.threadIdOf(this.#queue.claimantOf(index));
    return threadId !== 0 && hasThreadEnded(threadId);
  }

  #programAt(index: number): NvrtcProgram {
    const program = this.#programs[index];
    if (!program) throw new Error(`There is no program ${index} to compile.`);
    return program;
  }
}

function errorOf({ code, message, numbers }: CompileFailure): Error {
  return code === undefined ? new Error(message) : new HoldfastError(code, message, { numbers });
}

function warnEnded(error: Error): void {
  const message = `A thread that compiles kernels ended; the main thread has compiled its kernels. ${error}`;
  process.emitWarning(message, { code: "HOLDFAST_WORKER_ENDED" });
}
