/** metrics.jsonl: a line of JSON for each record, in the order in which they came. What a crash cut off is left out. */

import {
  closeSync,
  constants,
  fstatSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readFileSync,
  writeSync,
} from "node:fs";
import { codeOf, fileError, withFileError, writeAtomically } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { fromJson, type JsonRecord, toJson } from "./json.js";

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
    withFileError(`${this.#path} can't be written`, this.#path, () => fsyncSync(file));
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
    const { records, messages } = readMetrics(this.#path);
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

/** All whole records of a log, and messages about what is none; another process may be writing it. */
export function readMetrics(path: string): {
  readonly records: readonly JsonRecord[];
  readonly messages: readonly string[];
} {
  const { bytes } = readLog(path);
  const text = Buffer.from(bytes).toString("utf8");
  const messages: string[] = [];
  const lines = text.split("\n");
  // What stands behind the last end of a line is being written, or was cut off.
  if (lines.pop() !== "") messages.push("The last line of the metrics is not whole; it is left out.");
  const records = lines.flatMap((line, index) => {
    try {
      return [fromJson(`Line ${index + 1} of the metrics`, line)];
    } catch (error) {
      messages.push(`${error instanceof Error ? error.message : String(error)} It is left out.`);
      return [];
    }
  });
  return { records, messages };
}

function openForAppending(path: string): number {
  return openSync(path, constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND);
}

/** The log's bytes, and how many of them are whole lines of JSON up to the last one that is. */
function readLog(path: string): { readonly bytes: Uint8Array; readonly soundBytes: number } {
  let bytes: Buffer;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    if (codeOf(error) === "ENOENT") return { bytes: new Uint8Array(0), soundBytes: 0 };
    throw fileError(`${path} can't be read`, path, error);
  }
  let end = bytes.lastIndexOf(newline) + 1;
  // A power cut can leave a line of zeros.
  while (end > 0) {
    const begin = end >= 2 ? bytes.lastIndexOf(newline, end - 2) + 1 : 0;
    if (isRecordLine(bytes.toString("utf8", begin, end))) break;
    end = begin;
  }
  return { bytes, soundBytes: end };
}

function isRecordLine(line: string): boolean {
  try {
    fromJson("a line", line);
    return true;
  } catch {
    return false;
  }
}
