/**
 * The step log: a header line, then one row of float64 per step. Binary, because a step must not allocate, and because a million
 * rows (64 MB) must load in a moment.
 */

import { closeSync, constants, fstatSync, ftruncateSync, readSync, writeSync } from "node:fs";
import { errorCode, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { openRegularFile } from "../../files/index.js";
import { type StepColumn, stepColumns } from "../../records/index.js";
import { bufferSizes } from "../../units/index.js";
import { LogFile } from "../files/log-file.js";

const headerBytes = 512;
const rowBytes = 8 * stepColumns.length;
const header = `${JSON.stringify({ format: "holdfast steps 1", columns: stepColumns }).padEnd(headerBytes - 1)}\n`;

export type StepRow = Readonly<Record<StepColumn, number>>;

/** Stores a row in an array of rows. Without a loop over the columns, because it runs at every step. */
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

/** The index of the loss in a row. */
export const lossAt = stepColumns.indexOf("loss");

/**
 * Appends rows. A crash loses the rows that were not flushed; a power cut loses the rows that were not synced. Each write has an
 * offset: after a write that failed halfway, the next one writes the same rows again.
 */
export class StepLog {
  readonly #path: string;
  readonly #file: LogFile;
  readonly #pending = new Float64Array(bufferSizes.stepRows * stepColumns.length);
  #rows: number;
  #count = 0;

  /** Continues an existing log; cuts off an incomplete last row. */
  constructor(path: string) {
    this.#path = path;
    this.#file = new LogFile(path, constants.O_RDWR | constants.O_CREAT);
    try {
      this.#rows = this.#file.use("opened", (file) => prepareLog(path, file));
    } catch (error) {
      this.#file.close();
      throw error;
    }
  }

  append(row: StepRow): void {
    this.#flushIfFull();
    storeRow(this.#pending, this.#count * stepColumns.length, row);
    this.#count++;
    this.#flushIfFull();
  }

  /** Appends a row of an array of rows. */
  appendFrom(rows: Float64Array, at: number): void {
    this.#flushIfFull();
    const to = this.#count * stepColumns.length;
    for (let column = 0; column < stepColumns.length; column++)
      this.#pending[to + column] = rows[at + column] ?? 0;
    this.#count++;
    this.#flushIfFull();
  }

  /** Called before an append too: after a failed write the buffer is still full. */
  #flushIfFull(): void {
    if (this.#count * stepColumns.length === this.#pending.length) this.flush();
  }

  flush(): void {
    const bytes = new Uint8Array(this.#pending.buffer, 0, this.#count * rowBytes);
    this.#file.write(bytes, headerBytes + this.#rows * rowBytes);
    this.#rows += this.#count;
    this.#count = 0;
  }

  /** Returns after all rows are safe from a power cut. */
  sync(): void {
    this.flush();
    this.#file.sync();
  }

  /**
   * Removes rows of later steps: a run that resumes from a checkpoint writes them again. Steps increase from row to row. The
   * first row that breaks this order was damaged by a power cut; it and all later rows are removed.
   */
  dropAfter(step: number): void {
    this.flush();
    const { step: steps } = readSteps(this.#path);
    let kept = 0;
    for (let last = 0; kept < this.#rows; kept++) {
      const current = steps[kept] ?? 0;
      if (!(current > last && current <= step)) break;
      last = current;
    }
    this.#cutToRows(kept);
  }

  /** The file's size after the next flush. */
  get bytes(): number {
    return headerBytes + (this.#rows + this.#count) * rowBytes;
  }

  /** Removes the rows that were appended after the file had this size. */
  truncateTo(bytes: number): void {
    this.flush();
    const rows = Math.max(0, Math.floor((bytes - headerBytes) / rowBytes));
    if (rows < this.#rows) this.#cutToRows(rows);
  }

  /** Syncs and closes. Does nothing if the log is closed. */
  close(): void {
    if (!this.#file.isOpen) return;
    try {
      this.sync();
    } finally {
      this.#file.close();
    }
  }

  #cutToRows(rows: number): void {
    this.#file.truncate(headerBytes + rows * rowBytes);
    this.#rows = rows;
  }
}

/** One array per column. */
export type StepSeries = Readonly<Record<StepColumn, Float64Array>>;

export interface StepRange {
  /** The first row; default: 0. */
  readonly from?: number;
  /** The row after the last; default: the number of complete rows. */
  readonly to?: number;
}

/** Reads rows of a log. Another process may be writing it. */
export function readSteps(path: string, { from = 0, to = Infinity }: StepRange = {}): StepSeries {
  return reading(path, (file) => {
    requireHeader(path, file);
    const end = Math.min(to, Math.floor((fstatSync(file).size - headerBytes) / rowBytes));
    const count = Math.max(0, end - from);
    const bytes = new Uint8Array(count * rowBytes);
    const read = readAt(file, bytes, headerBytes + from * rowBytes);
    const rows = new Float64Array(bytes.buffer, 0, Math.floor(read / rowBytes) * stepColumns.length);
    const series = stepColumns.map((_, column) => {
      const values = new Float64Array(rows.length / stepColumns.length);
      for (let row = 0; row < values.length; row++)
        values[row] = rows[row * stepColumns.length + column] ?? 0;
      return values;
    });
    return Object.fromEntries(stepColumns.map((column, index) => [column, series[index]])) as StepSeries;
  });
}

/** Counts the complete rows of a log. */
export function countSteps(path: string): number {
  return reading(path, (file) => {
    requireHeader(path, file);
    return Math.floor((fstatSync(file).size - headerBytes) / rowBytes);
  });
}

/** Throws if the file exists and is not a step log of this version. Writes nothing. */
export function requireStepLog(path: string): void {
  try {
    reading(path, (file) => {
      if (hasHeader(file)) requireHeader(path, file);
    });
  } catch (error) {
    if (!(error instanceof HoldfastError && errorCode(error.cause) === "ENOENT")) throw error;
  }
}

/** Writes the header of a new log, or cuts an incomplete last row off an old one. Returns the number of rows. */
function prepareLog(path: string, file: number): number {
  if (!hasHeader(file)) {
    if (fstatSync(file).size > 0) ftruncateSync(file, 0);
    writeAt(file, Buffer.from(header), 0);
    return 0;
  }
  requireHeader(path, file);
  const rows = Math.floor((fstatSync(file).size - headerBytes) / rowBytes);
  ftruncateSync(file, headerBytes + rows * rowBytes);
  return rows;
}

/** False if the process died while it wrote the header, or if a power cut left zeros there. */
function hasHeader(file: number): boolean {
  const bytes = Buffer.alloc(headerBytes);
  return readAt(file, bytes, 0) === headerBytes && bytes.some((byte) => byte !== 0);
}

function reading<Result>(path: string, use: (file: number) => Result): Result {
  return withFileError(`${path} can't be read`, path, () => {
    const { file } = openRegularFile(path);
    try {
      return use(file);
    } finally {
      closeSync(file);
    }
  });
}

/** Fills `bytes` from an offset in the file. Returns the number of bytes read. */
function readAt(file: number, bytes: Uint8Array, from: number): number {
  let read = 0;
  while (read < bytes.length) {
    const more = readSync(file, bytes, read, bytes.length - read, from + read);
    if (more === 0) break;
    read += more;
  }
  return read;
}

function writeAt(file: number, bytes: Uint8Array, to: number): void {
  for (let done = 0; done < bytes.length; )
    done += writeSync(file, bytes, done, bytes.length - done, to + done);
}

function requireHeader(path: string, file: number): void {
  const bytes = Buffer.alloc(headerBytes);
  readAt(file, bytes, 0);
  if (bytes.toString("utf8") === header) return;
  throw new HoldfastError(
    "BAD_FILE",
    `${path} is not a step log of this version: its first line differs. Remove it, or read it with the version that wrote it.`,
    { numbers: { path } },
  );
}
