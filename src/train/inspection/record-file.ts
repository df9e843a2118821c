/**
 * Reads a file of JSON records that grows by lines. Each read continues where the last one stopped. A file that was cut or replaced
 * is read again from the start.
 */

import { closeSync } from "node:fs";
import { basename } from "node:path";
import { errorCode } from "../../data/index.js";
import { openRegularFile, readSpan } from "../../files/index.js";
import { formatBytes, MiB } from "../../units/index.js";
import { fromJson } from "../files/json.js";
import type { RecordReader } from "./record-shapes.js";

/** A larger file is not from a run, or no page could show it. */
const maxBytes = 512 * MiB;
/** Bytes per read. A longer line is read whole, up to `maxLineBytes`. */
const chunkBytes = 4 * MiB;
const maxLineBytes = 64 * MiB;
/** Reading stops after this many damaged lines: each takes as long as hundreds of others. */
const maxDamaged = 1000;
/** Max. damaged lines per file with a message each. The others are only counted. */
const maxDetailed = 3;
/** Bytes before the read position that must be unchanged at the next read. */
const tailBytes = 64;
const newline = 0x0a;

export class RecordFile<Checked> {
  readonly #path: string;
  readonly #toRecord: RecordReader<Checked>;
  readonly #thin: (records: Checked[]) => Checked[];
  #records: Checked[] = [];
  #details: string[] = [];
  #damaged = 0;
  #lines = 0;
  /** The end of the last complete line that was read, and the bytes before it. */
  #offset = 0;
  #tail: Buffer = Buffer.alloc(0);
  #inode = 0;
  /** Too many lines are damaged: reading stops until the file is replaced. */
  #isAbandoned = false;

  constructor(path: string, toRecord: RecordReader<Checked>, thin: (records: Checked[]) => Checked[]) {
    this.#path = path;
    this.#toRecord = toRecord;
    this.#thin = thin;
  }

  /** Reads one chunk. Returns true if there is more. */
  advance(): boolean {
    try {
      const { file, stats } = openRegularFile(this.#path);
      try {
        return this.#readChunk(file, stats.size, stats.ino);
      } finally {
        closeSync(file);
      }
    } catch (error) {
      this.#restart();
      if (errorCode(error) !== "ENOENT")
        this.#noteDamage(error instanceof Error ? error.message : String(error));
      return false;
    }
  }

  read(): { readonly records: readonly Checked[]; readonly messages: readonly string[] } {
    while (this.advance());
    const more = this.#damaged - this.#details.length;
    const name = basename(this.#path);
    const rest = more > 0 ? [`${more} more lines of ${name} can't be read and are ignored.`] : [];
    const end = this.#isAbandoned ? [`The rest of ${name} is not read.`] : [];
    return { records: this.#records, messages: [...this.#details, ...rest, ...end] };
  }

  #readChunk(file: number, size: number, inode: number): boolean {
    const isSame = inode === this.#inode && size >= this.#offset && this.#isTailUnchanged(file);
    if (!isSame) this.#restart();
    this.#inode = inode;
    if (size > maxBytes) {
      this.#restart();
      this.#noteDamage(
        `${this.#path} has ${formatBytes(size)}. Files of more than ${formatBytes(maxBytes)} are not read.`,
      );
      return false;
    }
    const isRead = !this.#isAbandoned && this.#readLines(file, size);
    const length = Math.min(tailBytes, this.#offset);
    this.#tail = readSpan(file, this.#offset - length, length);
    return isRead && this.#offset < size && !this.#isAbandoned;
  }

  /** Reads the next lines. Returns false if there is no complete one. */
  #readLines(file: number, size: number): boolean {
    for (let length = chunkBytes; this.#offset < size; length *= 2) {
      const bytes = readSpan(file, this.#offset, Math.min(length, size - this.#offset));
      // Bytes after the last newline are still being written, or were cut off.
      const complete = bytes.subarray(0, bytes.lastIndexOf(newline) + 1);
      if (complete.length > 0) {
        this.#parseLines(complete.subarray(0, -1));
        this.#offset += complete.length;
        this.#records = this.#thin(this.#records);
        return true;
      }
      if (bytes.length < length) return false;
      if (length < maxLineBytes) continue;
      const name = basename(this.#path);
      this.#noteDamage(`Line ${this.#lines + 1} of ${name} is longer than ${formatBytes(maxLineBytes)}.`);
      this.#isAbandoned = true;
      return false;
    }
    return false;
  }

  #parseLines(bytes: Buffer): void {
    for (const line of bytes.toString("utf8").split("\n")) {
      this.#parseLine(line);
      if (this.#damaged < maxDamaged) continue;
      this.#isAbandoned = true;
      return;
    }
  }

  #parseLine(line: string): void {
    this.#lines++;
    try {
      this.#records.push(this.#toRecord(fromJson("it", line)));
    } catch (error) {
      const problem = error instanceof Error ? error.message : String(error);
      this.#noteDamage(`Line ${this.#lines} of ${basename(this.#path)} is ignored: ${problem}`);
    }
  }

  #noteDamage(message: string): void {
    this.#damaged++;
    if (this.#details.length < maxDetailed) this.#details.push(message);
  }

  #isTailUnchanged(file: number): boolean {
    const length = this.#tail.length;
    return readSpan(file, this.#offset - length, length).equals(this.#tail);
  }

  #restart(): void {
    this.#records = [];
    this.#details = [];
    this.#damaged = 0;
    this.#isAbandoned = false;
    this.#lines = 0;
    this.#offset = 0;
    this.#tail = Buffer.alloc(0);
  }
}
