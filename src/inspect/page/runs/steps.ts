/** Computations on the table of steps: rows of a range, step times, remaining time. */

import type { Range } from "../charts/scales.js";
import type { Column, StepTable } from "../wire.js";

/** The first and the last step of a table; undefined if it is empty. */
export function stepRange(table: StepTable | undefined): Range | undefined {
  const steps = table?.columns.step ?? [];
  const [first, last] = [steps[0], steps.at(-1)];
  if (typeof first !== "number" || typeof last !== "number") return undefined;
  return { min: first, max: Math.max(last, first + 1) };
}

/**
 * The rows of a range of steps, plus one point on either side, so that lines reach the chart's edges. All points of a table have
 * the same number of rows.
 */
export function rowsOfSteps(table: StepTable, { min, max }: Range): { from: number; to: number } {
  const steps = table.columns.step;
  const perPoint = (table.to - table.from) / Math.max(1, steps.length);
  const first = Math.max(0, firstAtLeast(steps, min) - 1);
  const afterLast = Math.min(steps.length, firstAtLeast(steps, max) + 2);
  return {
    from: table.from + Math.floor(first * perPoint),
    to: Math.min(table.to, table.from + Math.ceil(afterLast * perPoint)),
  };
}

/** The first index whose step is at least this one; steps ascend. */
function firstAtLeast(steps: Column, step: number): number {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((steps[middle] ?? Infinity) < step) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** True if the table has every step of the range. */
export function covers(table: StepTable, { min, max }: Range): boolean {
  const covered = stepRange(table);
  if (covered === undefined) return false;
  return (covered.min <= min || table.from === 0) && (covered.max >= max || table.to >= table.rows);
}

export interface StepTimes {
  /** The host's milliseconds for a step. */
  readonly host: (number | null)[];
  /** From the previous step to this one, in milliseconds: host time and waiting for the device. */
  readonly whole: (number | null)[];
}

/** Differences across epochs or folds are omitted, because they include tests and checkpoints. */
export function stepTimes({ columns }: StepTable): StepTimes {
  const { step, time, hostMs, epoch, fold } = columns;
  const whole = step.map((here, index) => {
    const before = index - 1;
    const [earlierStep, earlierTime, thisTime] = [step[before], time[before], time[index]];
    if (here === null || typeof earlierStep !== "number" || typeof earlierTime !== "number") return null;
    if (typeof thisTime !== "number" || here <= earlierStep) return null;
    if (epoch[index] !== epoch[before] || fold[index] !== fold[before]) return null;
    return Math.max((thisTime - earlierTime) / (here - earlierStep), hostMs[index] ?? 0);
  });
  return { host: [...hostMs], whole };
}

/** The figures of an epoch that determine its step time. */
export interface TimedEpoch {
  readonly fold: number;
  readonly epoch: number;
  /** The run's step after it. */
  readonly step: number | undefined;
  readonly samplesPerSecond: number | undefined;
  readonly seconds: number | undefined;
}

/**
 * The milliseconds per step of each completed epoch, from the epoch's figures: the host runs ahead of the device, so send times say
 * nothing. An epoch's seconds include compilation, its samples per second do not; its number of samples follows from the fold's
 * other epochs.
 */
export function epochStepMs(
  epochs: readonly TimedEpoch[],
): { readonly fold: number; readonly epoch: number; readonly value: number | undefined }[] {
  const samplesOf = new Map<number, number>();
  for (const { fold, epoch, seconds, samplesPerSecond } of epochs)
    if (epoch > 0 && seconds && samplesPerSecond) samplesOf.set(fold, seconds * samplesPerSecond);
  return epochs.map(({ fold, epoch, step, samplesPerSecond }, index) => {
    const steps = (step ?? Number.NaN) - (index > 0 ? (epochs[index - 1]?.step ?? Number.NaN) : 0);
    const ms = (1000 * (samplesOf.get(fold) ?? Number.NaN)) / (samplesPerSecond ?? Number.NaN) / steps;
    return { fold, epoch, value: Number.isFinite(ms) && steps > 0 ? ms : undefined };
  });
}

/** The median host time of each epoch, at each of its points: the first step of a plan is an outlier. */
export function hostByEpoch({ columns }: StepTable): (number | null)[] {
  const keyAt = (index: number): string => `${columns.fold[index]} ${columns.epoch[index]}`;
  const msByEpoch = new Map<string, number[]>();
  for (const [index, ms] of columns.hostMs.entries()) {
    if (typeof ms !== "number") continue;
    const list = msByEpoch.get(keyAt(index)) ?? [];
    msByEpoch.set(keyAt(index), list);
    list.push(ms);
  }
  const middle = new Map(
    [...msByEpoch].map(([key, list]) => [key, list.sort((a, b) => a - b)[list.length >> 1] ?? null]),
  );
  return columns.step.map((_, index) => middle.get(keyAt(index)) ?? null);
}

/** A figure of each epoch, at each of its points; null if unknown. */
export function byEpoch(
  { columns }: StepTable,
  figures: readonly { readonly fold: number; readonly epoch: number; readonly value: number | undefined }[],
): (number | null)[] {
  const values = new Map(figures.map(({ fold, epoch, value }) => [`${fold} ${epoch}`, value]));
  return columns.step.map((_, index) => values.get(`${columns.fold[index]} ${columns.epoch[index]}`) ?? null);
}

/** The steps where folds start, with their index. */
export function foldStarts({ columns }: StepTable): { step: number; fold: number }[] {
  const starts: { step: number; fold: number }[] = [];
  for (const [index, fold] of columns.fold.entries()) {
    const step = columns.step[index];
    if (typeof fold !== "number" || typeof step !== "number") continue;
    const isWhole = Number.isInteger(fold);
    if (isWhole && fold !== (starts.at(-1)?.fold ?? -1)) starts.push({ step, fold });
  }
  return starts;
}

/** The last known value. */
export function lastFinite(values: Column | undefined): number | undefined {
  for (let index = (values?.length ?? 0) - 1; index >= 0; index--) {
    const value = values?.[index];
    if (typeof value === "number" && Number.isFinite(value)) return value;
  }
  return undefined;
}

/**
 * Seconds until the end, at the pace of the last twentieth of the steps, tests and checkpoints included; undefined before the rate
 * is known.
 */
export function secondsLeft(table: StepTable, of: number | undefined): number | undefined {
  const { step, time } = table.columns;
  const last = step.length - 1;
  const first = Math.max(0, last - Math.max(20, Math.floor(step.length / 20)));
  const [fromStep, toStep, fromTime, toTime] = [step[first], step[last], time[first], time[last]];
  if (of === undefined || typeof fromStep !== "number" || typeof toStep !== "number") return undefined;
  if (typeof fromTime !== "number" || typeof toTime !== "number" || toStep <= fromStep) return undefined;
  return (Math.max(0, of - toStep) * (toTime - fromTime)) / (toStep - fromStep) / 1000;
}

/** Merges the steps of several runs into one axis, and maps a run's values onto it. */
export function mergeSteps(runs: readonly Column[]): {
  steps: number[];
  align: (run: number, values: Column) => Column;
} {
  const [only] = runs;
  if (runs.length === 1 && only) return { steps: only as number[], align: (_, values) => values };
  const steps = [...new Set(runs.flatMap((run) => run.filter((step) => step !== null)))].sort(
    (a, b) => a - b,
  );
  const indexOf = new Map(steps.map((step, index) => [step, index]));
  const align = (run: number, values: Column): Column => {
    const aligned = new Array<number | null>(steps.length).fill(null);
    for (const [index, step] of (runs[run] ?? []).entries()) {
      const at = step === null ? undefined : indexOf.get(step);
      if (at !== undefined) aligned[at] = values[index] ?? null;
    }
    return aligned;
  };
  return { steps, align };
}
