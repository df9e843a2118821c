/** A log with one JSON record per line, such as metrics.jsonl. A line that a crash cut off is ignored. */

import { constants } from "node:fs";
import { basename } from "node:path";
import { asFileError, errorCode, withFileError, writeAtomically } from "../../data/index.js";
import { readTail } from "../../files/index.js";
import type { JsonRecord } from "../../records/index.js";
import { MiB } from "../../units/index.js";
import { fromJson, isRecord, toJson } from "./json.js";
import { LogFile } from "./log-file.js";

const newline = 0x0a;

/** A log that one process writes while it holds the run's lock. */
export class JsonLog {
  readonly #path: string;
  #file: LogFile;

  /** Opens the log, and cuts off an incomplete last line. */
  constructor(path: string) {
    this.#path = path;
    const { size, validBytes } = withFileError(`${path} can't be opened`, path, () => readLog(path));
    this.#file = openForAppending(path);
    try {
      if (validBytes < size) this.#file.truncate(validBytes);
    } catch (error) {
      this.#file.close();
      throw error;
    }
  }

  /** Appends a line. The line survives the end of this process; after `sync` it survives a power cut. */
  append(record: JsonRecord): void {
    this.#file.write(Buffer.from(`${toJson("a log line", record)}\n`));
  }

  sync(): void {
    this.#file.sync();
  }

  /** The file's size. */
  get bytes(): number {
    return this.#file.bytes;
  }

  /** Removes the lines that were appended after the file had this size. */
  truncateTo(bytes: number): void {
    if (this.bytes > bytes) this.#file.truncate(bytes);
  }

  /**
   * Removes damaged lines, lines of later steps and the lines that `isDropped` selects. A run that resumes from a checkpoint
   * writes them again.
   */
  dropAfter(step: number, isDropped: (record: JsonRecord) => boolean = () => false): void {
    const { records, messages } = readJsonLog(this.#path, noLimits);
    const kept = records.filter((record) => !(Number(record["step"]) > step) && !isDropped(record));
    if (kept.length === records.length && messages.length === 0) return;
    const text = kept.map((record) => `${toJson("a log line", record)}\n`).join("");
    this.#file.close();
    writeAtomically(this.#path, text);
    this.#file = openForAppending(this.#path);
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
}

/** Limits for reading a log. */
export interface LogLimits {
  /** Max. bytes read, from the end of the log. */
  readonly maxBytes: number;
  /** Max. records returned, the latest. */
  readonly maxRecords: number;
  /** After this many unreadable lines, reading stops. */
  readonly maxDamaged: number;
}

/** Limits for readers that poll: at most a fraction of a second of work. A run writes a few lines per epoch. */
const readerLimits: LogLimits = { maxBytes: 16 * MiB, maxRecords: 50_000, maxDamaged: 1000 };
const noLimits: LogLimits = { maxBytes: Infinity, maxRecords: Infinity, maxDamaged: Infinity };
/** Max. damaged lines with a message each. The others are only counted. */
const maxDetailed = 3;

/** The complete records of a log, and messages about its other lines. Another process may be writing the log. */
export function readJsonLog(
  path: string,
  { maxBytes, maxRecords, maxDamaged }: LogLimits = readerLimits,
): {
  readonly records: readonly JsonRecord[];
  readonly messages: readonly string[];
} {
  const { bytes, before } = readEnd(path, maxBytes);
  const name = basename(path);
  const end = bytes.lastIndexOf(newline) + 1;
  const messages: string[] = [];
  // Bytes after the last newline are still being written, or were cut off.
  if (end < bytes.length) messages.push(`The last line of ${name} is incomplete and is ignored.`);
  const start = startOfLast(bytes, end, maxRecords, before > 0);
  const isCut = before + start > 0;
  if (isCut) messages.push(`${name} is long. Only its last lines are read, at most ${maxRecords}.`);
  const lines = end > start ? bytes.toString("utf8", start, end - 1).split("\n") : [];
  const records: JsonRecord[] = [];
  let damaged = 0;
  for (const [index, line] of lines.entries()) {
    try {
      records.push(fromJson(isCut ? `A line of ${name}` : `Line ${index + 1} of ${name}`, line));
    } catch (error) {
      damaged++;
      if (damaged <= maxDetailed)
        messages.push(`${error instanceof Error ? error.message : String(error)} The line is ignored.`);
      if (damaged < maxDamaged) continue;
      messages.push(`${damaged} lines of ${name} can't be read. The lines after them are ignored.`);
      return { records, messages };
    }
  }
  if (damaged > maxDetailed)
    messages.push(`${damaged - maxDetailed} more lines of ${name} can't be read and are ignored.`);
  return { records, messages };
}

/** The offset of the last `maxLines` lines before `end`. */
function startOfLast(bytes: Buffer, end: number, maxLines: number, isCut: boolean): number {
  let start = end;
  for (let lines = 0; lines < maxLines && start > 0; lines++)
    start = start >= 2 ? bytes.lastIndexOf(newline, start - 2) + 1 : 0;
  // The first line is incomplete.
  return isCut && start === 0 ? bytes.indexOf(newline) + 1 : start;
}

function readEnd(path: string, maxBytes: number): ReturnType<typeof readTail> {
  try {
    return readTail(path, maxBytes);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return { bytes: Buffer.alloc(0), before: 0 };
    throw asFileError(`${path} can't be read`, path, error);
  }
}

function openForAppending(path: string): LogFile {
  return new LogFile(path, constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND);
}

/** The log's size, and the end of its last line that is a JSON record. */
function readLog(path: string): { readonly size: number; readonly validBytes: number } {
  const { bytes } = readEnd(path, Infinity);
  let end = bytes.lastIndexOf(newline) + 1;
  // A power cut can leave a line of zeros.
  while (end > 0) {
    const start = end >= 2 ? bytes.lastIndexOf(newline, end - 2) + 1 : 0;
    if (isRecordLine(bytes, start, end)) break;
    end = start;
  }
  return { size: bytes.length, validBytes: end };
}

const brace = 0x7b;

/** Looks at the first byte before it parses: a file may have millions of blank lines, and an exception for each takes minutes. */
function isRecordLine(bytes: Buffer, start: number, end: number): boolean {
  if (bytes[start] !== brace) return false;
  try {
    return isRecord(JSON.parse(bytes.toString("utf8", start, end)));
  } catch {
    return false;
  }
}
