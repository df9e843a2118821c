/**
 * A run's step log in memory, a column each, and as few points of it as a page can show. The log only grows, so what was read stays;
 * where a resumed run has cut it, it is read anew.
 */

import { join } from "node:path";
import { errorCode } from "../data/index.js";
import { HoldfastError } from "../errors/index.js";
import { type StepColumn, stepColumns } from "../records/index.js";
import { countSteps, inspectionFiles, readSteps, type StepSeries } from "../train/index.js";
import type { PointColumn } from "./page/wire.js";

/** More than this is no longer held: 1 GiB. */
const maxRows = 2 ** 24;

/** Rates over less than this say more of the clock than of the run, in milliseconds. */
const shortestSpanMs = 100;

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

/** Points of a range of rows. Where a point stands for many rows, the least, the greatest and the mean loss are told. */
export interface StepPoints {
  /** All rows that there are. */
  readonly rows: number;
  /** Which of them the points stand for. */
  readonly from: number;
  readonly to: number;
  /** NaN where a number is not known; `notFinite` counts the rows whose loss is none. */
  readonly columns: Readonly<Record<PointColumn, Float64Array>>;
}

export interface PointRange {
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  /** How many at most. */
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

  /** How many rows the log has; none where it is not there, and an error where it is no such log or too long. */
  count(): number {
    const count = countOf(this.#path);
    if (count > maxRows) {
      throw new HoldfastError(
        "UNSUPPORTED",
        `${this.#path} has ${count.toLocaleString("en")} rows; the inspector holds ${maxRows.toLocaleString("en")} at most.`,
      );
    }
    return count;
  }

  /** Reads what has come. */
  refresh(): void {
    const count = this.count();
    if (count < this.#rows) this.#forget();
    if (count === 0) return;
    // The last row that is held comes along, to see that it is still the same.
    const from = Math.max(0, this.#rows - 1);
    const fresh = readSteps(this.#path, { from });
    if (this.#rows === 0 || this.#isLast(fresh)) this.#put(fresh, from);
    else {
      this.#forget();
      this.#put(readSteps(this.#path), 0);
    }
  }

  /** Into new memory: who was given the columns keeps them as they were. */
  #forget(): void {
    this.#columns = emptyColumns(0);
    this.#rows = 0;
  }

  /** Whether the first row of these is the last that is held. */
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

  /** All that is held, as it is now; rows that come later are not in it. */
  series(): StepSeries {
    const part = (column: StepColumn): Float64Array => this.#columns[column].subarray(0, this.#rows);
    return Object.fromEntries(stepColumns.map((column) => [column, part(column)])) as StepSeries;
  }

  /** At most so many points; each row by itself where there are no more than that. */
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
      const behind = begin + Math.floor(((point + 1) * (end - begin)) / count);
      this.#fillPoint(columns, point, first, behind);
      columns.samplesPerSecond[point] = rates.upTo(first, behind - 1);
    }
    return { rows: this.#rows, from: begin, to: end, columns };
  }

  #fillPoint(columns: Record<PointColumn, Float64Array>, point: number, first: number, behind: number): void {
    const { loss, hostMs } = this.#columns;
    let [sum, least, greatest, known, host] = [0, Infinity, -Infinity, 0, 0];
    for (let row = first; row < behind; row++) {
      const value = loss[row] ?? Number.NaN;
      if (Number.isFinite(value)) {
        sum += value;
        if (value < least) least = value;
        if (value > greatest) greatest = value;
        known++;
      }
      host += hostMs[row] ?? 0;
    }
    const isKnown = known > 0;
    columns.loss[point] = isKnown ? sum / known : Number.NaN;
    columns.lossMin[point] = isKnown ? least : Number.NaN;
    columns.lossMax[point] = isKnown ? greatest : Number.NaN;
    columns.notFinite[point] = behind - first - known;
    columns.hostMs[point] = host / (behind - first);
    for (const column of ["step", "time", "lr", "fold", "epoch"] as const)
      columns[column][point] = this.#columns[column][behind - 1] ?? Number.NaN;
  }
}

/** Samples over time, from point to point; over a tenth of a second at least. */
class RateMeter {
  readonly #time: Float64Array;
  readonly #samples: Float64Array;
  /** Samples of the rows behind the earlier row, up to the later one. */
  #earlier = -1;
  #later = -1;
  #sum = 0;

  constructor(time: Float64Array, samples: Float64Array) {
    this.#time = time;
    this.#samples = samples;
  }

  /** Over the rows from the first to the last one, or over more before them where those took no time to speak of. */
  upTo(first: number, last: number): number {
    const time = this.#time;
    const wanted = (time[last] ?? 0) - shortestSpanMs;
    if (this.#later < 0) {
      this.#earlier = first - 1;
      this.#later = first - 1;
      while (this.#earlier > 0 && (time[this.#earlier] ?? 0) > wanted) this.#moveEarlier(-1);
    }
    while (this.#later < last) this.#sum += this.#samples[++this.#later] ?? 0;
    // As near as it may be: before the first row, and long enough ago.
    while (this.#earlier + 1 < first && (time[this.#earlier + 1] ?? 0) <= wanted) this.#moveEarlier(1);
    const spanMs = this.#earlier < 0 ? 0 : (time[last] ?? 0) - (time[this.#earlier] ?? 0);
    if (spanMs > 0) return (this.#sum * 1000) / spanMs;
    // Nothing lies before the very first row; later ones are counted from it.
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
