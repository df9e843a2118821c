/** metrics.jsonl: a line of JSON for each record, in the order in which they came. What a crash cut off is left out. */

import { closeSync, constants, fstatSync, fsyncSync, ftruncateSync, openSync, writeSync } from "node:fs";
import { asFileError, errorCode, withFileError, writeAtomically } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { readTail } from "../../files/index.js";
import { duringFileWork, MiB } from "../../units/index.js";
import { fromJson, isRecord, type JsonRecord, toJson } from "./json.js";

const newline = 0x0a;

/** Sizes of logs in bytes, by the names of their files. A checkpoint holds them: what comes after is written again. */
export type LogSizes = Readonly<Record<string, number>>;

/** A log that is written to: its own process's, for as long as the run's lock is held. */
export class MetricsLog {
  readonly #path: string;
  /** Undefined once it is closed, or where it could not be opened again. */
  #file: number | undefined;

  /** Opens the log, and cuts off a last line that was not written to its end. */
  constructor(path: string) {
    this.#path = path;
    withFileError(`${path} can't be opened`, path, () => {
      const { bytes, soundBytes } = readLog(path);
      const file = openForAppending(path);
      this.#file = file;
      try {
        if (soundBytes < bytes.length) ftruncateSync(file, soundBytes);
      } catch (error) {
        this.#closeFile();
        throw error;
      }
    });
  }

