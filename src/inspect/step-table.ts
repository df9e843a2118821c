/**
 * A run's step log in memory, one array per column, reduced to as many points as a page can show. The log only grows, so rows are
 * read once; if a resumed run has cut it, it is read again.
 */

import { join } from "node:path";
import { errorCode } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { type StepColumn, stepColumns } from "../records/index.js";
import { countSteps, inspectionFiles, readSteps, type StepSeries } from "../train/index.js";
import type { PointColumn } from "./page/wire.js";

/** Max. rows in memory: 1 GiB. */
const maxRows = 2 ** 24;

/** The min. time span of a rate, in milliseconds. */
const minSpanMs = 100;

const pointColumns = [
  "step",
  "lossMin",
  "lossMax",
  "loss",
  "lr",
  "hostMs",
  "time",
  "samplesPerSecond",
  "fold",
  "epoch",
  "notFinite",
] as const satisfies readonly PointColumn[];

/** Points of a range of rows. A point of several rows has their min., max. and mean loss. */
export interface StepPoints {
  /** Rows in the log. */
  readonly rows: number;
  /** The range of rows that the points cover. */
  readonly from: number;
  readonly to: number;
  /** NaN is unknown. `notFinite` counts the rows without a finite loss. */
  readonly columns: Readonly<Record<PointColumn, Float64Array>>;
}

export interface PointRange {
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** Max. points. */
  readonly points: number;
}

export class StepTable {
  readonly #path: string;
  #columns: Record<StepColumn, Float64Array> = emptyColumns(0);
  #rows = 0;

  constructor(runPath: string) {
    this.#path = join(runPath, inspectionFiles.steps);
  }

  get rows(): number {
    return this.#rows;
  }

