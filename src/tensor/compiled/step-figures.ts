/**
 * What a compiled step has noted on the device, as its user sees it: how many calls were skipped, and which bad indices it
 * was given. A bad index is told with the next read-back.
 */

import type { BadIndex, StepRecord } from "../../compile/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Runtime } from "../../runtime/index.js";

/** Bad indices that a compiled step was given. */
export interface BadIndices {
  /** Calls that were given one. */
  readonly calls: number;
  /** The first of them. */
  readonly first?: BadIndex;
}

/** Switches between plans that are remembered before the device is read. */
const maxTurns = 1024;

/** The figures of one plan. */
export class PlanFigures {
  readonly record: StepRecord;
  /** Maps a plan's call number to the step's: from call `own` of the plan on, the step's call is `call`. */
  readonly #turns: { readonly own: number; readonly call: number }[] = [];
  #calls = 0;
  /** Has it been called since the device was last asked? */
  isDue = false;

  constructor(record: StepRecord) {
    this.record = record;
  }

  /** Notes a call: the step's of this number, from 1. */
  noteCall(call: number): void {
    this.#calls++;
    this.isDue = true;
    const last = this.#turns.at(-1);
    if (!last || last.call + this.#calls - last.own !== call) this.#turns.push({ own: this.#calls, call });
  }

  get hasManyTurns(): boolean {
    return this.#turns.length > maxTurns;
  }

  /** Waits for the device. */
  read(runtime: Runtime): { readonly skipped: number; readonly bad: BadIndices } {
    this.isDue = false;
    const { skipped, badCalls, firstBad } = this.record.read(runtime);
    if (!firstBad) {
      this.#turns.splice(0, this.#turns.length - 1);
      return { skipped, bad: { calls: badCalls } };
    }
    const turn = this.#turns.findLast(({ own }) => own <= firstBad.call);
    const call = turn ? turn.call + firstBad.call - turn.own : firstBad.call;
    return { skipped, bad: { calls: badCalls, first: { ...firstBad, call } } };
  }
}

/** The figures of a compiled step: those of its plans together. */
export class StepCounters {
  readonly #runtime: Runtime;
  readonly #name: string;
  readonly #plans = new Set<PlanFigures>();
  readonly #endListening: () => void;
  #calls = 0;
  #isTold = false;

  constructor(runtime: Runtime, name: string) {
    this.#runtime = runtime;
    this.#name = name;
    this.#endListening = runtime.onReadBack(() => this.#look());
  }

  /** Figures of a new plan that notes something. */
  add(record: StepRecord | undefined): PlanFigures | undefined {
    if (!record) return undefined;
    const plan = new PlanFigures(record);
    this.#plans.add(plan);
    return plan;
  }

  remove(plan: PlanFigures | undefined): void {
    if (plan) this.#plans.delete(plan);
  }

  /** Notes a call of the step, and of one of its plans. */
  noteCall(plan: PlanFigures | undefined): void {
    this.#calls++;
    plan?.noteCall(this.#calls);
    if (plan?.hasManyTurns) this.#look();
  }

  /** Hears of numbers that have come to the host: a NaN may be of a bad index. */
  noteNumbers(numbers: readonly number[]): void {
    if (!this.#isTold && numbers.some(Number.isNaN)) this.#look();
  }

  /** Waits for the device. */
  get skipped(): number {
    return [...this.#plans].reduce((sum, plan) => sum + plan.read(this.#runtime).skipped, 0);
  }

  /** Waits for the device. */
  get badIndices(): BadIndices {
    return this.#badIndicesOf([...this.#plans].filter(({ record }) => record.hasChecks));
  }

  #badIndicesOf(plans: readonly PlanFigures[]): BadIndices {
    const found = plans.map((plan) => plan.read(this.#runtime).bad);
    const firsts = found.flatMap(({ first }) => first ?? []).sort((a, b) => a.call - b.call);
    const calls = found.reduce((sum, one) => sum + one.calls, 0);
    return { calls, ...(firsts[0] && { first: firsts[0] }) };
  }

  close(): void {
    this.#endListening();
    this.#plans.clear();
  }

  /** Asks the device, where a plan that looks at indices has been called since; the first bad index is told once. */
  #look(): void {
    if (this.#isTold) return;
    const called = [...this.#plans].filter(({ record, isDue }) => isDue && record.hasChecks);
    const { first } = this.#badIndicesOf(called);
    if (!first) return;
    this.#isTold = true;
    this.#runtime.warn(
      `${describeBadIndex(this.#name, first)} This warning is printed once. step.badIndices counts all such calls.`,
    );
  }
}

function describeBadIndex(name: string, { index, op, line, call, size, range }: BadIndex): string {
  const fits = size === 0 ? "no index is valid" : `indices are 0 to ${size - 1}`;
  return (
    `call ${call} of compiled ${name}: ${op}${line ? ` at ${line}` : ""} was given the index ${index}, but ${range} (${fits}). ` +
    "The call was skipped. Correct the data."
  );
}

/** The first bad index as an error, for those who end with it. */
export function badIndexError(name: string, first: BadIndex): HoldfastError {
  const text = describeBadIndex(name, first);
  const { index, op, call, size } = first;
  return new HoldfastError("BAD_INDEX", `${text.charAt(0).toUpperCase()}${text.slice(1)}`, {
    numbers: { op, index, size, call },
  });
}
