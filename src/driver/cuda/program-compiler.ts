/**
 * Compiles CUDA C++ programs, several at once. The main thread compiles too, so nothing waits for a thread to start.
 * Threads start only if they save time, and exit when no program is left.
 */

import { CompileBatch, type CompileThreadScript, type Cubin } from "./compile-batch.js";
import type { NvrtcProgram } from "./nvrtc.js";

/** More threads gain little: parts of NVRTC run on one thread at a time. */
const maxThreads = 8;

/** The work on other threads that is worth their start, which takes about 50 ms. */
const defaultMinSharedMs = 100;

export interface ProgramCompilerOptions {
  /** Compiles a program on this thread. */
  readonly compile: (program: NvrtcProgram) => Cubin;
  /** Threads in total, with the main thread. */
  readonly threads: number;
  readonly threadScript: () => CompileThreadScript;
  /** Threads start if they would work at least this long, in total. Default: 100 ms. */
  readonly minSharedMs?: number;
}

export class ProgramCompiler {
  readonly #options: ProgramCompilerOptions;
  /** Programs compiled on the main thread, and the time that they took. */
  readonly #onMain = { programs: 0, ms: 0 };

  constructor(options: ProgramCompilerOptions) {
    this.#options = options;
  }

  compile(program: NvrtcProgram): Cubin {
    const startMs = performance.now();
    const cubin = this.#options.compile(program);
    this.#onMain.programs += 1;
    this.#onMain.ms += performance.now() - startMs;
    return cubin;
  }

  /**
   * Compiles all programs; calls `onCompiled` for each, in the order of completion. If programs fail, throws the error
   * of one of them: the same one every time.
   */
  compileAll(
    programs: readonly NvrtcProgram[],
    onCompiled: (program: NvrtcProgram, cubin: Cubin) => void,
  ): void {
    const { threads, threadScript } = this.#options;
    const ordered = this.#order(programs);
    const threadLimit = Math.max(0, Math.min(threads - 1, maxThreads));
    const batch = new CompileBatch(ordered, threadLimit, (program) => this.compile(program), onCompiled);
    let hasStarted = threadLimit === 0;
    const startThreads = (): void => {
      if (hasStarted || !this.#isWorthThreads(batch.remaining - 1)) return;
      batch.startThreads(threadScript());
      hasStarted = true;
    };
    try {
      startThreads();
      while (batch.compileNext()) startThreads();
      batch.finish();
    } finally {
      batch.close();
    }
    if (batch.failed) throw batch.failed;
  }

  /**
   * The longest programs first, so that no long one is left for the end. If no time is known yet, the shortest comes
   * first of all: it is timed.
   */
  #order(programs: readonly NvrtcProgram[]): readonly NvrtcProgram[] {
    const ordered = programs.toSorted((a, b) => b.code.length - a.code.length);
    const timed = this.#onMain.programs === 0 ? ordered.splice(-1) : [];
    return [...timed, ...ordered];
  }

  /** True if other threads would save time on this many programs. */
  #isWorthThreads(programs: number): boolean {
    const { minSharedMs = defaultMinSharedMs } = this.#options;
    const { programs: compiled, ms } = this.#onMain;
    return compiled > 0 && programs > 0 && (programs * ms) / compiled >= minSharedMs;
  }
}
