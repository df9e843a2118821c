/**
 * Runs the engine's phases. The shared status shows a phase while it lasts, and the recorder has its start
 * and end. The log has its entry, exit, elapsed time and outcome. A phase always exits, also on an exception.
 */

import { HoldfastError } from "../../errors/index.js";
import { type Clock, formatDuration, systemClock } from "../../units/index.js";
import type { Progress } from "./progress-line.js";
import type { Recorder } from "./recorder.js";
import type { PhaseName, SharedStatus } from "./shared-status.js";

export interface PhaseDetails {
  /** The step's number, from 1. Later events belong to the last numbered step. */
  readonly number?: number;
  /** The subject, for the log: `weights`. Use few different labels: the label table keeps each of them. */
  readonly label?: string;
}

/** Long phases, whose progress is displayed. */
const shownPhases: ReadonlySet<PhaseName> = new Set(["compile", "plan", "capture"]);

/** A phase's title for messages: `step 12`, `upload`. */
export function phaseTitle(phase: PhaseName, number = 0): string {
  return number === 0 ? phase : `${phase} ${number}`;
}

export class Phases {
  readonly #sharedStatus: SharedStatus;
  readonly #recorder: Recorder;
  readonly #clock: Clock;
  readonly #log: ((line: string) => void) | undefined;
  readonly #progress: Progress | undefined;

  constructor(options: {
    readonly sharedStatus: SharedStatus;
    readonly recorder: Recorder;
    /** Receives each entry and exit. Default: none. */
    readonly log?: ((line: string) => void) | undefined;
    readonly clock?: Clock;
    /** Displays long work. Default: none. */
    readonly progress?: Progress | undefined;
  }) {
    this.#sharedStatus = options.sharedStatus;
    this.#recorder = options.recorder;
    this.#clock = options.clock ?? systemClock;
    this.#log = options.log;
    this.#progress = options.progress;
  }

  /** Runs a synchronous function as a phase. Phases nest. */
  run<T>(phase: PhaseName, work: () => T, details: PhaseDetails = {}): T {
    const open = this.#enter(phase, details);
    let result: T;
    try {
      this.#log?.(`${open.title}: entered`);
      result = work();
      if (result instanceof Promise) throw asyncWork(phase);
    } catch (error) {
      this.#exit(open, failure(error));
      throw error;
    }
    this.#exit(open, "done");
    return result;
  }

  /** Runs an asynchronous function as a phase. Phases are a stack: await this before the next phase starts. */
  async runAsync<T>(phase: PhaseName, work: () => Promise<T>, details: PhaseDetails = {}): Promise<T> {
    const open = this.#enter(phase, details);
    let result: T;
    try {
      this.#log?.(`${open.title}: entered`);
      result = await work();
    } catch (error) {
      this.#exit(open, failure(error));
      throw error;
    }
    this.#exit(open, "done");
    return result;
  }

  #enter(phase: PhaseName, { number = 0, label = "" }: PhaseDetails): OpenPhase {
    const suffix = label === "" ? "" : ` (${label})`;
    const open = {
      title: phaseTitle(phase, number) + suffix,
      // Without the number: 8,192 steps would fill the label table, and events carry their step anyway.
      recordedAs: phase + suffix,
      enteredMs: this.#clock.nowMs(),
      op: this.#sharedStatus.op,
      isShown: shownPhases.has(phase),
    };
    if (phase === "step" && number > 0) {
      this.#sharedStatus.step = number;
      this.#recorder.step = number;
    }
    this.#sharedStatus.enterPhase(phase, number, open.enteredMs);
    this.#recorder.record("phase-enter", open.recordedAs);
    if (open.isShown) this.#progress?.begin(open.recordedAs);
    return open;
  }

  #exit(open: OpenPhase, outcome: string): void {
    const nowMs = this.#clock.nowMs();
    if (open.isShown) this.#progress?.end();
    this.#sharedStatus.exitPhase(nowMs);
    this.#sharedStatus.op = open.op;
    this.#recorder.record("phase-exit", open.recordedAs);
    this.#log?.(`${open.title}: exited after ${formatDuration(nowMs - open.enteredMs)}, ${outcome}`);
  }
}

interface OpenPhase {
  readonly title: string;
  readonly recordedAs: string;
  readonly enteredMs: number;
  /** The op of the enclosing phase, restored when this one ends. */
  readonly op: number;
  /** True if progress displays show it. */
  readonly isShown: boolean;
}

function failure(error: unknown): string {
  if (error instanceof HoldfastError) return `failed: ${error.code} ${error.message}`;
  return `failed: ${error instanceof Error ? `${error.name} ${error.message}` : String(error)}`;
}

function asyncWork(phase: PhaseName): HoldfastError {
  return new HoldfastError(
    "BAD_ARGUMENT",
    `run() got an async function for the phase ${phase}, which would end before its work. Use runAsync().`,
    { numbers: { phase } },
  );
}
