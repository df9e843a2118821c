/** The phases of the test, one after the other: each with its time, its deadline and its verdict. */

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
  /** A phase is skipped where one before it failed: it would stand on nothing. */
  readonly verdict: "passed" | "failed" | "skipped";
  readonly elapsedMs: number;
  readonly deadlineMs: number;
  /** What was found, for people. */
  readonly detail: string;
  /** The same as numbers. */
  readonly figures: Readonly<Record<string, number>>;
  /** What is wrong; empty unless it failed. */
  readonly failure: string;
}

/** What a phase has found: for the phases behind it, and for the report. */
export interface Finding<T> {
  readonly value: T;
  readonly detail: string;
  readonly figures?: Readonly<Record<string, number>>;
}

/** A check that did not hold. */
export class CheckFailed extends Error {}

export function check(holds: boolean, message: () => string): void {
  if (!holds) throw new CheckFailed(message());
}

/** Hears of the phases as they come and go, so that a person sees where a run is. */
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
      this.results.length === phaseNames.length && this.results.every(({ verdict }) => verdict === "passed")
    );
  }

  /**
   * Runs a phase. One that throws has failed, and throws on. One that overruns its deadline has failed too, but what it
   * found is sound, so the phases behind it go on.
   */
  run<T>(name: DoctorPhase, work: () => Finding<T>): T {
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

  /** Counts what was not reached as skipped. */
  skipRest(): void {
    for (const name of phaseNames.slice(this.results.length)) this.#note(name, "skipped", 0, {});
  }

  #note(
    name: DoctorPhase,
    verdict: PhaseResult["verdict"],
    elapsedMs: number,
    { detail = "", figures = {}, failure = "" }: Partial<Pick<PhaseResult, "detail" | "figures" | "failure">>,
  ): void {
    const deadlineMs = this.#options.deadlineOf(name);
    const result = { name, verdict, elapsedMs, deadlineMs, detail, figures, failure };
    this.results.push(result);
    this.#options.listener.left(result);
  }
}

function overrun(elapsedMs: number, deadlineMs: number): string {
  return `It took ${formatDuration(elapsedMs)}, and its deadline is ${formatDuration(deadlineMs)}.`;
}

/** An error that is none of ours is a fault in Holdfast: its place helps whoever reads the report. */
function failureText(error: unknown): string {
  if (error instanceof CheckFailed) return error.message;
  if (error instanceof HoldfastError) return `${error.code}: ${error.message}`;
  return error instanceof Error ? (error.stack ?? error.message) : String(error);
}