  /** The number of rows; 0 without a log. Throws if the file is not a step log or is too long. */
  count(): number {
    const count = countOf(this.#path);
    if (count > maxRows) {
      throw new HoldfastError(
        "UNSUPPORTED",
        `${this.#path} has ${count.toLocaleString("en")} rows. The inspector can show at most ${maxRows.toLocaleString("en")}.`,
      );
    }
    return count;
  }

  /** Reads new rows. */
  refresh(): void {
    const count = this.count();
    if (count < this.#rows) this.#clear();
    if (count === 0) return;
    // Also reads the last known row, to detect a change.
    const from = Math.max(0, this.#rows - 1);
    const fresh = readSteps(this.#path, { from });
    if (this.#rows === 0 || this.#isLast(fresh)) this.#put(fresh, from);
    else {
      this.#clear();
      this.#put(readSteps(this.#path), 0);
    }
  }

  /** Copies to new memory, because callers may hold the old columns. */
  #clear(): void {
    this.#columns = emptyColumns(0);
    this.#rows = 0;
  }

  /** True if the first new row equals the last known row. */
  #isLast(fresh: StepSeries): boolean {
    return stepColumns.every((column) => Object.is(fresh[column][0], this.#columns[column][this.#rows - 1]));
  }

  #put(fresh: StepSeries, at: number): void {
    const rows = at + fresh.step.length;
    if (rows > this.#columns.step.length) {
      const larger = emptyColumns(at === 0 ? rows : Math.max(rows, 2 * this.#columns.step.length));
      for (const column of stepColumns) larger[column].set(this.#columns[column].subarray(0, at));
      this.#columns = larger;
    }
    for (const column of stepColumns) this.#columns[column].set(fresh[column], at);
    this.#rows = rows;
  }

  /** The rows read so far. Later rows are not included. */
  series(): StepSeries {
    const rowsOf = (column: StepColumn): Float64Array => this.#columns[column].subarray(0, this.#rows);
    return Object.fromEntries(stepColumns.map((column) => [column, rowsOf(column)])) as StepSeries;
  }

  /** At most `points` points. With fewer rows, each row is a point. */
  points({ from = 0, to = this.#rows, points }: PointRange): StepPoints {
    const end = Math.min(Math.max(0, to), this.#rows);
    const begin = Math.min(Math.max(0, from), end);
    const count = Math.min(Math.max(1, points), end - begin);
    const columns = Object.fromEntries(
      pointColumns.map((column) => [column, new Float64Array(count)]),
    ) as Record<PointColumn, Float64Array>;
    const rates = new RateMeter(this.#columns.time, this.#columns.samples);
    for (let point = 0; point < count; point++) {
      const first = begin + Math.floor((point * (end - begin)) / count);
      const pointEnd = begin + Math.floor(((point + 1) * (end - begin)) / count);
      this.#fillPoint(columns, point, first, pointEnd);
      columns.samplesPerSecond[point] = rates.upTo(first, pointEnd - 1);
    }
    return { rows: this.#rows, from: begin, to: end, columns };
  }

  #fillPoint(
    columns: Record<PointColumn, Float64Array>,
    point: number,
    first: number,
    pointEnd: number,
  ): void {
    const { loss, hostMs } = this.#columns;
    let [sum, min, max, finite, host] = [0, Infinity, -Infinity, 0, 0];
    for (let row = first; row < pointEnd; row++) {
      const value = loss[row] ?? Number.NaN;
      if (Number.isFinite(value)) {
        sum += value;
        if (value < min) min = value;
        if (value > max) max = value;
        finite++;
      }
      host += hostMs[row] ?? 0;
    }
    const hasFinite = finite > 0;
    columns.loss[point] = hasFinite ? sum / finite : Number.NaN;
    columns.lossMin[point] = hasFinite ? min : Number.NaN;
    columns.lossMax[point] = hasFinite ? max : Number.NaN;
    columns.notFinite[point] = pointEnd - first - finite;
    columns.hostMs[point] = host / (pointEnd - first);
    for (const column of ["step", "time", "lr", "fold", "epoch"] as const)
      columns[column][point] = this.#columns[column][pointEnd - 1] ?? Number.NaN;
  }
}

/** Samples per second between points, over at least a tenth of a second. */
class RateMeter {
  readonly #time: Float64Array;
  readonly #samples: Float64Array;
  /** Samples after the earlier row, up to the later one. */
  #earlier = -1;
  #later = -1;
  #sum = 0;

  constructor(time: Float64Array, samples: Float64Array) {
    this.#time = time;
    this.#samples = samples;
  }

  /** Over the rows from the first to the last, or over earlier ones too if the span is short. */
  upTo(first: number, last: number): number {
    const time = this.#time;
    const latestMs = (time[last] ?? 0) - minSpanMs;
    if (this.#later < 0) {
      this.#earlier = first - 1;
      this.#later = first - 1;
      while (this.#earlier > 0 && (time[this.#earlier] ?? 0) > latestMs) this.#moveEarlier(-1);
    }
    while (this.#later < last) this.#sum += this.#samples[++this.#later] ?? 0;
    // The nearest row before the first that is far enough in the past.
    while (this.#earlier + 1 < first && (time[this.#earlier + 1] ?? 0) <= latestMs) this.#moveEarlier(1);
    const spanMs = this.#earlier < 0 ? 0 : (time[last] ?? 0) - (time[this.#earlier] ?? 0);
    if (spanMs > 0) return (this.#sum * 1000) / spanMs;
    // There is nothing before the very first row; later rows are counted from it.
    const sinceFirstMs = (time[last] ?? 0) - (time[0] ?? 0);
    return sinceFirstMs > 0 ? ((this.#sum - (this.#samples[0] ?? 0)) * 1000) / sinceFirstMs : Number.NaN;
  }

  #moveEarlier(by: 1 | -1): void {
    if (by === -1) this.#sum += this.#samples[this.#earlier] ?? 0;
    this.#earlier += by;
    if (by === 1) this.#sum -= this.#samples[this.#earlier] ?? 0;
  }
}

function emptyColumns(rows: number): Record<StepColumn, Float64Array> {
  return Object.fromEntries(stepColumns.map((column) => [column, new Float64Array(rows)])) as Record<
    StepColumn,
    Float64Array
  >;
}

function countOf(path: string): number {
  try {
    return countSteps(path);
  } catch (error) {
    if (error instanceof HoldfastError && errorCode(error.cause) === "ENOENT") return 0;
    throw error;
  }
}
