/** A log file: a run appends to it, and a resumed run truncates it. It keeps one descriptor open. */

import { closeSync, fstatSync, fsyncSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { duringFileWork } from "../../units/index.js";

/** Log sizes in bytes, by file name. A checkpoint stores them; a resumed run truncates its logs to them. */
export type LogSizes = Readonly<Record<string, number>>;

export class LogFile {
  readonly #path: string;
  /** Undefined after `close`. */
  #file: number | undefined;

  constructor(path: string, flags: number) {
    this.#path = path;
    this.#file = withFileError(`${path} can't be opened`, path, () => openSync(path, flags, 0o666));
  }

  get isOpen(): boolean {
    return this.#file !== undefined;
  }

  /** The file's size. */
  get bytes(): number {
    return this.use("read", (file) => fstatSync(file).size);
  }

  /** Writes all bytes at an offset, or at the end of a file that was opened for appending. */
  write(bytes: Uint8Array, at?: number): void {
    this.use("written", (file) => {
      for (let done = 0; done < bytes.length; )
        done += writeSync(file, bytes, done, bytes.length - done, at === undefined ? null : at + done);
    });
  }

  truncate(bytes: number): void {
    this.use("truncated", (file) => ftruncateSync(file, bytes));
  }

  /** Returns after the written bytes are safe from a power cut. */
  sync(): void {
    this.use("written", (file) => duringFileWork("disk-write", () => fsyncSync(file)));
  }

  /** Runs a function on the descriptor. Its errors say that the file can't be opened, read, written or truncated: see `action`. */
  use<Result>(action: "opened" | "read" | "written" | "truncated", work: (file: number) => Result): Result {
    const file = this.#requireOpen();
    return withFileError(`${this.#path} can't be ${action}`, this.#path, () => work(file));
  }

  /** Closes without `sync`. Does nothing if the file is closed. */
  close(): void {
    const file = this.#file;
    if (file === undefined) return;
    // The descriptor is gone even if close fails.
    this.#file = undefined;
    withFileError(`${this.#path} can't be closed`, this.#path, () => closeSync(file));
  }

  #requireOpen(): number {
    if (this.#file !== undefined) return this.#file;
    throw new HoldfastError("CLOSED", `The log ${this.#path} is closed.`);
  }
}
