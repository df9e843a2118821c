/** The phases of the test in order, each with its time, its deadline and its outcome. */

import { HoldfastError } from "../../errors/index.js";
import { type Clock, formatDuration } from "../../units/index.js";

export const phaseNames = [
  "open",
  "upload",
  "forward",
  "backward",
  "update",
  "eager",
  "capture",
  "replay",
  "close",
] as const;

export type DoctorPhase = (typeof phaseNames)[number];

export interface PhaseResult {
  readonly name: DoctorPhase;
  /** A phase is skipped if an earlier phase failed. */
  readonly outcome: "passed" | "failed" | "skipped";
  readonly elapsedMs: number;
  readonly deadlineMs: number;
  /** The results as text. */
  readonly detail: string;
  /** The results as numbers. */
  readonly figures: Readonly<Record<string, number>>;
  /** The reason of a failure; otherwise empty. */
  readonly failure: string;
}

/** The output of a phase: a value for later phases, and text and numbers for the report. */
export interface PhaseOutput<T> {
  readonly value: T;
  readonly detail: string;
  readonly figures?: Readonly<Record<string, number>>;
}

/** A failed check. */
export class CheckFailed extends Error {}

export function check(condition: boolean, message: () => string): void {
  if (!condition) throw new CheckFailed(message());
}

/** Receives the start and the end of each phase, so that a user sees the progress. */
export interface PhaseListener {
  entered(name: DoctorPhase): void;
  left(result: PhaseResult): void;
}

export interface PhaseLogOptions {
  readonly clock: Clock;
  readonly deadlineOf: (name: DoctorPhase) => number;
  readonly listener: PhaseListener;
}

export class PhaseLog {
  readonly results: PhaseResult[] = [];
  readonly #options: PhaseLogOptions;

  constructor(options: PhaseLogOptions) {
    this.#options = options;
  }

  get hasPassed(): boolean {
    return (
      this.results.length === phaseNames.length && this.results.every(({ outcome }) => outcome === "passed")
    );
  }

  /**
   * Runs a phase. An error fails the phase and is rethrown. A phase that exceeds its deadline fails too, but its value is valid,
   * so later phases still run.
   */
  run<T>(name: DoctorPhase, work: () => PhaseOutput<T>): T {
    const { clock, deadlineOf, listener } = this.#options;
    listener.entered(name);
    const startedMs = clock.nowMs();
    try {
      const { value, detail, figures = {} } = work();
      const elapsedMs = clock.nowMs() - startedMs;
      const failure = elapsedMs > deadlineOf(name) ? overrun(elapsedMs, deadlineOf(name)) : "";
      this.#note(name, failure ? "failed" : "passed", elapsedMs, { detail, figures, failure });
      return value;
    } catch (error) {
      this.#note(name, "failed", clock.nowMs() - startedMs, { failure: failureText(error) });
      throw error;
    }
  }

  /** Marks the remaining phases as skipped. */
  skipRest(): void {
    for (const name of phaseNames.slice(this.results.length)) this.#note(name, "skipped", 0, {});
  }

  #note(
    name: DoctorPhase,
    outcome: PhaseResult["outcome"],
    elapsedMs: number,
    { detail = "", figures = {}, failure = "" }: Partial<Pick<PhaseResult, "detail" | "figures" | "failure">>,
  ): void {
    const deadlineMs = this.#options.deadlineOf(name);
    const result = { name, outcome, elapsedMs, deadlineMs, detail, figures, failure };
    this.results.push(result);
    this.#options.listener.left(result);
  }
}

function overrun(elapsedMs: number, deadlineMs: number): string {
  return `It took ${formatDuration(elapsedMs)}; its deadline is ${formatDuration(deadlineMs)}.`;
}

/** An unexpected error is a bug in Holdfast: its stack helps to find it. */
function failureText(error: unknown): string {
  if (error instanceof CheckFailed) return error.message;
  if (error instanceof HoldfastError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
