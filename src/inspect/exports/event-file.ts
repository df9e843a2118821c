/**
 * Writes TensorBoard event files: records with a length, an Event message and checksums. Flushed records are complete, so TensorBoard
 * can read the file during the run.
 */

import { closeSync, openSync, writeSync } from "node:fs";
import { hostname } from "node:os";
import { join } from "node:path";
import { fileError, makeFolder, withFileError } from "../../data/index.js";
import { HoldfastError } from "../../errors/index.js";
import { maskedCrc32c } from "./crc32c.js";

/** Max. buffered bytes. */
const maxBufferedBytes = 256 * 1024;

export interface EventFileOptions {
  /** The start time in the file name, in milliseconds since 1970: TensorBoard reads files in name order. */
  readonly startMs?: number;
  readonly host?: string;
  readonly pid?: number;
}

/** Writes curves to a new file in a folder. */
export class EventFileWriter {
  readonly path: string;
  readonly #buffered: Uint8Array[] = [];
  #bufferedBytes = 0;
  #file: number | undefined;

  /** Creates the folder if it is missing, and the file `events.out.tfevents.<seconds>.<host>.<pid>`. */
  constructor(folder: string, options: EventFileOptions = {}) {
    const { startMs = Date.now(), host = hostname(), pid = process.pid } = options;
    const seconds = Math.floor(startMs / 1000);
    // A host name may come from a file and must not lead out of the folder.
    const origin = `${host.replaceAll(/[^\w.-]/g, "_")}.${pid}`;
    this.path = join(folder, `events.out.tfevents.${String(seconds).padStart(10, "0")}.${origin}`);
    try {
      makeFolder(folder);
      this.#file = openSync(this.path, "w");
    } catch (error) {
      throw fileError(`${this.path} can't be opened`, this.path, error);
    }
    this.#append(recordOf([double(1, startMs / 1000), text(3, "brain.Event:2")]));
    try {
      this.flush();
    } catch (error) {
      closeSync(this.#file);
      throw error;
    }
  }

  /** Adds a point to a curve. TensorBoard groups tags by the text before a slash. */
  scalar(tag: string, step: number, value: number, wallTimeMs: number): void {
    const summary = bytesField(1, Buffer.concat([text(1, tag), float(2, value)]));
    this.#append(recordOf([double(1, wallTimeMs / 1000), varint(2, step), bytesField(5, summary)]));
  }

  flush(): void {
    const file = this.#requireOpen();
    const bytes = Buffer.concat(this.#buffered);
    this.#buffered.length = 0;
    this.#bufferedBytes = 0;
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
    } catch (error) {
      throw fileError(`${this.path} can't be written`, this.path, error);
    }
  }

  close(): void {
    if (this.#file === undefined) return;
    const file = this.#file;
    try {
      this.flush();
    } finally {
      // The descriptor is gone even if close fails.
      this.#file = undefined;
      withFileError(`${this.path} can't be closed`, this.path, () => closeSync(file));
    }
  }

  #append(record: Uint8Array): void {
    this.#requireOpen();
    this.#buffered.push(record);
    this.#bufferedBytes += record.length;
    if (this.#bufferedBytes >= maxBufferedBytes) this.flush();
  }

  #requireOpen(): number {
    if (this.#file !== undefined) return this.#file;
    throw new HoldfastError("CLOSED", `The event file ${this.path} is closed.`);
  }
}

/** [length: 8 bytes] [its checksum: 4] [message] [its checksum: 4], all little-endian. */
function recordOf(fields: readonly Uint8Array[]): Uint8Array {
  const message = Buffer.concat(fields);
  const head = Buffer.alloc(12);
  head.writeBigUInt64LE(BigInt(message.length));
  head.writeUInt32LE(maskedCrc32c(head.subarray(0, 8)), 8);
  const tail = Buffer.alloc(4);
  tail.writeUInt32LE(maskedCrc32c(message));
  return Buffer.concat([head, message, tail]);
}

/** Protobuf wire types: 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes. */
function key(field: number, wireType: 0 | 1 | 2 | 5): number {
  return field * 8 + wireType;
}

function double(field: number, value: number): Uint8Array {
  const bytes = Buffer.alloc(9);
  bytes[0] = key(field, 1);
  bytes.writeDoubleLE(value, 1);
  return bytes;
}

function float(field: number, value: number): Uint8Array {
  const bytes = Buffer.alloc(5);
  bytes[0] = key(field, 5);
  bytes.writeFloatLE(value, 1);
  return bytes;
}

function varint(field: number, value: number): Uint8Array {
  return Buffer.from([key(field, 0), ...varintBytes(value)]);
}

function bytesField(field: number, bytes: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from([key(field, 2), ...varintBytes(bytes.length)]), bytes]);
}

function text(field: number, value: string): Uint8Array {
  return bytesField(field, Buffer.from(value, "utf8"));
}

/** A varint: seven bits per byte, lowest first; the eighth bit marks continuation. */
function varintBytes(value: number): number[] {
  if (!(Number.isSafeInteger(value) && value >= 0)) {
    throw new HoldfastError("BAD_ARGUMENT", `The step is ${value}. It must be a whole number, 0 or more.`, {
      numbers: { value },
    });
  }
  const bytes: number[] = [];
  let rest = value;
  while (rest >= 128) {
    bytes.push((rest % 128) + 128);
    rest = Math.floor(rest / 128);
  }
  return [...bytes, rest];
}