  /** Adds a line. It is there when this process is killed; `sync` makes it last through a power cut. */
  append(record: JsonRecord): void {
    const line = Buffer.from(`${toJson("a line of metrics", record)}\n`);
    const file = this.#requireOpen();
    withFileError(`${this.#path} can't be written`, this.#path, () => {
      for (let done = 0; done < line.length; ) done += writeSync(file, line, done);
    });
  }

  sync(): void {
    const file = this.#requireOpen();
    withFileError(`${this.#path} can't be written`, this.#path, () =>
      duringFileWork("disk-write", () => fsyncSync(file)),
    );
  }

  /** The file's size. */
  get bytes(): number {
    const file = this.#requireOpen();
    return withFileError(`${this.#path} can't be read`, this.#path, () => fstatSync(file).size);
  }

  /** Takes out the lines that were added after the file had this size. */
  cutTo(bytes: number): void {
    if (this.bytes <= bytes) return;
    const file = this.#requireOpen();
    withFileError(`${this.#path} can't be cut`, this.#path, () => ftruncateSync(file, bytes));
  }

  /**
   * Takes lines of later steps out, and others that are named: a run that goes on from a checkpoint writes them again. What a power
   * cut has damaged goes too.
   */
  dropAfter(step: number, isDropped: (record: JsonRecord) => boolean = () => false): void {
    const { records, messages } = readMetrics(this.#path, noLimits);
    const kept = records.filter((record) => !(Number(record["step"]) > step) && !isDropped(record));
    if (kept.length === records.length && messages.length === 0) return;
    const text = kept.map((record) => `${toJson("a line of metrics", record)}\n`).join("");
    this.#closeFile();
    writeAtomically(this.#path, text);
    this.#file = withFileError(`${this.#path} can't be opened`, this.#path, () =>
      openForAppending(this.#path),
    );
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

  #closeFile(): void {
    const file = this.#requireOpen();
    // Whatever close says, the descriptor is gone.
    this.#file = undefined;
    withFileError(`${this.#path} can't be closed`, this.#path, () => closeSync(file));
  }

  #requireOpen(): number {
    if (this.#file !== undefined) return this.#file;
    throw new HoldfastError("CLOSED", `The log ${this.#path} is closed.`);
  }
}

/** How much of a log is read. */
export interface MetricsLimits {
  /** Max. bytes read, from the end of the log. */
  readonly maxBytes: number;
  /** Max. records returned, the latest. */
  readonly maxRecords: number;
  /** After this many unreadable lines, reading stops. */
  readonly maxDamaged: number;
}

/** Limits for readers that poll: at most a fraction of a second of work. A run writes a few lines an epoch. */
const readerLimits: MetricsLimits = { maxBytes: 16 * MiB, maxRecords: 50_000, maxDamaged: 1000 };
const noLimits: MetricsLimits = { maxBytes: Infinity, maxRecords: Infinity, maxDamaged: Infinity };
/** So many damaged lines are told one by one; the others are counted. */
const maxTold = 3;

/** The whole records of a log, and messages about what is none; another process may be writing it. */
export function readMetrics(
  path: string,
  { maxBytes, maxRecords, maxDamaged }: MetricsLimits = readerLimits,
): {
  readonly records: readonly JsonRecord[];
  readonly messages: readonly string[];
} {
  const { bytes, before } = readEnd(path, maxBytes);
  const end = bytes.lastIndexOf(newline) + 1;
  const messages: string[] = [];
  // What stands after the last end of a line is being written, or was cut off.
  if (end < bytes.length) messages.push("The last line of the metrics is incomplete and is ignored.");
  const begin = beginOfLast(bytes, end, maxRecords, before > 0);
  const isCut = before + begin > 0;
  if (isCut) messages.push(`The metrics log is long. Only its last lines are read, at most ${maxRecords}.`);
  const lines = end > begin ? bytes.toString("utf8", begin, end - 1).split("\n") : [];
  const records: JsonRecord[] = [];
  let damaged = 0;
  for (const [index, line] of lines.entries()) {
    try {
      records.push(fromJson(isCut ? "A line of the metrics" : `Line ${index + 1} of the metrics`, line));
    } catch (error) {
      damaged++;
      if (damaged <= maxTold)
        messages.push(`${error instanceof Error ? error.message : String(error)} It is left out.`);
      if (damaged < maxDamaged) continue;
      messages.push(`${damaged} lines of the metrics can't be read; what comes after them is left out.`);
      return { records, messages };
    }
  }
  if (damaged > maxTold)
    messages.push(`${damaged - maxTold} more lines of the metrics can't be read and are left out.`);
  return { records, messages };
}

/** Where the last `maxLines` lines before `end` begin. */
function beginOfLast(bytes: Buffer, end: number, maxLines: number, isCut: boolean): number {
  let begin = end;
  for (let lines = 0; lines < maxLines && begin > 0; lines++)
    begin = begin >= 2 ? bytes.lastIndexOf(newline, begin - 2) + 1 : 0;
  // The first line has lost its beginning.
  return isCut && begin === 0 ? bytes.indexOf(newline) + 1 : begin;
}

function readEnd(path: string, maxBytes: number): ReturnType<typeof readTail> {
  try {
    return readTail(path, maxBytes);
  } catch (error) {
    if (errorCode(error) === "ENOENT") return { bytes: Buffer.alloc(0), before: 0 };
    throw asFileError(`${path} can't be read`, path, error);
  }
}

function openForAppending(path: string): number {
  return openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND);
}

/** The log's bytes, and how many of them are whole lines of JSON up to the last one that is. */
function readLog(path: string): { readonly bytes: Uint8Array; readonly soundBytes: number } {
  const { bytes } = readEnd(path, Infinity);
  let end = bytes.lastIndexOf(newline) + 1;
  // A power cut can leave a line of zeros.
  while (end > 0) {
    const begin = end >= 2 ? bytes.lastIndexOf(newline, end - 2) + 1 : 0;
    if (isRecordLine(bytes, begin, end)) break;
    end = begin;
  }
  return { bytes, soundBytes: end };
}

const brace = 0x7b;

/** A file of blank lines has millions that are none, and a rejection of each would take minutes. */
function isRecordLine(bytes: Buffer, begin: number, end: number): boolean {
  if (bytes[begin] !== brace) return false;
  try {
    return isRecord(JSON.parse(bytes.toString("utf8", begin, end)));
  } catch {
    return false;
  }
}
