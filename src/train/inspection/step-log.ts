/**
 * The step log: some numbers of every step, as rows of float64 behind a header of one line. A million steps are 64 MB, which
 * are read in a moment and written without making anything for the garbage collector.
 */

import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readSync,
  writeSync,
} from "node:fs";
import { errorCode, withFileError } from "../../data/index.js";
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

/**
 * Appends rows. What was not flushed is lost with the process, and what was not synchronized with a power cut. Rows are written at
 * their place in the file: after a write that failed halfway, the next one writes the same rows again.
 */
export class StepLog {
  readonly #path: string;
  readonly #waiting = new Float64Array(bufferSizes.stepRows * stepColumns.length);
  #rows: number;
  #count = 0;
  #file: number | undefined;

  /** Goes on with a log that is there; a row that was not written to its end is cut off. */
  constructor(path: string) {
    this.#path = path;
    const file = withFileError(`${path} can't be opened`, path, () =>
      openSync(path, constants.O_RDWR | constants.O_CREAT, 0o666),
    );
    this.#file = file;
    try {
      this.#rows = withFileError(`${path} can't be opened`, path, () => beginLog(path, file));
    } catch (error) {
      this.#closeFile();
      throw error;
    }
  }

  append(row: StepRow): void {
    this.#makeRoom();
    storeRow(this.#waiting, this.#count * stepColumns.length, row);
    this.#grown();
  }

  /** Appends a row that lies in an array of such rows. */
  appendFrom(rows: Float64Array, at: number): void {
    this.#makeRoom();
    const to = this.#count * stepColumns.length;
    for (let column = 0; column < stepColumns.length; column++)
      this.#waiting[to + column] = rows[at + column] ?? 0;
    this.#grown();
  }

  #grown(): void {
    this.#count++;
    this.#makeRoom();
  }

  /** After a write that failed, rows still wait. */
  #makeRoom(): void {
    if (this.#count * stepColumns.length === this.#waiting.length) this.flush();
  }

  flush(): void {
    const file = this.#requireOpen();
    if (this.#count === 0) return;
    const bytes = new Uint8Array(this.#waiting.buffer, 0, this.#count * rowBytes);
    withFileError(`${this.#path} can't be written`, this.#path, () =>
      writeAt(file, bytes, headerBytes + this.#rows * rowBytes),
    );
    this.#rows += this.#count;
    this.#count = 0;
  }

  /** Makes the rows so far last through a power cut. */
  sync(): void {
    this.flush();
    const file = this.#requireOpen();
    withFileError(`${this.#path} can't be written`, this.#path, () => fsyncSync(file));
  }

  /**
   * Takes rows of later steps out: a run that goes on from a checkpoint writes them again. Steps rise from row to row; from the first
   * that does not, a power cut has left something else.
   */
  dropAfter(step: number): void {
    this.flush();
    const { step: steps } = readSteps(this.#path);
    let kept = 0;
    for (let last = 0; kept < this.#rows; kept++) {
      const found = steps[kept] ?? 0;
      if (!(found > last && found <= step)) break;
      last = found;
    }
    this.#cutToRows(kept);
  }

  /** The file's size after everything that was appended. */
  get bytes(): number {
    return headerBytes + (this.#rows + this.#count) * rowBytes;
  }

  /** Takes out what was appended after the file had this size. */
  cutTo(bytes: number): void {
    this.flush();
    const rows = Math.max(0, Math.floor((bytes - headerBytes) / rowBytes));
    if (rows < this.#rows) this.#cutToRows(rows);
  }

  /** Harmless when repeated. */
  close(): void {
    if (this.#file === undefined) return;
    try {
      this.sync();
    } finally {
      this.#closeFile();
    }
  }

  #cutToRows(rows: number): void {
    const file = this.#requireOpen();
    withFileError(`${this.#path} can't be cut`, this.#path, () =>
      ftruncateSync(file, headerBytes + rows * rowBytes),
    );
    this.#rows = rows;
  }

  #closeFile(): void {
    const file = this.#requireOpen();
    // Whatever close says, the descriptor is gone.
    this.#file = undefined;
    withFileError(`${this.#path} can't be closed`, this.#path, () => closeSync(file));
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

/** How many whole rows a log has. */
export function countSteps(path: string): number {
  return reading(path, (file) => {
    requireHeader(path, file);
    return Math.floor((fstatSync(file).size - headerBytes) / rowBytes);
  });
}

/** Rejects a file that is there and is no step log of this Holdfast; writes nothing. */
export function requireStepLog(path: string): void {
  try {
    reading(path, (file) => {
      if (isPartial(file)) requireHeader(path, file);
    });
  } catch (error) {
    if (!(error instanceof HoldfastError && errorCode(error.cause) === "ENOENT")) throw error;
  }
}

/** Begins a log, or finds its rows; a row that was not written to its end is cut off. How many rows there are. */
function beginLog(path: string, file: number): number {
  if (!isPartial(file)) {
    if (fstatSync(file).size > 0) ftruncateSync(file, 0);
    writeAt(file, Buffer.from(header), 0);
    return 0;
  }
  requireHeader(path, file);
  const rows = Math.floor((fstatSync(file).size - headerBytes) / rowBytes);
  ftruncateSync(file, headerBytes + rows * rowBytes);
  return rows;
}

/** Has a file a header? A shorter one was cut off while it was begun. A power cut can leave zeros in its place. */
function isPartial(file: number): boolean {
  const found = Buffer.alloc(headerBytes);
  return readAt(file, found, 0) === headerBytes && found.some((byte) => byte !== 0);
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

/** Fills the bytes from a place in the file on; how many there were. */
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
  const found = Buffer.alloc(headerBytes);
  readAt(file, found, 0);
  if (found.toString("utf8") === header) return;
  throw new HoldfastError(
    "BAD_FILE",
    `${path} is no step log of this Holdfast: its first line is another. Remove it, or read it with the version that wrote it.`,
    { numbers: { path } },
  );
}
