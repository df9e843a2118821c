/** metrics.jsonl: a line of JSON for each record, in the order in which they came. What a crash cut off is left out. */

import { closeSync, constants, fsyncSync, ftruncateSync, openSync, readFileSync, writeSync } from "node:fs";
import { codeOf, fileError, writeAtomically } from "../../data/index.js";
import { fromJson, type JsonRecord, toJson } from "./json.js";

const newline = 0x0a;

/** A log that is written to: its own process's, for as long as the run's lock is held. */
export class MetricsLog {
  readonly #path: string;
  #file: number;

  /** Opens the log, and cuts off a last line that was not written to its end. */
  constructor(path: string) {
    this.#path = path;
    try {
      const { bytes, soundBytes } = readLog(path);
      this.#file = openForAppending(path);
      if (soundBytes < bytes.length) ftruncateSync(this.#file, soundBytes);
    } catch (error) {
      throw fileError(`${path} can't be opened`, path, error);
    }
  }

  /** Adds a line. It is there when this process is killed; `sync` makes it last through a power cut. */
  append(record: JsonRecord): void {
    const line = Buffer.from(`${toJson("a line of metrics", record)}\n`);
    try {
      for (let done = 0; done < line.length; ) done += writeSync(this.#file, line, done);
    } catch (error) {
      throw fileError(`${this.#path} can't be written`, this.#path, error);
    }
  }

  sync(): void {
    try {
      fsyncSync(this.#file);
    } catch (error) {
      throw fileError(`${this.#path} can't be written`, this.#path, error);
    }
  }

  /** Takes lines of later steps out: a run that goes on from a checkpoint writes them again. */
  dropAfter(step: number): void {
    const { records } = readMetrics(this.#path);
    const kept = records.filter((record) => !(Number(record["step"]) > step));
    if (kept.length === records.length) return;
    const text = kept.map((record) => `${toJson("a line of metrics", record)}\n`).join("");
    closeSync(this.#file);
    try {
      writeAtomically(this.#path, text);
    } finally {
      this.#file = openForAppending(this.#path);
    }
  }

  close(): void {
    try {
      this.sync();
    } finally {
      closeSync(this.#file);
    }
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
    throw error;
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
