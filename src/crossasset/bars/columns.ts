/** The columns of bars while they are read: they grow row by row, and a row that is no bar is rejected with its number. */

import type { ErrorNumbers, HoldfastError } from "../../errors/index.js";
import { type BarColumn, type Bars, barColumns } from "./bars.js";
import { isTime, parseNumber, parseTime } from "./cells.js";
import { badBars, quote } from "./rejection.js";

const firstCapacity = 1024;
const prices = ["open", "high", "low", "close"] as const;

/** What a column may be called; names are compared in small letters. */
const columnNames: Readonly<Record<BarColumn, readonly string[]>> = {
  time: ["time", "timestamp", "date", "datetime"],
  open: ["open"],
  high: ["high"],
  low: ["low"],
  close: ["close"],
  volume: ["volume"],
};

/** Where a file has the bars' columns, in the order of `barColumns`. Further columns are left alone. */
export function placeColumns(file: string, header: readonly string[]): number[] {
  const found = header.map((name) => name.trim().toLowerCase());
  return barColumns.map((column) => {
    const places = [...found.keys()].filter((place) => columnNames[column].includes(found[place] ?? ""));
    const [place] = places;
    if (place !== undefined && places.length === 1) return place;
    const shown = quote(header.join(", "));
    throw place === undefined
      ? badBars(file, `there is no column "${column}" among ${shown}.`, `Give ${barColumns.join(", ")}.`)
      : badBars(file, `${places.length} columns name the ${column}: ${shown}.`, "Leave one of them.");
  });
}

export class BarColumns {
  readonly #file: string;
  #count = 0;
  #arrays = makeColumns(firstCapacity);

  constructor(file: string) {
    this.#file = file;
  }

  /** Adds a row: its cells in the order of `barColumns`. */
  add(cells: readonly unknown[]): void {
    const at = this.#count;
    if (at === this.#arrays.time.length) this.#arrays = copyColumns(this.#arrays, 2 * at, at);
    const { time, open, high, low, close, volume } = this.#arrays;
    time[at] = parseTime(cells[0]);
    open[at] = parseNumber(cells[1]);
    high[at] = parseNumber(cells[2]);
    low[at] = parseNumber(cells[3]);
    close[at] = parseNumber(cells[4]);
    // Adding 0 makes −0 a 0: text doesn't tell them apart.
    volume[at] = parseNumber(cells[5]) + 0;
    const fault = findFault(this.#arrays, at);
    if (fault !== undefined) throw this.#reject(fault, cells);
    this.#count = at + 1;
  }

  /** The error for the row that comes next. */
  rejectRow(found: string, numbers: ErrorNumbers = {}): HoldfastError {
    const row = this.#count + 1;
    return badBars(this.#file, `row ${row} ${found}.`, "Correct or remove the row.", { row, ...numbers });
  }

  /** The bars that were added, in arrays of just their length. */
  finish(): Bars {
    if (this.#count === 0) throw badBars(this.#file, "there is no row in it.", "Give a file with bars.");
    return copyColumns(this.#arrays, this.#count, this.#count);
  }

  #reject({ column, what }: RowFault, cells: readonly unknown[]): HoldfastError {
    const cell = cells[barColumns.indexOf(column)];
    const isMissing = cell === undefined || cell === null || cell === "";
    return this.rejectRow(isMissing ? `has no ${column}` : what(quote(cell)), { column });
  }
}

export interface RowFault {
  readonly column: BarColumn;
  /** The fault in words, with the cell as the file has it. */
  what(cell: string): string;
}

/** Why the row at `at` is no bar that may follow those before it; undefined if it is one. */
export function findFault(bars: Bars, at: number): RowFault | undefined {
  const time = bars.time[at] ?? Number.NaN;
  const low = bars.low[at] ?? Number.NaN;
  const high = bars.high[at] ?? Number.NaN;
  const volume = bars.volume[at] ?? Number.NaN;
  // A comparison with NaN is false, so each is written as what must hold.
  if (!isTime(time))
    return {
      column: "time",
      what: (cell) => `has the time ${cell}; ISO 8601, seconds or milliseconds are read`,
    };
  for (const column of prices) {
    const price = bars[column][at] ?? Number.NaN;
    if (!(price > 0 && price < Number.POSITIVE_INFINITY)) return numberFault(column, price, "above 0");
  }
  if (!(volume >= 0 && volume < Number.POSITIVE_INFINITY))
    return numberFault("volume", volume, "of 0 or more");
  if (!(high >= low)) return { column: "high", what: () => `has a high of ${high} below its low of ${low}` };
  const before = at === 0 ? Number.NEGATIVE_INFINITY : (bars.time[at - 1] ?? Number.NaN);
  if (!(time > before))
    return {
      column: "time",
      what: () => `is at ${dateText(time)}, not after the row before it, at ${dateText(before)}`,
    };
  return undefined;
}

function numberFault(column: BarColumn, value: number, wanted: string): RowFault {
  const isNumber = Number.isFinite(value);
  return {
    column,
    what: (cell) => `has the ${column} ${cell}, which is not a number${isNumber ? ` ${wanted}` : ""}`,
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

/** The first `count` rows in arrays of another length. */
function copyColumns(from: Arrays, length: number, count: number): Arrays {
  const to = makeColumns(length);
  for (const column of barColumns) to[column].set(from[column].subarray(0, count));
  return to;
}
