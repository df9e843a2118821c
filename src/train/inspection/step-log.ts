/**
 * The step log: some numbers of every step, as rows of float64 behind a header of one line. A million steps are 64 MB, which
 * are read in a moment and written without making anything for the garbage collector.
 */

import { closeSync, fstatSync, ftruncateSync, openSync, readSync, writeSync } from "node:fs";
import { codeOf, fileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { openRegularFile } from "../../files/index.js";
import { bufferSizes } from "../../units/index.js";
import { type StepColumn, stepColumns } from "./records.js";

const headerBytes = 512;
const rowBytes = 8 * stepColumns.length;
const header = `${JSON.stringify({ format: "holdfast steps 1", columns: stepColumns }).padEnd(headerBytes - 1)}\n`;

export type StepRow = Readonly<Record<StepColumn, number>>;

/** Writes a row into an array of such rows, in the order of the columns: by name, one after the other, as this is done at every step. */
export function storeRow(rows: Float64Array, at: number, row: StepRow): void {
  rows[at] = row.step;
  rows[at + 1] = row.time;
  rows[at + lossAt] = row.loss;
  rows[at + 3] = row.lr;
  rows[at + 4] = row.fold;
  rows[at + 5] = row.epoch;
  rows[at + 6] = row.samples;
  rows[at + 7] = row.hostMs;
}

/** Where the loss stands in a row. */
export const lossAt = stepColumns.indexOf("loss");

/** Appends rows. What was not flushed is lost with the process; rows that are there are whole, but for the last one. */
export class StepLog {
  readonly #path: string;
  readonly #waiting = new Float64Array(bufferSizes.stepRows * stepColumns.length);
  #rows: number;
  #count = 0;
  #file: number | undefined;

  /** Goes on with a log that is there; a row that was not written to its end is cut off. */
  constructor(path: string) {
    this.#path = path;
    this.#file = openSync(path, "a+");
    const { size } = fstatSync(this.#file);
    if (size < headerBytes) {
      ftruncateSync(this.#file, 0);
      writeSync(this.#file, header);
      this.#rows = 0;
      return;
    }
    requireHeader(path, this.#file);
    this.#rows = Math.floor((size - headerBytes) / rowBytes);
    ftruncateSync(this.#file, headerBytes + this.#rows * rowBytes);
  }

  append(row: StepRow): void {
    storeRow(this.#waiting, this.#count * stepColumns.length, row);
    this.#grown();
  }

  /** Appends a row that lies in an array of such rows. */
  appendFrom(rows: Float64Array, at: number): void {
    const to = this.#count * stepColumns.length;
    for (let column = 0; column < stepColumns.length; column++)
      this.#waiting[to + column] = rows[at + column] ?? 0;
    this.#grown();
  }

  #grown(): void {
    this.#count++;
    if (this.#count * stepColumns.length === this.#waiting.length) this.flush();
  }

  flush(): void {
    const file = this.#requireOpen();
    if (this.#count === 0) return;
    writeSync(file, new Uint8Array(this.#waiting.buffer, 0, this.#count * rowBytes));
    this.#rows += this.#count;
    this.#count = 0;
  }

  /** Takes rows of later steps out: a run that goes on from a checkpoint writes them again. */
  dropAfter(step: number): void {
    this.flush();
    const { step: steps } = readSteps(this.#path);
    let kept = this.#rows;
    while (kept > 0 && (steps[kept - 1] ?? 0) > step) kept--;
    ftruncateSync(this.#requireOpen(), headerBytes + kept * rowBytes);
    this.#rows = kept;
  }

  close(): void {
    if (this.#file === undefined) return;
    this.flush();
    closeSync(this.#file);
    this.#file = undefined;
  }

  #requireOpen(): number {
    if (this.#file !== undefined) return this.#file;
    throw new HoldfastError("CLOSED", `The step log ${this.#path} is closed.`);
  }
}

/** Each column by itself. */
export type StepSeries = Readonly<Record<StepColumn, Float64Array>>;

export interface StepRange {
  /** Rows from this one on; from the first unless given. */
  readonly from?: number;
  /** Up to before this one; to the last whole one unless given. */
  readonly to?: number;
}

/** Rows of a log, also while it is written. */
export function readSteps(path: string, { from = 0, to = Infinity }: StepRange = {}): StepSeries {
  const { file } = openRegularFile(path);
  try {
    requireHeader(path, file);
    const end = Math.min(to, Math.floor((fstatSync(file).size - headerBytes) / rowBytes));
    const count = Math.max(0, end - from);
    const bytes = new Uint8Array(count * rowBytes);
    let read = 0;
    while (read < bytes.length) {
      const more = readSync(file, bytes, read, bytes.length - read, headerBytes + from * rowBytes + read);
      if (more === 0) break;
      read += more;
    }
    const rows = new Float64Array(bytes.buffer, 0, Math.floor(read / rowBytes) * stepColumns.length);
    const series = stepColumns.map((_, column) => {
      const values = new Float64Array(rows.length / stepColumns.length);
      for (let row = 0; row < values.length; row++)
        values[row] = rows[row * stepColumns.length + column] ?? 0;
      return values;
    });
    return Object.fromEntries(stepColumns.map((column, index) => [column, series[index]])) as StepSeries;
  } finally {
    closeSync(file);
  }
}

/** How many whole rows a log has. */
export function countSteps(path: string): number {
  const { file } = openRegularFile(path);
  try {
    requireHeader(path, file);
    return Math.floor((fstatSync(file).size - headerBytes) / rowBytes);
  } finally {
    closeSync(file);
  }
}

/** Refuses a file that is there and is no step log of this Holdfast; writes nothing. */
export function requireStepLog(path: string): void {
  let file: number;
  try {
    file = openRegularFile(path).file;
  } catch (error) {
    if (codeOf(error) === "ENOENT") return;
    throw fileError(`${path} can't be opened`, path, error);
  }
  try {
    // A shorter one was cut off while it was begun, and is begun again.
    if (fstatSync(file).size >= headerBytes) requireHeader(path, file);
  } finally {
    closeSync(file);
  }
}

function requireHeader(path: string, file: number): void {
  const found = Buffer.alloc(headerBytes);
  readSync(file, found, 0, headerBytes, 0);
  if (found.toString("utf8") === header) return;
  throw new HoldfastError(
    "BAD_FILE",
    `${path} is no step log of this Holdfast: its first line is another. Remove it, or read it with the version that wrote it.`,
    { numbers: { path } },
  );
}
