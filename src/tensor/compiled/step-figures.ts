/**
 * What a compiled step has noted on the device, as its user sees it: how many calls were skipped, and which bad indices it
 * was given. A bad index is told with the next read-back.
 */

import type { BadIndex, StepRecord } from "../../compile/index.js";
import { HoldfastError } from "../../errors/index.js";
import type { Runtime } from "../../runtime/index.js";

/** Bad indices passed to a compiled step. */
export interface BadIndices {
  /** Number of calls with a bad index. */
  readonly calls: number;
  /** The first of them. */
  readonly first?: BadIndex;
}

/** Maximum number of switches between plans before the device is read. */
const maxTurns = 1024;

/** The figures of one plan. */
export class PlanFigures {
  readonly record: StepRecord;
  /** Maps a plan's call number to the step's: from call `own` of the plan on, the step's call is `call`. */
  readonly #turns: { readonly own: number; readonly call: number }[] = [];
  #calls = 0;
  /** True if it was called since the device was last read. */
  isDue = false;

  constructor(record: StepRecord) {
    this.record = record;
  }

  /** Records a call by the step's call number, from 1. */
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

/** The figures of a compiled step: the sum over its plans. */
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

  /** Adds the figures of a new plan that records any. */
  add(record: StepRecord | undefined): PlanFigures | undefined {
    if (!record) return undefined;
    const plan = new PlanFigures(record);
    this.#plans.add(plan);
    return plan;
  }

  remove(plan: PlanFigures | undefined): void {
    if (plan) this.#plans.delete(plan);
  }

  /** Records a call of the step and of one of its plans. */
  noteCall(plan: PlanFigures | undefined): void {
    this.#calls++;
    plan?.noteCall(this.#calls);
    if (plan?.hasManyTurns) this.#look();
  }

  /** Called with numbers that have arrived: a NaN may come from a bad index. */
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

  /** Reads the device if a plan with index checks was called since; reports the first bad index once. */
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

/** The first bad index as an error. */
export function badIndexError(name: string, first: BadIndex): HoldfastError {
  const text = describeBadIndex(name, first);
  const { index, op, call, size } = first;
  return new HoldfastError("BAD_INDEX", `${text.charAt(0).toUpperCase()}${text.slice(1)}`, {
    numbers: { op, index, size, call },
  });
}
