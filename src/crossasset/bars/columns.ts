/** Collects the columns of bars row by row while a file is read. An invalid row is an error with its number. */

import { badData, quote } from "../../data/index.js";
import type { ErrorNumbers, HoldfastError } from "../../errors/index.js";
import { type BarColumn, type Bars, barColumns } from "./bars.js";
import { isTime, parseNumber, parseTime } from "./cells.js";

const firstCapacity = 1024;
const prices = ["open", "high", "low", "close"] as const;

/** Accepted column names, in lower case. */
const columnNames: Readonly<Record<BarColumn, readonly string[]>> = {
  time: ["time", "timestamp", "date", "datetime"],
  open: ["open"],
  high: ["high"],
  low: ["low"],
  close: ["close"],
  volume: ["volume"],
};

/** The indices of the bars' columns in a file, in the order of `barColumns`. Other columns are ignored. */
export function findColumns(file: string, header: readonly string[]): number[] {
  const names = header.map((name) => name.trim().toLowerCase());
  return barColumns.map((column) => {
    const indices = [...names.keys()].filter((index) => columnNames[column].includes(names[index] ?? ""));
    const [index] = indices;
    if (index !== undefined && indices.length === 1) return index;
    const shown = quote(header.join(", "));
    throw index === undefined
      ? badData(
          file,
          `column "${column}" is missing in ${shown}.`,
          `The columns must include ${barColumns.join(", ")}.`,
        )
      : badData(file, `${indices.length} columns match ${column}: ${shown}.`, "Keep one of them.");
  });
}

export class BarColumns {
  readonly #file: string;
  #count = 0;
  #arrays = makeColumns(firstCapacity);

  constructor(file: string) {
    this.#file = file;
  }

  /** Adds a row, with its cells in the order of `barColumns`. */
  add(cells: readonly unknown[]): void {
    const at = this.#count;
    if (at === this.#arrays.time.length) this.#arrays = copyColumns(this.#arrays, 2 * at, at);
    const { time, open, high, low, close, volume } = this.#arrays;
    time[at] = parseTime(cells[0]);
    open[at] = parseNumber(cells[1]);
    high[at] = parseNumber(cells[2]);
    low[at] = parseNumber(cells[3]);
    close[at] = parseNumber(cells[4]);
    // Adding 0 turns −0 into 0, because text does not distinguish them.
    volume[at] = parseNumber(cells[5]) + 0;
    const fault = findFault(this.#arrays, at);
    if (fault !== undefined) throw this.#reject(fault, cells);
    this.#count = at + 1;
  }

  /** The error for the next row. */
  rejectRow(problem: string, numbers: ErrorNumbers = {}): HoldfastError {
    const row = this.#count + 1;
    return badData(this.#file, `row ${row} ${problem}.`, "Correct or remove the row.", { row, ...numbers });
  }

  /** The added bars, in arrays of their exact length. */
  finish(): Bars {
    if (this.#count === 0) throw badData(this.#file, "it has no rows.", "Use a file with bars.");
    return copyColumns(this.#arrays, this.#count, this.#count);
  }

  #reject({ column, describe }: RowFault, cells: readonly unknown[]): HoldfastError {
    const cell = cells[barColumns.indexOf(column)];
    const isMissing = cell === undefined || cell === null || cell === "";
    return this.rejectRow(isMissing ? `has no ${column}` : describe(quote(cell)), { column });
  }
}

export interface RowFault {
  readonly column: BarColumn;
  /** The fault as text, with the cell from the file. */
  describe(cell: string): string;
}

/** The fault of the row at `at`, as the next bar; undefined if it is valid. */
export function findFault(bars: Bars, at: number): RowFault | undefined {
  const time = bars.time[at] ?? Number.NaN;
  const low = bars.low[at] ?? Number.NaN;
  const high = bars.high[at] ?? Number.NaN;
  const volume = bars.volume[at] ?? Number.NaN;
  // A comparison with NaN is false, so each condition states the valid case.
  if (!isTime(time))
    return {
      column: "time",
      describe: (cell) => `has the time ${cell}; use ISO 8601, seconds or milliseconds`,
    };
  for (const column of prices) {
    const price = bars[column][at] ?? Number.NaN;
    if (!(price > 0 && price < Number.POSITIVE_INFINITY)) return numberFault(column, price, "above 0");
  }
  if (!(volume >= 0 && volume < Number.POSITIVE_INFINITY))
    return numberFault("volume", volume, "of 0 or more");
  if (!(high >= low))
    return { column: "high", describe: () => `has a high of ${high} below its low of ${low}` };
  const previous = at === 0 ? Number.NEGATIVE_INFINITY : (bars.time[at - 1] ?? Number.NaN);
  if (!(time > previous))
    return {
      column: "time",
      describe: () => `is at ${dateText(time)}, not after the row before it, at ${dateText(previous)}`,
    };
  return undefined;
}

function numberFault(column: BarColumn, value: number, range: string): RowFault {
  const isNumber = Number.isFinite(value);
  return {
    column,
    describe: (cell) => `has the ${column} ${cell}, which is not a number${isNumber ? ` ${range}` : ""}`,
  };
}

function dateText(time: number): string {
  return new Date(time).toISOString();
}

type Arrays = Readonly<Record<BarColumn, Float64Array<ArrayBuffer>>>;

function makeColumns(length: number): Arrays {
  return {
    time: new Float64Array(length),
    open: new Float64Array(length),
    high: new Float64Array(length),
    low: new Float64Array(length),
    close: new Float64Array(length),
    volume: new Float64Array(length),
  };
}

/** Copies the first `count` rows to arrays of another length. */
function copyColumns(from: Arrays, length: number, count: number): Arrays {
  const to = makeColumns(length);
  for (const column of barColumns) to[column].set(from[column].subarray(0, count));
  return to;
}
