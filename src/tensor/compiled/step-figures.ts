/**
 * Figures that a compiled step keeps on the device: the number of skipped calls, and the bad indices. The next read-back warns
 * of a bad index.
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
const maxSwitches = 1024;

/** The figures of one plan. */
export class PlanFigures {
  readonly record: StepRecord;
  /** The switches to this plan: its call `planCall` was call `stepCall` of the step. */
  readonly #switches: { readonly planCall: number; readonly stepCall: number }[] = [];
  #calls = 0;
  /** True if it was called since the device was last read. */
  isDue = false;

  constructor(record: StepRecord) {
    this.record = record;
  }

  /** Records a call by the step's call number, from 1. */
  noteCall(stepCall: number): void {
    this.#calls++;
    this.isDue = true;
    const last = this.#switches.at(-1);
    const expected = last && last.stepCall + this.#calls - last.planCall;
    if (expected !== stepCall) this.#switches.push({ planCall: this.#calls, stepCall });
  }

  get hasManySwitches(): boolean {
    return this.#switches.length > maxSwitches;
  }

  /** Waits for the device. */
  read(runtime: Runtime): { readonly skipped: number; readonly bad: BadIndices } {
    this.isDue = false;
    const { skipped, badCalls, firstBad } = this.record.read(runtime);
    if (!firstBad) {
      this.#switches.splice(0, this.#switches.length - 1);
      return { skipped, bad: { calls: badCalls } };
    }
    const latest = this.#switches.findLast(({ planCall }) => planCall <= firstBad.call);
    const call = latest ? latest.stepCall + firstBad.call - latest.planCall : firstBad.call;
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
  #hasWarned = false;

  constructor(runtime: Runtime, name: string) {
    this.#runtime = runtime;
    this.#name = name;
    this.#endListening = runtime.onReadBack(() => this.#checkIndices());
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
    if (plan?.hasManySwitches) this.#checkIndices();
  }

  /** Called with numbers that have arrived: a NaN may come from a bad index. */
  noteNumbers(numbers: readonly number[]): void {
    if (!this.#hasWarned && numbers.some(Number.isNaN)) this.#checkIndices();
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
    const reports = plans.map((plan) => plan.read(this.#runtime).bad);
    const firsts = reports.flatMap(({ first }) => first ?? []).sort((a, b) => a.call - b.call);
    const calls = reports.reduce((sum, report) => sum + report.calls, 0);
    return { calls, ...(firsts[0] && { first: firsts[0] }) };
  }

  close(): void {
    this.#endListening();
    this.#plans.clear();
  }

  /** Reads the device if a plan with index checks was called since; reports the first bad index once. */
  #checkIndices(): void {
    if (this.#hasWarned) return;
    const called = [...this.#plans].filter(({ record, isDue }) => isDue && record.hasChecks);
    const { first } = this.#badIndicesOf(called);
    if (!first) return;
    this.#hasWarned = true;
    this.#runtime.warn(
      `${describeBadIndex(this.#name, first)} This warning is printed once. step.badIndices counts all such calls.`,
    );
  }
}

function describeBadIndex(name: string, { index, op, line, call, size, range }: BadIndex): string {
  const validIndices = size === 0 ? "no index is valid" : `indices are 0 to ${size - 1}`;
  return (
    `call ${call} of compiled ${name}: ${op}${line ? ` at ${line}` : ""} got the index ${index}, but ${range} (${validIndices}). ` +
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
